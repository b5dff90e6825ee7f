package warm

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/ipamd/ipamd/ipam"
)

func pool(w *ipam.Warm) ipam.Pool {
	return ipam.Pool{UID: "p", State: ipam.PoolActive, PoolSpec: ipam.PoolSpec{Name: "default", Prefix: netip.MustParsePrefix("10.8.64.0/24"), Bridge: "rt0", Warm: w}}
}

// A world is a view that a test edits.
type world struct {
	View
	last int
}

func newWorld(p ipam.Pool, free uint64) *world {
	return &world{View: View{Profile: func(string) ipam.Profile { return ipam.Profile{} }, Pools: []ipam.Usage{{Pool: p, Free: free}}, Slots: make(map[string]*ipam.Slot), Busy: make(map[string]bool), Unplug: make(map[string]bool)}}
}

// slot adds one; a bound one is ready.
func (w *world) slot(state ipam.State) *ipam.Lease {
	w.last++
	id := fmt.Sprint(w.last)
	p := w.Pools[0].Pool
	l := &ipam.Lease{ID: id, UID: ipam.SlotUID(id), PoolUID: p.UID, State: state, Interface: "eth0", Addr: netip.AddrFrom4([4]byte{10, 8, 64, byte(2 + w.last%200)})}
	if state != ipam.Reserved {
		l.HostInterface, l.Netns = "sb"+id, "/run/netns/"+id
	}
	w.Leases = append(w.Leases, l)
	w.Slots[id] = &ipam.Slot{LeaseID: id, ID: id, Netns: "/run/netns/" + id, SpecHash: p.Plumbing("eth0", w.Profile(p.Bridge)).Hash()}
	return l
}

func count(all []Action, v Verb) (n int) {
	for _, a := range all {
		if a.Verb == v {
			n++
		}
	}
	return n
}

func TestPlan(t *testing.T) {
	two := &ipam.Warm{Size: 2, Max: 3}
	for name, row := range map[string]struct {
		warm                        *ipam.Warm
		free                        uint64
		edit                        func(*world)
		make, finish, end, takeDown int
	}{
		"none is there":             {two, 100, func(*world) {}, 2, 0, 0, 0},
		"one is outside":            {&ipam.Warm{Size: 1, Strategy: ipam.SlotsOnReplenish}, 100, func(w *world) { w.slot(ipam.Bound).Addr = netip.MustParseAddr("10.9.0.2") }, 0, 0, 1, 0},
		"all are there":             {two, 100, func(w *world) { w.slot(ipam.Bound); w.slot(ipam.Bound) }, 0, 0, 0, 0},
		"one is being made":         {two, 100, func(w *world) { w.Busy[w.Slots[w.slot(ipam.Reserved).ID].Netns] = true }, 1, 0, 0, 0},
		"one was being made":        {two, 100, func(w *world) { w.slot(ipam.Reserved) }, 1, 1, 0, 0},
		"two on their way out":      {two, 100, func(w *world) { w.slot(ipam.Releasing); w.slot(ipam.Releasing) }, 1, 0, 0, 2},
		"one was claimed":           {two, 100, func(w *world) { l := w.slot(ipam.Bound); l.UID, w.Slots[l.ID].Claimed = "a", true }, 2, 0, 0, 0},
		"a claimed one is released": {two, 100, func(w *world) { l := w.slot(ipam.Releasing); l.UID, w.Slots[l.ID].Claimed = "a", true }, 2, 0, 0, 0},
		"of a claimed one the port stands": {two, 100, func(w *world) {
			l := w.slot(ipam.Releasing)
			l.UID, w.Slots[l.ID].Claimed, w.Unplug[l.ID] = "a", true, true
		}, 2, 0, 0, 1},
		"a stale one": {two, 100, func(w *world) { w.Slots[w.slot(ipam.Bound).ID].SpecHash = "sha256:0" }, 2, 0, 1, 0},
		"a stale one that is worked on": {two, 100, func(w *world) {
			l := w.slot(ipam.Reserved)
			w.Slots[l.ID].SpecHash, w.Busy[w.Slots[l.ID].Netns] = "sha256:0", true
		}, 2, 0, 0, 0},
		"a stale one may be given": {&ipam.Warm{Size: 2, Strategy: ipam.SlotsOnReplenish}, 100, func(w *world) { w.Slots[w.slot(ipam.Bound).ID].SpecHash = "sha256:0" }, 1, 0, 0, 0},
		"it is not known":          {two, 100, func(w *world) { w.Slots[w.slot(ipam.Bound).ID].SpecHash = "later:0" }, 1, 0, 0, 0},
		"a broken one":             {two, 100, func(w *world) { w.slot(ipam.Bound).Netns = "/elsewhere" }, 2, 0, 1, 0},
		"a conflict":               {two, 100, func(w *world) { w.slot(ipam.Bound).Conflict = []byte(`[]`) }, 2, 0, 1, 0},
		"too many":                 {two, 100, func(w *world) { w.slot(ipam.Bound); w.slot(ipam.Bound); w.slot(ipam.Bound) }, 0, 0, 1, 0},
		"few addresses":            {two, 1, func(w *world) { w.slot(ipam.Bound); w.slot(ipam.Bound) }, 0, 0, 1, 0},
		"no address but a slot's":  {two, 0, func(w *world) { w.slot(ipam.Bound) }, 0, 0, 1, 0},
		"one address":              {two, 1, func(*world) {}, 0, 0, 0, 0},
		"no slots any more":        {nil, 100, func(w *world) { w.slot(ipam.Bound); w.slot(ipam.Releasing) }, 0, 0, 1, 1},
		"the pool drains":          {two, 100, func(w *world) { w.slot(ipam.Bound); w.Pools[0].Pool.State = ipam.PoolDraining }, 0, 0, 1, 0},
		"one could not be made":    {two, 100, func(w *world) { w.slot(ipam.Reserved); w.BackingOff = map[string]bool{"p": true} }, 0, 1, 0, 0},
		"no helper":                {two, 100, func(w *world) { w.slot(ipam.Reserved); w.slot(ipam.Releasing); w.NoHelper = true }, 0, 0, 0, 0},
		"a namespace of no lease":  {two, 100, func(w *world) { w.Spaces = []string{"/run/netns/9"} }, 2, 0, 0, 1},
		"a namespace of a sandbox that the book found again": {two, 100, func(w *world) {
			w.Leases = append(w.Leases, &ipam.Lease{ID: "x", UID: "a", State: ipam.Bound, Netns: "/run/netns/9"})
			w.Spaces = []string{"/run/netns/9"}
		}, 2, 0, 0, 0},
		"a slot without its record on its way out": {two, 100, func(w *world) {
			l := w.slot(ipam.Releasing)
			delete(w.Slots, l.ID)
			w.Spaces = []string{l.Netns}
		}, 2, 0, 0, 1},
		"a slot whose release was forced": {two, 100, func(w *world) {
			l := w.slot(ipam.Quarantined)
			delete(w.Slots, l.ID)
			l.Reason, w.Spaces = ipam.Forced, []string{l.Netns}
		}, 2, 0, 0, 1},
		"a slot of a former book, which may have been a sandbox's since": {two, 100, func(w *world) {
			l := w.slot(ipam.Quarantined)
			delete(w.Slots, l.ID)
			l.Reason, w.Spaces = ipam.Rebuilt, []string{l.Netns}
		}, 2, 0, 0, 0},
		"a sandbox's lease in a slot, whose release was forced": {two, 100, func(w *world) {
			l := w.slot(ipam.Quarantined)
			delete(w.Slots, l.ID)
			l.UID, l.Reason, w.Spaces = "a", ipam.Forced, []string{l.Netns}
		}, 2, 0, 0, 0},
		"a claimed one without its record, released": {two, 100, func(w *world) {
			l := w.slot(ipam.Releasing)
			delete(w.Slots, l.ID)
			l.UID, w.Unplug[l.ID], w.Spaces = "a", true, []string{l.Netns}
		}, 2, 0, 0, 1},
		"the same, with containers": {two, 100, func(w *world) {
			l := w.slot(ipam.Releasing)
			delete(w.Slots, l.ID)
			l.UID, w.Spaces = "a", []string{l.Netns}
		}, 2, 0, 0, 0},
		"a released one, by another path another lease's": {two, 100, func(w *world) {
			l := w.slot(ipam.Releasing)
			l.UID, w.Slots[l.ID].Claimed, w.Unplug[l.ID] = "a", true, true
			l.Plug = ipam.Plug{Inode: 9, Boot: "b"}
			w.Boot = "b"
			w.Leases = append(w.Leases, &ipam.Lease{ID: "x", UID: "a", State: ipam.Bound, Netns: "/proc/9/ns/net", Plug: ipam.Plug{Inode: 9, Boot: "b"}})
		}, 2, 0, 0, 0},
		"a released one, whose inode was that of a namespace before": {two, 100, func(w *world) {
			l := w.slot(ipam.Releasing)
			l.UID, w.Slots[l.ID].Claimed, w.Unplug[l.ID] = "a", true, true
			l.Plug, l.Created = ipam.Plug{Inode: 9, Boot: "b"}, ipam.Stamp{BootID: "b", Boottime: time.Hour}
			w.Boot = "b"
			w.Leases = append(w.Leases, &ipam.Lease{ID: "x", UID: "b", State: ipam.Paused, Netns: "/run/netns/8", Plug: ipam.Plug{Inode: 9, Boot: "b", At: time.Minute}})
		}, 2, 0, 0, 1},
		"a released one, whose inode was another's in another boot": {two, 100, func(w *world) {
			l := w.slot(ipam.Releasing)
			l.UID, w.Slots[l.ID].Claimed, w.Unplug[l.ID] = "a", true, true
			l.Plug = ipam.Plug{Inode: 9, Boot: "b"}
			w.Boot = "b"
			w.Leases = append(w.Leases, &ipam.Lease{ID: "x", UID: "a", State: ipam.Bound, Netns: "/proc/9/ns/net", Plug: ipam.Plug{Inode: 9, Boot: "a"}})
		}, 2, 0, 0, 1},
		"a released lease in a namespace of another program": {two, 100, func(w *world) {
			w.Leases = append(w.Leases, &ipam.Lease{ID: "x", UID: "a", State: ipam.Releasing, Netns: "/run/netns/9"})
			w.Unplug["x"] = true
		}, 2, 0, 0, 0},
		"a slot without its record": {two, 100, func(w *world) { delete(w.Slots, w.slot(ipam.Bound).ID) }, 2, 0, 1, 0},
	} {
		w := newWorld(pool(row.warm), row.free)
		row.edit(w)
		got := Plan(w.View)
		for v, want := range map[Verb]int{Make: row.make, Finish: row.finish, End: row.end, TakeDown: row.takeDown} {
			if n := count(got, v); n != want {
				t.Errorf("%s: %d to %s, not %d: %+v", name, n, v, want, got)
			}
		}
	}
}

// Whatever happens in whatever order: there are never more slots than the bound, no claimed
// one is ended, sandboxes get every address, and at rest the slots are as they should be.
func TestPlansAtRandom(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for range 300 {
		size := r.IntN(6)
		free := uint64(r.IntN(20))
		total := free
		w := newWorld(pool(&ipam.Warm{Size: size, Max: size + r.IntN(3)}), free)
		most := w.Pools[0].Pool.Warm.Most()
		drop := func(l *ipam.Lease) {
			for i, o := range w.Leases {
				if o == l {
					w.Leases = append(w.Leases[:i], w.Leases[i+1:]...)
				}
			}
			delete(w.Slots, l.ID)
		}
		apply := func(a Action) {
			switch a.Verb {
			case Make:
				if w.Pools[0].Free == 0 {
					return
				}
				w.Pools[0].Free--
				w.slot(ipam.Reserved)
			case Finish:
				a.Lease.State, a.Lease.HostInterface, a.Lease.Netns = ipam.Bound, "sb", a.Netns
			case End:
				if w.Slots[a.Lease.ID].Claimed {
					t.Fatalf("a sandbox's is ended: %+v", a)
				}
				a.Lease.State = ipam.Releasing
			case TakeDown:
				drop(a.Lease)
				w.Pools[0].Free++
			}
			if len(w.Leases) > most {
				n := 0
				for _, s := range w.Slots {
					if !s.Claimed {
						n++
					}
				}
				if n > most {
					t.Fatalf("%d slots, of %d at most", n, most)
				}
			}
		}
		for range 60 {
			if r.IntN(3) == 0 { // a sandbox comes, to a slot or without
				if w.Pools[0].Free > 0 && r.IntN(2) == 0 {
					w.Pools[0].Free--
					total--
				} else {
					for _, l := range w.Leases {
						if s := w.Slots[l.ID]; s.Ready(l) {
							l.UID, s.Claimed = "a", true
							total--
							break
						}
					}
				}
			}
			todo := Plan(w.View)
			for _, a := range todo[:r.IntN(len(todo)+1)] {
				apply(a)
			}
		}
		for range 100 {
			for _, a := range Plan(w.View) {
				apply(a)
			}
		}
		n := uint64(0)
		for _, l := range w.Leases {
			if w.Slots[l.ID].Ready(l) {
				n++
			}
		}
		if want := min(uint64(size), total/2); n != want || w.Pools[0].Free+n != total {
			t.Fatalf("size %d, %d addresses without a sandbox: %d slots, not %d, and %d free", size, total, n, want, w.Pools[0].Free)
		}
	}
}
