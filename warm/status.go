package warm

import (
	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/ipam"
)

// A Status counts the slots of a pool that no sandbox has.
type Status struct {
	Ready  int
	Making int
	Ending int
	Wanted int    // how many are to be ready: the size, or fewer where sandboxes may need the addresses
	Why    string // why fewer than the size are ready, where that is not just being made good; else ""
}

// Status counts the slots of a pool.
func (k *Keeper) Status(u ipam.Usage) (s Status) {
	for l, slot := range k.unclaimed(u.Pool.UID) {
		switch {
		case l.State == ipam.Releasing:
			s.Ending++
		case l.State == ipam.Reserved:
			s.Making++
		case slot.Ready(l):
			s.Ready++
		default:
			s.Ending++
		}
	}
	if u.Pool.Warm == nil {
		return s
	}
	s.Wanted = wanted(&u.Pool, u.Free, uint64(s.Ready+s.Making))
	k.mu.Lock()
	var r *backoff
	if now := k.backoffs[u.Pool.UID]; now != nil {
		then := *now
		r = &then
	}
	k.mu.Unlock()
	switch {
	case s.Ready >= u.Pool.Warm.Size:
	case !k.cfg.Helper.Present():
		s.Why = k.cfg.NoHelper.Error()
	case r != nil:
		s.Why = "the last one could not be made: " + r.why
	case u.Pool.State == ipam.PoolDraining:
		s.Why = "the pool drains"
	case s.Wanted < u.Pool.Warm.Size:
		s.Why = "the pool has few addresses left, and sandboxes go first"
	}
	return s
}

// Shown is a pool's Status as the socket shows it; nil where there are no slots, and shall be none.
func (k *Keeper) Shown(u ipam.Usage) *api.PoolSlots {
	s := k.Status(u)
	if u.Pool.Warm == nil && s == (Status{}) {
		return nil
	}
	return &api.PoolSlots{Ready: s.Ready, Making: s.Making, Ending: s.Ending, Wanted: s.Wanted, Why: s.Why}
}

// Helped says whether a helper asks for work.
func (k *Keeper) Helped() bool { return k.cfg.Helper.Present() }

// Checked counts the slots that this Keeper had made, or has compared with their specs.
func (k *Keeper) Checked() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.checked)
}

// unclaimed yields the slots of a pool that no sandbox has, with their leases.
func (k *Keeper) unclaimed(pool string) func(func(*ipam.Lease, *ipam.Slot) bool) {
	return func(yield func(*ipam.Lease, *ipam.Slot) bool) {
		for _, slot := range k.cfg.Book.Slots() {
			if slot.Claimed {
				continue
			}
			l, err := k.cfg.Book.Lease(slot.LeaseID)
			if err == nil && l.PoolUID == pool && !yield(l, slot) {
				return
			}
		}
	}
}

// Ended returns a function that counts how many of a pool's present unclaimed slots would end once
// the pool is as after describes it: made by another spec, or more than its size. after is nil
// where the pool is removed. A preview shows the count.
func (k *Keeper) Ended() func(pool string, after *ipam.Pool) int {
	type one struct {
		lease *ipam.Lease
		slot  *ipam.Slot
	}
	slots := make(map[string][]one)
	for _, s := range k.cfg.Book.Slots() {
		if l, err := k.cfg.Book.Lease(s.LeaseID); err == nil && !s.Claimed && l.State != ipam.Releasing {
			slots[l.PoolUID] = append(slots[l.PoolUID], one{l, s})
		}
	}
	return func(pool string, after *ipam.Pool) int {
		all := slots[pool]
		if after == nil || after.Warm == nil {
			return len(all)
		}
		ended, isStale := 0, after.Staleness(k.cfg.Profile(after.Bridge))
		for _, o := range all {
			if unfit(after, o.slot, o.lease, isStale) != "" {
				ended++
			}
		}
		return ended + max(0, len(all)-ended-after.Warm.Size)
	}
}
