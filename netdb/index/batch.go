package index

import (
	"cmp"
	"slices"

	"github.com/ipamd/ipamd/ipam"
)

// A Step is one staged change of the book, and the record of it in the history. Most steps change a
// row; a step that has neither Old nor Now changes one of the other tables.
type Step struct {
	Old, Now *ipam.Lease  // the row before and after the change; nil: no row
	Change   *ipam.Change // the record

	Pool        *ipam.Pool // a pool that is made or changed or, with PoolRemoved, removed
	PoolRemoved bool
	PoolName    *ipam.PoolName // what is remembered of a pool's name from now on
	Withheld    *ipam.Withheld // withheld from now on or, with Now, until now

	TombstoneUID string // the sandbox uid that gets a tombstone; "": none
	Tombstone    Tombstone
	Runtime      string             // id of the container runtime that is noted; "": none
	Identity     *ipam.BookIdentity // whose the book is from now on

	HostNameGiven *ipam.HostName // with this change of a lease
	HostNameEnded *ipam.HostName // likewise
	Sleep         LeaseRow[ipam.Sleep]
	Slot          LeaseRow[ipam.Slot]
}

// A LeaseRow is what a step does to a table that has at most one row for each lease: sleeps, or slots.
// Such a row is recorded, and ended, together with a change of its lease.
type LeaseRow[T any] struct {
	EndedLeaseID string // the lease whose row ends, before Row is recorded; "": none
	LeaseID      string // that Row belongs to
	Row          *T     // recorded; nil: none
}

// end ends the row of a lease, also one that the step has recorded until then: it would be recorded
// behind the end.
func (b *LeaseRow[T]) end(lease string) {
	b.EndedLeaseID = lease
	if b.Row != nil && b.LeaseID == lease {
		b.LeaseID, b.Row = "", nil
	}
}

// stage makes the change in the staged rows, where nil is a row that has ended.
func (b *LeaseRow[T]) stage(staged map[string]*T) {
	if b.EndedLeaseID != "" {
		staged[b.EndedLeaseID] = nil
	}
	if b.Row != nil {
		staged[b.LeaseID] = b.Row
	}
}

// apply makes the change in the committed rows.
func (b *LeaseRow[T]) apply(rows map[string]*T) {
	if b.EndedLeaseID != "" {
		delete(rows, b.EndedLeaseID)
	}
	if b.Row != nil {
		rows[b.LeaseID] = b.Row
	}
}

// A Batch is the steps that are staged for a commit, and the view of the rows as the steps leave them.
type Batch struct {
	View
	index *Index
}

// batchKept is the largest number of steps of a batch whose maps are used again for the next one.
const batchKept = 1024

// Reset empties the batch, for the next commit on top of the index. It keeps the maps, unless the batch
// was large: new maps for each request would be a third of what a commit allocates.
func (b *Batch) Reset() {
	if len(b.steps) > batchKept {
		b.View = *newView()
	}
	b.committed, b.rev, b.runtime = b.index.tables, b.index.tables.rev, ""
	clear(b.steps)
	b.steps, b.prefixRows = b.steps[:0], b.prefixRows[:0]
	clear(b.rowByAddr)
	clear(b.rowByID)
	clear(b.openByOwner)
	clear(b.tombstoneByUID)
	clear(b.poolByUID)
	clear(b.poolNames)
	clear(b.withheldByAddr)
	clear(b.hostNameByName)
	clear(b.hostNameByInterface)
	clear(b.sleepByLeaseID)
	clear(b.slotByLeaseID)
}

// Rewind drops the steps of a request that has failed: all but the first n, which are those of
// earlier requests of the batch.
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

// Steps returns the staged steps, in order.
func (b *Batch) Steps() []Step { return b.steps }

// Stage adds a step.
func (b *Batch) Stage(s Step) {
	b.steps = append(b.steps, s)
	if s.Change != nil {
		b.rev = s.Change.Rev
	}
	if s.TombstoneUID != "" {
		b.tombstoneByUID[s.TombstoneUID] = s.Tombstone
	}
	if s.Runtime != "" {
		b.runtime = s.Runtime
	}
	switch {
	case s.PoolRemoved:
		b.poolByUID[s.Pool.UID] = nil
	case s.Pool != nil:
		b.poolByUID[s.Pool.UID] = s.Pool
	}
	if s.PoolName != nil {
		b.poolNames[PoolKeyOfName(s.PoolName)] = *s.PoolName
	}
	if w := s.Withheld; w != nil {
		if b.withheldByAddr[w.Addr] = nil; s.Now == nil {
			b.withheldByAddr[w.Addr] = w
		}
	}
	if old := s.Old; old != nil {
		b.rowByAddr[old.Addr] = nil
		b.rowByID[old.ID] = nil
		if old.State.Open() {
			b.openByOwner[old.Owner()] = nil
		}
	}
	if now := s.Now; now != nil {
		b.rowByAddr[now.Addr] = now
		if now.PrefixLen != 0 {
			b.prefixRows = append(b.prefixRows, now)
		}
		b.rowByID[now.ID] = now
		if now.State.Open() {
			b.openByOwner[now.Owner()] = now
		}
	}
	b.stageHostNames(&s)
	s.Sleep.stage(b.sleepByLeaseID)
	s.Slot.stage(b.slotByLeaseID)
}

func (b *Batch) stageHostNames(s *Step) {
	if n := s.HostNameEnded; n != nil {
		b.hostNameByName[n.Name], b.hostNameByInterface[InterfaceOf(n)] = nil, nil
	}
	if n := s.HostNameGiven; n != nil {
		b.hostNameByName[n.Name], b.hostNameByInterface[InterfaceOf(n)] = n, n
	}
}

// last is the step that was staged last: a change of a lease, for what is recorded together with one.
func (b *Batch) last() *Step { return &b.steps[len(b.steps)-1] }

// SetHostNames adds to the last step the host interface names that are given, and ended, with it. A nil
// leaves what the step has.
func (b *Batch) SetHostNames(given, ended *ipam.HostName) {
	s := b.last()
	s.HostNameGiven, s.HostNameEnded = cmp.Or(given, s.HostNameGiven), cmp.Or(ended, s.HostNameEnded)
	b.stageHostNames(s)
}

// SetSleep adds a sleep to the last step, which changed its lease.
func (b *Batch) SetSleep(sleep ipam.Sleep) {
	s := b.last()
	sleep.Rev = s.Change.Rev
	s.Sleep.LeaseID, s.Sleep.Row = sleep.LeaseID, &sleep
	s.Sleep.stage(b.sleepByLeaseID)
}

// EndSleep has the last step, which changed the lease, end its sleep; none is no error.
func (b *Batch) EndSleep(lease string) {
	if b.Sleep(lease) == nil {
		return
	}
	s := b.last()
	s.Sleep.end(lease)
	s.Sleep.stage(b.sleepByLeaseID)
}

// SetSlot adds a slot to the last step, which changed its lease.
func (b *Batch) SetSlot(slot ipam.Slot) {
	s := b.last()
	slot.Rev = s.Change.Rev
	s.Slot.LeaseID, s.Slot.Row = slot.LeaseID, &slot
	s.Slot.stage(b.slotByLeaseID)
}

// EndSlot has the last step, which changed the lease, end its slot.
func (b *Batch) EndSlot(lease string) {
	s := b.last()
	s.Slot.end(lease)
	s.Slot.stage(b.slotByLeaseID)
}
