package main

import (
	"slices"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
)

// M12: slots whose ports went with their bridge are not shown as ready once the bridge is there
// again, and others are made: no claim finds them first.
func TestM12SlotsOfABridgeThatIsMadeAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	w.warmHelper()
	w.keepSlots(0, &ipam.Warm{Size: 3, Max: 8})
	before := w.settled(3)
	given := w.claim("a")
	before = slices.DeleteFunc(before, func(l *ipam.Lease) bool { return l.Netns == given.Netns })
	w.settled(3)

	// Alone, a port that has left its bridge is found as well; the others stay.
	w.ns.Exec("ip", "link", "set", before[0].HostInterface, "nomaster")
	realtest.Eventually(t, wait, "the slot whose port is on no bridge to be ended", func() bool { return w.noPort(before[0]) })
	realtest.Eventually(t, wait, "another to be made", func() bool { return len(w.ready()) == 3 })
	if now := w.program.book.Slot(before[1].ID); now == nil || now.Broken != "" {
		t.Errorf("a slot whose port is on its bridge: %+v", now)
	}

	before = w.settled(3)
	index, next := w.linkIndex(before[0].HostInterface), nstest.New(t)
	for range index - 3 { // what is made next in there has that index
		next.Exec("ip", "link", "add", "type", "bridge")
	}
	w.ns.Exec("ip", "link", "delete", before[0].HostInterface)
	if w.asCNI(next, "vethN"); w.linkIndex("vethN") != index {
		t.Fatalf("the next link has index %d, and the slot's had %d", w.linkIndex("vethN"), index)
	}
	realtest.Eventually(t, wait, "the slot whose link has ended, and its index another, to be ended", func() bool { return w.noPort(before[0]) })
	realtest.Eventually(t, wait, "another to be made", func() bool { return len(w.ready()) == 3 })

	before = w.settled(3)
	w.ns.Exec("ip", "link", "delete", "rt0")
	w.ns.Bridge("rt0", "10.8.64.1/24", "fd08::1/64")
	realtest.Eventually(t, wait, "the slots of the bridge that went to be ended", func() bool {
		return !slices.ContainsFunc(before, func(l *ipam.Lease) bool { return !w.noPort(l) })
	})
	realtest.Eventually(t, wait, "others to be made", func() bool { return len(w.ready()) == 3 })
	w.warmFor("b")
	if now, err := w.program.book.Lease(given.ID); err != nil || now.State != ipam.Bound {
		t.Errorf("the lease of a sandbox: %+v, %v", now, err)
	}
}

// noPort says that a slot was found to have no port, or has ended by now.
func (w *world) noPort(l *ipam.Lease) bool {
	s := w.program.book.Slot(l.ID)
	return s == nil || s.Broken == "its port is on no bridge"
}

// M12: while the bridge is missing it is not known what its ports are, and no slot is ended for it.
func TestM12SlotsOfABridgeThatIsMissing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	w.warmHelper()
	w.keepSlots(0, &ipam.Warm{Size: 2, Max: 4})
	before := w.settled(2)
	w.ns.Exec("ip", "link", "set", "rt0", "down")
	w.ns.Exec("ip", "link", "set", "rt0", "name", "rt1")
	time.Sleep(3 * time.Second) // several looks
	for _, l := range before {
		if s := w.program.book.Slot(l.ID); s == nil || s.Broken != "" {
			t.Errorf("ended: %+v", s)
		}
	}
	w.ns.Exec("ip", "link", "set", "rt1", "name", "rt0")
	w.ns.Exec("ip", "link", "set", "rt0", "up")
	time.Sleep(3 * time.Second)
	for _, l := range before {
		if s := w.program.book.Slot(l.ID); s == nil || s.Broken != "" {
			t.Errorf("ended as the bridge came back: %+v", s)
		}
	}
}
