package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
)

// M8: a slot that was changed by hand is never given, and the next is tried.
func TestM8AChangedSlotIsNeverGiven(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	w.warmHelper()
	var undo func()
	for what, change := range map[string]func(l *ipam.Lease){
		"its port is taken off the bridge": func(l *ipam.Lease) { w.ns.Exec("ip", "link", "set", l.HostInterface, "nomaster") },
		"its port is gone":                 func(l *ipam.Lease) { w.ns.Exec("ip", "link", "delete", l.HostInterface) },
		"its address is taken away":        func(l *ipam.Lease) { w.inside(l.Netns, "ip", "address", "flush", "dev", "eth0") },
		"its link is down":                 func(l *ipam.Lease) { w.inside(l.Netns, "ip", "link", "set", "eth0", "down") },
		"its MTU is another":               func(l *ipam.Lease) { w.inside(l.Netns, "ip", "link", "set", "eth0", "mtu", "1000") },
		"its routes are flushed":           func(l *ipam.Lease) { w.inside(l.Netns, "ip", "route", "flush", "table", "main") },
		"it has another address too":       func(l *ipam.Lease) { w.inside(l.Netns, "ip", "address", "add", "10.8.64.77/24", "dev", "eth0") },
		"a pool's address is on its lo":    func(l *ipam.Lease) { w.inside(l.Netns, "ip", "address", "add", "10.8.64.77/32", "dev", "lo") },
		"another address is on its lo":     func(l *ipam.Lease) { w.inside(l.Netns, "ip", "address", "add", "192.0.2.7/32", "dev", "lo") },
		"it has an address of no pool too": func(l *ipam.Lease) { w.inside(l.Netns, "ip", "address", "add", "192.0.2.7/32", "dev", "eth0") },
		"its lo is down":                   func(l *ipam.Lease) { w.inside(l.Netns, "ip", "link", "set", "lo", "down") },
		"its link asks by no ARP":          func(l *ipam.Lease) { w.inside(l.Netns, "ip", "link", "set", "eth0", "arp", "off") },
		"it has another link that is up":   func(l *ipam.Lease) { w.inside(l.Netns, "ip", "link", "add", "more", "up", "type", "bridge") },
		"it has a blackhole":               func(l *ipam.Lease) { w.inside(l.Netns, "ip", "route", "add", "blackhole", "10.10.0.0/16") },
		"its default route is a blackhole": func(l *ipam.Lease) { w.inside(l.Netns, "ip", "route", "replace", "blackhole", "default") },
		"it has another route":             func(l *ipam.Lease) { w.inside(l.Netns, "ip", "route", "add", "10.10.0.0/16", "via", "10.8.64.9") },
		"it has a rule":                    func(l *ipam.Lease) { w.inside(l.Netns, "ip", "rule", "add", "from", l.Addr.String(), "blackhole") },
		"its port is down":                 func(l *ipam.Lease) { w.ns.Exec("ip", "link", "set", l.HostInterface, "down") },
		"its MAC is another": func(l *ipam.Lease) {
			w.inside(l.Netns, "ip", "link", "set", "eth0", "address", "02:00:00:00:be:ef")
		},
		"another namespace is at its path": func(l *ipam.Lease) {
			held, err := os.Open(l.Netns) // what is mounted there lives on
			if err != nil {
				t.Fatal(err)
			}
			undo = func() { held.Close() }
			if err := errors.Join(unix.Unmount(l.Netns, unix.MNT_DETACH), unix.Mount(w.ns.Path(), l.Netns, "", unix.MS_BIND, "")); err != nil {
				t.Fatal(err)
			}
		},
		"another has its address": func(l *ipam.Lease) { undo = w.ns.Port("rt0", netip.PrefixFrom(l.Addr, 24).String()).Close },
	} {
		w.keepSlots(1400, &ipam.Warm{Size: 2, Max: 8})
		made := w.settled(2)
		bad := made[0]
		undo = func() {}
		change(bad)
		var given []*api.AllocateReply
		tried := func() bool { s := w.program.book.Slot(bad.ID); return s == nil || s.Broken != "" }
		for n := 0; n < 50 && !tried(); n++ { // any of them is tried first
			r := w.warmFor(fmt.Sprint(strings.ReplaceAll(what, " ", "-"), n))
			if r.Slot.Netns == bad.Netns || r.Leases[0].Address == bad.Addr.String() {
				t.Errorf("%s, and it was given: %+v", what, r.Slot)
			}
			given = append(given, r)
		}
		if !tried() {
			t.Errorf("%s, and it may be given still: %+v", what, w.program.book.Slot(bad.ID))
		}
		undo()
		for _, r := range given {
			w.releaseOf(r)
		}
		w.keepSlots(1400, nil)
		realtest.Eventually(t, wait, "no slot to be left", func() bool { return len(w.program.book.Slots()) == 0 })
	}
}
