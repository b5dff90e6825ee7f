package bridge

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// TestOwnIsShownAsItChanges: the bridge's addresses, its MAC, and whether it learns from frames to group
// addresses, are shown with the ports, and their change is news.
func TestOwnIsShownAsItChanges(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	b := open(t, ns)
	changes := func(what string, how func(), is func(census.Bridge) bool) {
		t.Helper()
		news := b.Changed()
		how()
		// The kernel reports an address of IPv6 a moment after it was added.
		realtest.Eventually(t, wait, what, func() bool { b.settle(); return is(b.Own()) })
		select {
		case <-news:
		default:
			t.Errorf("%s: no news", what)
		}
	}
	has := func(addr string) func(census.Bridge) bool {
		return func(o census.Bridge) bool { return slices.Contains(o.Addrs, netip.MustParseAddr(addr)) }
	}
	if own := b.Own(); !own.LearnsGroups || !has("10.8.0.1")(own) {
		t.Errorf("at first: %+v", own)
	}
	changes("fe80::1", func() { ns.Exec("ip", "addr", "add", "fe80::1/64", "dev", "rt0", "nodad") }, has("fe80::1"))
	changes("it goes", func() { ns.Exec("ip", "addr", "del", "fe80::1/64", "dev", "rt0") }, func(o census.Bridge) bool { return !has("fe80::1")(o) })
	changes("another MAC", func() { ns.Exec("ip", "link", "set", "rt0", "address", "02:42:00:00:00:02") }, func(o census.Bridge) bool { return o.MAC == "02:42:00:00:00:02" })
	changes("learn nothing", func() {
		if err := b.LearnNoGroups(context.Background(), b.Own().Index); err != nil {
			t.Fatal(err)
		}
	}, func(o census.Bridge) bool { return !o.LearnsGroups })
	changes("another program", func() { ns.Exec("ip", "link", "set", "rt0", "type", "bridge", "no_linklocal_learn", "0") }, func(o census.Bridge) bool { return o.LearnsGroups })
	changes("the bridge goes", func() { ns.Exec("ip", "link", "del", "rt0") }, func(o census.Bridge) bool { return o.Index == 0 && len(o.Addrs) == 0 })
}

// TestUnlearn: what was learned at a port is forgotten, and what a person set there is not.
func TestUnlearn(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	b := open(t, ns)
	p := ns.Port("rt0")
	other := ns.Port("rt0")
	b.settle()
	const learned, elsewhere, set = "02:00:00:00:0a:01", "02:00:00:00:0a:02", "02:00:00:00:0a:03"
	ns.Exec("bridge", "fdb", "add", learned, "dev", p.HostName, "master", "dynamic")
	ns.Exec("bridge", "fdb", "add", elsewhere, "dev", other.HostName, "master", "dynamic")
	ns.Exec("bridge", "fdb", "add", set, "dev", p.HostName, "master", "static")
	index := b.PortLinks()[p.HostName].Index
	if err := b.Unlearn(context.Background(), index); err != nil {
		t.Fatal(err)
	}
	for mac, stays := range map[string]bool{learned: false, elsewhere: true, set: true} {
		if at := ns.Exec("bridge", "fdb", "show", "br", "rt0"); strings.Contains(at, mac) != stays {
			t.Errorf("%s is there: %t\n%s", mac, !stays, at)
		}
	}
	ns.Exec("ip", "link", "set", p.HostName, "nomaster")
	if err := b.Unlearn(context.Background(), index); err != nil {
		t.Errorf("no port any more: %v", err)
	}
	if err := b.Unlearn(context.Background(), 1<<20); err != nil {
		t.Errorf("no link: %v", err)
	}
}
