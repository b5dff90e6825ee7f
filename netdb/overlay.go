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

	leases map[netip.Addr]*Lease
	ids    map[string]*Lease
	owners map[Owner]*Lease
	tombs  map[string]tombstone
	count  map[poolState]int // difference to the index
}

type poolState struct {
	pool  string // its uid
	state State
}

// A step is one staged change: the row before and after it, and its record.
type step struct {
	old, now *Lease
	change   *Change
	pool     *Pool  // a pool made or changed
	tomb     string // a tombstone set for this uid
	stone    tombstone
	runtime  string // the runtime that was noted
}

func newOverlay() *overlay {
	return &overlay{
		leases: make(map[netip.Addr]*Lease),
		ids:    make(map[string]*Lease),
		owners: make(map[Owner]*Lease),
		tombs:  make(map[string]tombstone),
		count:  make(map[poolState]int),
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
	clear(o.ids)
	clear(o.owners)
	clear(o.tombs)
	clear(o.count)
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
	if old := s.old; old != nil {
		o.leases[old.Addr] = nil
		o.ids[old.ID] = nil
		if old.State.Open() {
			o.owners[old.Owner()] = nil
		}
		o.count[poolState{old.PoolUID, old.State}]--
	}
	if now := s.now; now != nil {
		o.leases[now.Addr] = now
		o.ids[now.ID] = now
		if now.State.Open() {
			o.owners[now.Owner()] = now
		}
		o.count[poolState{now.PoolUID, now.State}]++
	}
}
