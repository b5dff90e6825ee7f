package main

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
)

// M6: of a pool that names no MTU the ports have the bridge's, so a bridge that gets another makes
// the slots of before stale: those that are not asked for, too. A restart drains nothing.
func TestM6TheMTUOfTheBridge(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	w.warmHelper()
	w.keepSlots(0, &ipam.Warm{Size: 3, Strategy: ipam.SlotsOnReplenish})
	w.settled(3)
	w.ns.Exec("ip", "link", "set", "rt0", "mtu", "1400")
	if r := w.warmFor("of before"); !r.Slot.Stale || r.Networks[0].MTU != 1500 {
		t.Errorf("a slot of before may be given, and is said to be: %+v %+v", r.Slot, r.Networks)
	}
	w.settled(3)
	if got := fmt.Sprint(w.mtus()); got != "map[1400:1 1500:2]" {
		t.Errorf("after one was given: %s", got)
	}
	w.keepSlots(0, &ipam.Warm{Size: 3})
	// By the book first: a namespace that is being taken down cannot be looked into.
	all := func(mtu int) {
		t.Helper()
		realtest.Eventually(t, wait, fmt.Sprintf("all to be made with %d", mtu), func() bool {
			leases := w.ready()
			return len(leases) == 3 && !slices.ContainsFunc(leases, func(l *ipam.Lease) bool {
				made, err := w.program.book.Slot(l.ID).Plumbing()
				return err != nil || made.MTU != mtu
			})
		})
		w.settled(3)
		if got, want := fmt.Sprint(w.mtus()), fmt.Sprintf("map[%d:3]", mtu); got != want {
			t.Errorf("in the namespaces: %s, not %s", got, want)
		}
	}
	all(1400)
	w.ns.Exec("ip", "link", "set", "rt0", "mtu", "1300")
	if r := w.warmFor("of now"); r.Slot.Stale || r.Networks[0].MTU != 1300 {
		t.Errorf("of an MTU that the bridge does not have any more: %+v %+v", r.Slot, r.Networks)
	}
	all(1300)
	w.ns.Exec("ip", "link", "set", "rt0", "mtu", "1400")
	all(1400)
	ids := func(leases []*ipam.Lease) (out []string) {
		for _, l := range leases {
			out = append(out, l.ID)
		}
		slices.Sort(out)
		return out
	}
	before := ids(w.settled(3))
	w.stopDaemon()
	w.start()
	realtest.Eventually(t, wait, "the slots to be checked", func() bool { return w.program.warm.Checked() == 3 })
	if after := ids(w.settled(3)); !slices.Equal(before, after) {
		t.Errorf("a restart made slots anew: %v and %v", before, after)
	}
}
