package warm

import (
	"maps"
	"slices"

	"github.com/ipamd/ipamd/ipam"
)

// A View is all that a plan is made from. The namespaces are read first and the book after
// them, so that a slot which is begun in between is known.
type View struct {
	Pools      []ipam.Usage
	Leases     []*ipam.Lease         // of slots, of sandboxes in namespaces of slots, and of their releases
	Slots      map[string]*ipam.Slot // by lease
	Profile    func(bridge string) ipam.Profile
	Busy       map[string]bool // namespaces that work is under way on
	BackingOff map[string]bool // uids of pools for which no slot is made now: the last one failed, or Vacate waits
	Unplug     map[string]bool // sandboxes' leases whose release waits for nothing but the port
	Withheld   map[string]bool // namespaces of leases whose pool was removed by force: their sandboxes may live
	Portless   map[string]bool // leases of slots whose port is on no bridge
	Spaces     []string        // namespaces that are there and named as slots of this runner are; nil: could not be listed
	NoHelper   bool            // no helper is there to make or take down namespaces
	Boot       string          // of the machine: inodes that leases record are of one boot
}

// A Verb is what is to be done.
type Verb string

const (
	Make     Verb = "make"      // reserve one more slot of a pool, and make it
	Finish   Verb = "finish"    // make what a lease is reserved for, or what was begun of it
	End      Verb = "end"       // release the lease of a slot that is not claimed
	TakeDown Verb = "take_down" // remove a namespace, with the port in it
)

// An Action is one step.
type Action struct {
	Verb  Verb
	Pool  *ipam.Pool  // of Make
	Lease *ipam.Lease // of Finish and End; of TakeDown where a lease has the namespace
	Netns string      // of all but Make. While work is under way on it nothing else is done: its address would be free before its port is made
	Why   string      // of End, for a person
}

// Plan says what is to be done now. It is asked again after each change.
func Plan(v View) (out []Action) {
	for _, u := range v.Pools {
		out = append(out, v.pool(u)...)
	}
	known := make(map[string]bool) // namespaces that are not taken down as unknown
	maps.Copy(known, v.Withheld)
	for _, l := range v.Leases {
		slot := v.Slots[l.ID]
		if slot != nil {
			known[slot.Netns] = true
		}
		if l.Netns != "" && l.State != ipam.Cooling {
			known[l.Netns] = true // it may be in use, whichever lease records it
		}
		if slot != nil && l.State == ipam.Releasing && (!slot.Claimed || v.Unplug[l.ID]) {
			out = append(out, Action{Verb: TakeDown, Lease: l, Netns: slot.Netns})
		}
		// A book that was rebuilt has the leases of slots, and not what they were made by; nor has one in which a
		// release was forced, and a slot's lease is quarantined for as long as its port is there.
		over := l.State == ipam.Releasing || l.State == ipam.Quarantined && l.Reason == ipam.Forced && l.Hold == "" && ipam.IsSlotUID(l.UID)
		if slot == nil && over && (ipam.IsSlotUID(l.UID) || v.Unplug[l.ID]) && slices.Contains(v.Spaces, l.Netns) {
			out = append(out, Action{Verb: TakeDown, Lease: l, Netns: l.Netns})
		}
		if slot == nil && ipam.IsSlotUID(l.UID) && l.State.Open() {
			out = append(out, Action{Verb: End, Lease: l, Why: "the book has lost by what it was made"})
		}
	}
	for _, path := range v.Spaces {
		if !known[path] {
			out = append(out, Action{Verb: TakeDown, Netns: path})
		}
	}
	// A sandbox with two families, or two interfaces, has two leases in one namespace: while either is open, it
	// lives there. The other may name the namespace by another path.
	lives := make(map[string]bool)
	for _, l := range v.Leases {
		if l.State.Open() && !ipam.IsSlotUID(l.UID) && l.Netns != "" {
			lives[l.Netns] = true
		}
	}
	out = slices.DeleteFunc(out, func(a Action) bool { return a.Verb == TakeDown && (lives[a.Netns] || v.shared(a.Lease)) })
	return slices.DeleteFunc(out, func(a Action) bool {
		return v.Busy[a.Netns] && a.Netns != "" || v.NoHelper && a.Verb != End
	})
}

// shared reports whether another open lease is in the namespace of a slot's, by whichever path. One that was found
// there before the slot had its lease was in an older namespace, whose inode is used again.
func (v View) shared(slot *ipam.Lease) bool {
	if slot == nil || v.inode(slot) == 0 {
		return false
	}
	return slices.ContainsFunc(v.Leases, func(l *ipam.Lease) bool {
		older := l.Plug.At != 0 && ipam.SameBoot(slot.Created.BootID, v.Boot) && l.Plug.At < slot.Created.Boottime
		return l.State.Open() && !ipam.IsSlotUID(l.UID) && v.inode(l) == v.inode(slot) && !older
	})
}

// inode is that of a lease's namespace, 0 where none of this boot is recorded.
func (v View) inode(l *ipam.Lease) uint64 {
	if !l.Plug.OfBoot(v.Boot) {
		return 0
	}
	return l.Plug.Inode
}

// pool plans for the slots of one pool that are not claimed.
func (v View) pool(u ipam.Usage) (out []Action) {
	p := u.Pool
	isStale := p.Staleness(v.Profile(p.Bridge))
	// making are reserved and not made yet, ready may be given, all counts those that end too.
	var making, ready []*ipam.Lease
	all := 0
	for _, l := range v.Leases {
		slot := v.Slots[l.ID]
		if slot == nil || slot.Claimed || l.PoolUID != p.UID {
			continue
		}
		all++
		why := unfit(&p, slot, l, isStale)
		if why == "" && v.Portless[l.ID] {
			why = noPort
		}
		switch {
		case l.State == ipam.Releasing:
		case why != "":
			out = append(out, Action{Verb: End, Lease: l, Netns: slot.Netns, Why: why})
		case l.State == ipam.Reserved:
			making = append(making, l)
		default:
			ready = append(ready, l)
		}
	}
	if p.Warm == nil {
		return out
	}
	want := wanted(&p, u.Free, uint64(len(making)+len(ready)))
	for extra := len(making) + len(ready) - want; extra > 0; extra-- {
		last := &making // what is not ready yet is ended first
		if len(making) == 0 {
			last = &ready
		}
		n := len(*last) - 1
		out = append(out, Action{Verb: End, Lease: (*last)[n], Netns: v.Slots[(*last)[n].ID].Netns, Why: "the pool has fewer addresses left, or is to have fewer slots"})
		*last = (*last)[:n]
	}
	for _, l := range making {
		out = append(out, Action{Verb: Finish, Lease: l, Netns: v.Slots[l.ID].Netns})
	}
	if v.BackingOff[p.UID] {
		return out
	}
	for range min(want-len(making)-len(ready), p.Warm.Most()-all) {
		out = append(out, Action{Verb: Make, Pool: &p})
	}
	return out
}

// wanted is how many slots a pool is to have. They take at most half of the addresses that no
// sandbox has, so that slots give their addresses up before a sandbox is refused.
func wanted(p *ipam.Pool, free, slots uint64) int {
	if p.State == ipam.PoolDraining {
		return 0
	}
	half := (free + slots) / 2
	if free+slots < free {
		half = free / 2 // more than can be counted
	}
	return int(min(uint64(p.Warm.Size), half))
}

// unfit says why a slot that is not claimed is not to be given any more; "" when it may be.
// That its spec cannot be read is no reason.
func unfit(p *ipam.Pool, slot *ipam.Slot, l *ipam.Lease, isStale func(*ipam.Slot, string) (bool, error)) string {
	stale, err := isStale(slot, l.Interface)
	switch {
	case p.Warm == nil:
		return "its pool has no slots any more"
	case p.State == ipam.PoolDraining:
		return "its pool drains"
	case slot.Broken != "":
		return slot.Broken
	case l.Conflict != nil:
		return "its address is seen under another"
	case l.State != ipam.Reserved && !slot.Ready(l):
		return "its lease is not as it was made"
	case slices.ContainsFunc(p.Kept, func(k ipam.Kept) bool { return l.Covers(k.Address) }):
		return "the pool keeps its address for a sandbox"
	case p.Outside(l) != "":
		return "its address is none that its pool gives"
	case elsewhere(p, slot):
		return "its pool is on another bridge"
	case err == nil && stale && p.Warm.Strategy != ipam.SlotsOnReplenish:
		return "it was made by another spec than the pool's"
	}
	return ""
}

// elsewhere says that a slot is on another bridge than its pool.
func elsewhere(p *ipam.Pool, slot *ipam.Slot) bool {
	if p.Warm.Fresh() {
		return false // that is another spec, and is said so
	}
	made, err := slot.Plumbing()
	return err == nil && made.Bridge != p.Bridge
}
