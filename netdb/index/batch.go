package index

import (
	"cmp"
	"slices"

	"github.com/ipamd/ipamd/ipam"
)

// A Step is one staged change: the row before and after it, and its record.
type Step struct {
	Old, Now *ipam.Lease
	Change   *ipam.Change
	Pool     *ipam.Pool // a pool made or changed, or removed
	Removed  bool
	Name     *ipam.PoolName // what is remembered of a pool's name from now on
	Withheld *ipam.Withheld // of a row that goes: from now on; of one that comes: no more
	Tomb     string         // a tombstone set for this uid
	Stone    Tombstone
	Runtime  string        // the runtime that was noted
	Holding  *ipam.Holding // whose the book is from here on

	Named, Unnamed *ipam.HostName // given with the change of a lease, and ended by it
	Sleep          Beside[ipam.Sleep]
	Slot           Beside[ipam.Slot]
}

// A Beside is what a step does to a table whose rows belong to leases, at most one to each,
// by their ids: the sleeps, and the slots. A row is recorded with a change of its lease, and
// ends with one.
type Beside[T any] struct {
	Ended string // the lease whose row ends first; "": none
	Lease string // of Row
	Row   *T     // recorded; nil: none
}

// stage makes the staged rows agree, of which nil has ended.
func (b *Beside[T]) stage(staged map[string]*T) {
	if b.Ended != "" {
		staged[b.Ended] = nil
	}
	if b.Row != nil {
		staged[b.Lease] = b.Row
	}
}

// apply makes the committed rows agree.
func (b *Beside[T]) apply(rows map[string]*T) {
	if b.Ended != "" {
		delete(rows, b.Ended)
	}
	if b.Row != nil {
		rows[b.Lease] = b.Row
	}
}

// A Batch is the steps that a commit has staged, and the view of the rows as they leave them.
type Batch struct {
	View
	of *Index
}

// batchKept is how many steps a batch may have had whose memory is kept for the next one.
const batchKept = 1024

// Reset empties the batch for another commit on top of the index. Its memory
// stays, unless it was a giant's: maps that were made for every request were a
// third of what a commit allocated.
func (b *Batch) Reset() {
	if len(b.steps) > batchKept {
		b.View = *newView()
	}
	b.is, b.rev, b.runtime = b.of.is, b.of.is.rev, ""
	clear(b.steps)
	b.steps, b.prefixes = b.steps[:0], b.prefixes[:0]
	clear(b.leases)
	clear(b.ids)
	clear(b.owners)
	clear(b.tombs)
	clear(b.pools)
	clear(b.names)
	clear(b.withheld)
	clear(b.hostNames)
	clear(b.hostNameOf)
	clear(b.sleeps)
	clear(b.slots)
}

// Rewind drops what a request staged before it failed, and leaves the first n
// steps, which are its neighbours', as they were.
func (b *Batch) Rewind(n int) {
	if len(b.steps) == n {
		return
	}
	kept := slices.Clone(b.steps[:n])
	b.Reset()
	for _, s := range kept {
		b.Stage(s)
	}
}

// Steps are those that are staged.
func (b *Batch) Steps() []Step { return b.steps }

// Stage adds a step.
func (b *Batch) Stage(s Step) {
	b.steps = append(b.steps, s)
	if s.Change != nil {
		b.rev = s.Change.Rev
	}
	if s.Tomb != "" {
		b.tombs[s.Tomb] = s.Stone
	}
	if s.Runtime != "" {
		b.runtime = s.Runtime
	}
	switch {
	case s.Removed:
		b.pools[s.Pool.UID] = nil
	case s.Pool != nil:
		b.pools[s.Pool.UID] = s.Pool
	}
	if s.Name != nil {
		b.names[KeyOfName(s.Name)] = *s.Name
	}
	if w := s.Withheld; w != nil {
		if b.withheld[w.Addr] = nil; s.Now == nil {
			b.withheld[w.Addr] = w
		}
	}
	if old := s.Old; old != nil {
		b.leases[old.Addr] = nil
		b.ids[old.ID] = nil
		if old.State.Open() {
			b.owners[old.Owner()] = nil
		}
	}
	if now := s.Now; now != nil {
		b.leases[now.Addr] = now
		if now.PrefixLen != 0 {
			b.prefixes = append(b.prefixes, now)
		}
		b.ids[now.ID] = now
		if now.State.Open() {
			b.owners[now.Owner()] = now
		}
	}
	b.noteNames(&s)
	s.Sleep.stage(b.sleeps)
	s.Slot.stage(b.slots)
}

func (b *Batch) noteNames(s *Step) {
	if n := s.Unnamed; n != nil {
		b.hostNames[n.Name], b.hostNameOf[LinkOf(n)] = nil, nil
	}
	if n := s.Named; n != nil {
		b.hostNames[n.Name], b.hostNameOf[LinkOf(n)] = n, n
	}
}

// last is the step that was staged last. What is recorded beside a lease is recorded with it.
func (b *Batch) last() *Step { return &b.steps[len(b.steps)-1] }

// Rename adds to the last step which host interface name is given with it, or ends.
func (b *Batch) Rename(given, ended *ipam.HostName) {
	s := b.last()
	s.Named, s.Unnamed = cmp.Or(given, s.Named), cmp.Or(ended, s.Unnamed)
	b.noteNames(s)
}

// SetSleep adds a sleep to the last step, which changed its lease.
func (b *Batch) SetSleep(sleep ipam.Sleep) {
	s := b.last()
	sleep.Rev = s.Change.Rev
	s.Sleep.Lease, s.Sleep.Row = sleep.LeaseID, &sleep
	s.Sleep.stage(b.sleeps)
}

// EndSleep has the last step, which changed its lease, end what is recorded of a sleep.
func (b *Batch) EndSleep(lease string) {
	if b.Sleep(lease) == nil {
		return
	}
	s := b.last()
	s.Sleep.Ended = lease
	s.Sleep.stage(b.sleeps)
}

// SetSlot adds a slot to the last step, which changed its lease.
func (b *Batch) SetSlot(slot ipam.Slot) {
	s := b.last()
	slot.Rev = s.Change.Rev
	s.Slot.Lease, s.Slot.Row = slot.LeaseID, &slot
	s.Slot.stage(b.slots)
}

// EndSlot has the last step, which changed its lease, end a slot.
func (b *Batch) EndSlot(lease string) {
	s := b.last()
	s.Slot.Ended = lease
	s.Slot.stage(b.slots)
}
