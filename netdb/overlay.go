package netdb

import (
	"net/netip"
	"slices"
)

// An overlay is the steps that a batch has staged, and the rows as they leave
// them. A nil lease means that the row is gone.
type overlay struct {
	steps   []step
	rev     int64 // of the last step
	runtime string

	leases   map[netip.Addr]*Lease
	prefixes []*Lease // rows of delegated prefixes, also as they were in between
	ids      map[string]*Lease
	owners   map[Owner]*Lease
	tombs    map[string]tombstone

	pools      map[string]*Pool // by uid; nil: removed
	names      map[nameKey]nameMemory
	withheld   map[netip.Addr]*Withheld // nil: no more
	hostNames  map[string]*HostName     // nil: it has ended
	hostNameOf map[link]*HostName
	sleeps     map[string]*Sleep // by lease; nil: it has ended
	slots      map[string]*Slot  // likewise
}

// A step is one staged change: the row before and after it, and its record.
type step struct {
	old, now *Lease
	change   *Change
	pool     *Pool // a pool made or changed, or removed
	removed  bool
	name     *namedPool // what is remembered of a pool's name from now on
	withheld *Withheld  // of a row that goes: from now on; of one that comes: no more
	tomb     string     // a tombstone set for this uid
	stone    tombstone
	runtime  string   // the runtime that was noted
	holding  *Holding // whose the book is from here on

	named, unnamed *HostName // given with the change of a lease, and ended by it
	sleep          beside[Sleep]
	slot           beside[Slot]
}

func newOverlay() *overlay {
	return &overlay{
		leases: make(map[netip.Addr]*Lease),
		ids:    make(map[string]*Lease),
		owners: make(map[Owner]*Lease),
		tombs:  make(map[string]tombstone),

		pools:      make(map[string]*Pool),
		names:      make(map[nameKey]nameMemory),
		withheld:   make(map[netip.Addr]*Withheld),
		hostNames:  make(map[string]*HostName),
		hostNameOf: make(map[link]*HostName),
		sleeps:     make(map[string]*Sleep),
		slots:      make(map[string]*Slot),
	}
}

// reset empties the overlay for another batch on top of a revision. Its memory
// stays, unless it was a giant's: maps that were made for every request were a
// third of what a commit allocated.
func (o *overlay) reset(rev int64) {
	if len(o.steps) > 4*maxBatch {
		*o = *newOverlay()
	}
	clear(o.steps)
	o.steps, o.rev, o.runtime = o.steps[:0], rev, ""
	clear(o.leases)
	o.prefixes = o.prefixes[:0]
	clear(o.ids)
	clear(o.owners)
	clear(o.tombs)
	clear(o.pools)
	clear(o.names)
	clear(o.withheld)
	clear(o.hostNames)
	clear(o.hostNameOf)
	clear(o.sleeps)
	clear(o.slots)
}

// rewind drops what a request staged before it failed, and leaves the first n
// steps, which are its neighbours', as they were.
func (o *overlay) rewind(n int, rev int64) {
	if len(o.steps) == n {
		return
	}
	kept := slices.Clone(o.steps[:n])
	o.reset(rev)
	for _, s := range kept {
		o.stage(s)
	}
}

// last is the step that was staged last.
func (o *overlay) last() *step { return &o.steps[len(o.steps)-1] }

func (o *overlay) stage(s step) {
	o.steps = append(o.steps, s)
	if s.change != nil {
		o.rev = s.change.Rev
	}
	if s.tomb != "" {
		o.tombs[s.tomb] = s.stone
	}
	if s.runtime != "" {
		o.runtime = s.runtime
	}
	switch {
	case s.removed:
		o.pools[s.pool.UID] = nil
	case s.pool != nil:
		o.pools[s.pool.UID] = s.pool
	}
	if s.name != nil {
		o.names[s.name.key] = s.name.nameMemory
	}
	if w := s.withheld; w != nil {
		if o.withheld[w.Addr] = nil; s.now == nil {
			o.withheld[w.Addr] = w
		}
	}
	if old := s.old; old != nil {
		o.leases[old.Addr] = nil
		o.ids[old.ID] = nil
		if old.State.Open() {
			o.owners[old.Owner()] = nil
		}
	}
	if now := s.now; now != nil {
		o.leases[now.Addr] = now
		if now.PrefixLen != 0 {
			o.prefixes = append(o.prefixes, now)
		}
		o.ids[now.ID] = now
		if now.State.Open() {
			o.owners[now.Owner()] = now
		}
	}
	o.noteNames(s)
	s.sleep.stage(o.sleeps)
	s.slot.stage(o.slots)
}

// look finds what is staged under a key, or else what is committed.
func look[K comparable, V any](k K, staged, committed map[K]V) V {
	if v, ok := staged[k]; ok {
		return v
	}
	return committed[k]
}
