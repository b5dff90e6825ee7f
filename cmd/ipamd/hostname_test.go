package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/config"
)

// The name of a link is leased beside the address: no other lease has it, over a restart,
// until the removal is confirmed; and none that a link of the host has is given.
func TestHostInterfaceNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick, func(c *config.Config) { c.Allocation.Cooldown = config.Duration(time.Hour) }) // what cools is asked about
	link := func(name string) netlink.Link {
		t.Helper()
		l := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "p"}
		if err := w.ns.Netlink().LinkAdd(l); err != nil {
			t.Fatal(err)
		}
		return l
	}
	ask := func(sandbox, want string) (api.Lease, error) {
		r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: sandbox, HostInterfaceName: want})
		if err != nil {
			return api.Lease{}, err
		}
		return r.Leases[0], nil
	}
	taken := func(sandbox, name string) {
		t.Helper()
		if l, err := ask(sandbox, name); !errors.Is(err, client.ErrNameTaken) {
			t.Errorf("%s got %+v, %v", name, l, err)
		}
	}
	a, err := ask("a", "veth%d")
	name := a.HostInterfaceName
	if err != nil || !strings.HasPrefix(name, "veth") {
		t.Fatalf("%+v, %v", a, err)
	}
	taken("b", name)
	link("stranger")
	taken("b", "stranger")
	taken("b", "rt0")

	own := link(name)
	w.stopDaemon()
	w.start()
	taken("b", name)
	if again, err := ask("a", "veth%d"); err != nil || again.ID != a.ID || again.HostInterfaceName != name {
		t.Errorf("again: %+v, %v", again, err)
	}
	shown, err := w.client.Lease(ctx, a.ID)
	if err != nil || shown.Lease.HostInterfaceName != name {
		t.Errorf("shown: %+v, %v", shown, err)
	}
	bindAndRelease(w, a)
	taken("b", name) // its link is there yet
	if err := w.ns.Netlink().LinkDel(own); err != nil {
		t.Fatal(err)
	}
	if b, err := ask("b", name); err != nil || b.HostInterfaceName != name {
		t.Errorf("b: %+v, %v", b, err)
	}
	if gone, err := w.client.Lease(ctx, a.ID); err != nil || gone.Lease.HostInterfaceName != "" {
		t.Errorf("what cools has a name: %+v, %v", gone, err)
	}
}
