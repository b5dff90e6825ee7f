package watchdog

import (
	"slices"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/workload"
)

// A reading is the whole state as Run last read it.
type reading struct {
	rows   []*ipam.Lease
	rev    int64
	leases *workload.Leases // of rows; nil until it is needed
	index  *containerIndex  // of the board, and of containers that left it while this daemon ran
	next   time.Time
	took   time.Duration

	ports   map[string]bool // names
	portsAt uint64          // the count of their changes when they were read
}

// A reading walks all leases and all containers. Readings may take a twentieth of
// one processor and, after a time without any, a burst of a tenth of a second's
// share. A reading is charged what the quicker of the last two took: one that lost
// its processor for a moment would put confirmations off for twenty times as long.
const (
	dutyShare = 20
	dutyBurst = 100 * time.Millisecond
)

// read reads book and board, and decides which leases are to be confirmed.
//
// The book comes first: a container of a lease that is not read yet belongs to
// none, while a lease without its containers would count as one that lost them.
func (w *Watchdog) read(r *reading, now time.Time) {
	if rev := w.cfg.Book.Rev(); r.rows == nil || rev != r.rev {
		r.rows, r.rev = w.cfg.Book.Leases()
		r.leases = nil
		r.index.use(r.rows)
	}
	r.index.read(onBoard(w.cfg.Board.By(census.Runtime)), r.rev)
	if r.index.past() > r.index.present+mostPast {
		r.index.forget(recordedIn(r.rows))
	}
	whole := w.cfg.Runtime != nil && !slices.ContainsFunc(w.cfg.Board.Silent(), func(s census.Silence) bool {
		return s.Witness == census.Runtime
	})
	want := make(map[string]*ipam.Lease)
	for _, l := range r.rows {
		if l.State == ipam.Releasing || whole && r.index.containersGone(l, r.allLeases) {
			want[l.ID] = l
		}
	}
	w.plumbed.keep(r.rows)
	w.track(want)
	r.spend(now, time.Since(now))
}

// spend notes what a reading took, and when the next may begin.
func (r *reading) spend(began time.Time, took time.Duration) {
	if rested := began.Add(-dutyBurst); r.next.Before(rested) {
		r.next = rested
	}
	r.next = r.next.Add(dutyShare * min(r.took, took))
	r.took = took
}

// allLeases returns the leases that may have a workload, of the rows as they were
// read.
func (r *reading) allLeases() *workload.Leases {
	if r.leases == nil {
		r.leases = workload.NewLeases(r.rows)
	}
	return r.leases
}

// readPorts reads the names of the bridge's ports, unless they are as they were;
// changes is how often they have changed. It waits for the bridge.
func (r *reading) readPorts(of Kernel, changes uint64) {
	if r.ports == nil || r.portsAt != changes {
		r.ports, r.portsAt = of.PortNames(), changes
	}
}

// stands reports that a container is there and is not another lease's.
func (r *reading) stands(l *ipam.Lease, c Container) bool {
	return r.index.there(c) && r.allLeases().Judge(l, r.index.member(c).Record) != workload.Another
}

// recordedIn says which containers any lease records.
func recordedIn(rows []*ipam.Lease) func(Container) bool {
	all := make(map[Container]bool)
	for _, l := range rows {
		for _, c := range l.Containers {
			all[c] = true
		}
	}
	return func(c Container) bool { return all[c] }
}
