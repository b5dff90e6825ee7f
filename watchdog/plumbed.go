package watchdog

import (
	"maps"
	"sync"
	"time"

	"github.com/ipamd/ipamd/netdb"
)

// plumbed is from when on leases record their host interfaces, as far as this
// daemon has learned of it. A port is looked for by the names that it had since
// then: by any earlier one it was another's. A port that had been "warm3" once
// kept the lease that a later "warm3" was bound to from cooling, for as long as
// its own sandbox lived.
//
// It is kept in memory, as the bridge's former names are.
type plumbed struct {
	mu     sync.Mutex
	leases map[string]plumbing // by id
}

// A plumbing is since when a lease records a host interface.
type plumbing struct {
	host string
	at   time.Time
}

// note takes down a binding: what the lease recorded before it is older. Of two
// that came at once, the first counts.
func (p *plumbed) note(before, l *netdb.Lease, began time.Time) {
	if before == nil || l.HostInterface == "" || before.HostInterface == l.HostInterface {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if was, known := p.leases[l.ID]; known && was.host == l.HostInterface && was.at.Before(began) {
		return
	}
	if p.leases == nil {
		p.leases = make(map[string]plumbing)
	}
	p.leases[l.ID] = plumbing{l.HostInterface, began}
}

// since is when a lease began to record the host interface that it records, or
// the zero time when that is not known.
func (p *plumbed) since(l *netdb.Lease) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if was, known := p.leases[l.ID]; known && was.host == l.HostInterface {
		return was.at
	}
	return time.Time{}
}

// keep drops leases that are not in the book any more, once they are many. One
// that was bound after the rows were read is dropped too, and then its names
// count as far back as the bridge is watched.
func (p *plumbed) keep(rows []*netdb.Lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.leases) < leastRoom+2*len(rows) {
		return
	}
	there := make(map[string]bool, len(rows))
	for _, l := range rows {
		there[l.ID] = true
	}
	maps.DeleteFunc(p.leases, func(id string, _ plumbing) bool { return !there[id] })
}
