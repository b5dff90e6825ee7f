package watchdog

import (
	"slices"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/netdb"
)

// A reading is the whole state as Run last read it.
type reading struct {
	rows []*netdb.Lease
	rev  int64
	kin  kin   // of rows; nil until it is needed
	roll *roll // of the board, with those who left it in this daemon's life
	next time.Time
	took time.Duration

	ports   map[string]bool // names
	portsAt uint64          // what had been told of them when they were read
}

// A reading walks all leases and all containers. It may take a twentieth of
// one processor and, after a rest, a burst of a tenth of a second's share.
// What it costs is what the quicker of two took: one that lost its processor
// for 90 ms put confirmations off for 1.7 s.
const (
	dutyShare = 20
	dutyBurst = 100 * time.Millisecond
)

// read reads book and board, and decides which leases are to be confirmed.
//
// The book comes first: a container of a lease that is not read yet belongs to
// nobody, while a lease without its containers would look forsaken.
func (w *Watchdog) read(r *reading, now time.Time) {
	if rev := w.cfg.Book.Rev(); r.rows == nil || rev != r.rev {
		r.rows, r.rev = w.cfg.Book.Leases()
		r.kin = nil
	}
	r.roll.call(onBoard(w.cfg.Board.By(census.Runtime)), r.rev)
	if r.roll.past() > r.roll.present+mostPast {
		r.roll.forget(recordedIn(r.rows))
	}
	answers := w.cfg.Runtime != nil && !slices.ContainsFunc(w.cfg.Board.Silent(), func(s census.Silence) bool {
		return s.Witness == census.Runtime
	})
	want := make(map[string]*netdb.Lease)
	for _, l := range r.rows {
		if l.State == netdb.Releasing || answers && r.roll.forsaken(l, r.kinship) {
			want[l.ID] = l
		}
	}
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

// kinship returns who shares names with whom, of the rows as they were read.
func (r *reading) kinship() kin {
	if r.kin == nil {
		r.kin = newKin(r.rows)
	}
	return r.kin
}

// hasPort reports whether the bridge has a port of that name; told is how often
// its ports were told to have changed.
func (r *reading) hasPort(of Ports, told uint64, name string) bool {
	if r.ports == nil || r.portsAt != told {
		r.ports, r.portsAt = of.PortNames(), told
	}
	return r.ports[name]
}

// inherits reports that a container which is there is a successor's of l.
func (r *reading) inherits(l *netdb.Lease, c Container) bool {
	return r.kinship().heirs(l).claims(r.roll.members[c].Workload, l)
}

// recordedIn tells which containers any lease records.
func recordedIn(rows []*netdb.Lease) func(Container) bool {
	all := make(map[Container]bool)
	for _, l := range rows {
		for _, c := range l.Containers {
			all[Container(c)] = true
		}
	}
	return func(c Container) bool { return all[c] }
}
