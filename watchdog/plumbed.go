package watchdog

import (
	"maps"
	"sync"
	"time"

	"github.com/ipamd/ipamd/ipam"
)

// plumbed has the time from which on each lease records its host interface, as far
// as this daemon saw the bind. A port is looked for by the names that it had since
// then: by an earlier name it was another lease's. Without this rule a port that was
// once named "warm3" keeps the lease of a later "warm3" from cooling, for as long as
// the sandbox behind the first one lives.
//
// It is kept in memory, as the bridge keeps the former names of ports.
type plumbed struct {
	mu     sync.Mutex
	leases map[string]hostSince // by id
}

// A hostSince is since when a lease records a host interface.
type hostSince struct {
	host string
	at   time.Time
}

// note records that a bind which began at a time gave a lease its host interface. Of
// two that are under way at once, the one that began first counts.
func (p *plumbed) note(before, l *ipam.Lease, began time.Time) {
	if before == nil || l.HostInterface == "" || before.HostInterface == l.HostInterface {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if was, known := p.leases[l.ID]; known && was.host == l.HostInterface && was.at.Before(began) {
		return
	}
	if p.leases == nil {
		p.leases = make(map[string]hostSince)
	}
	p.leases[l.ID] = hostSince{l.HostInterface, began}
}

// since is when a lease began to record the host interface that it records, or
// the zero time when that is not known.
func (p *plumbed) since(l *ipam.Lease) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if was, known := p.leases[l.ID]; known && was.host == l.HostInterface {
		return was.at
	}
	return time.Time{}
}

// keep drops leases that are not in the book any more, once they are many. A lease
// that was bound after the rows were read is dropped too: all former names of its
// port count then.
func (p *plumbed) keep(rows []*ipam.Lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.leases) < leastRoom+2*len(rows) {
		return
	}
	there := make(map[string]bool, len(rows))
	for _, l := range rows {
		there[l.ID] = true
	}
	maps.DeleteFunc(p.leases, func(id string, _ hostSince) bool { return !there[id] })
}
