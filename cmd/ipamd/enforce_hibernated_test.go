package main

import (
	"bytes"
	"errors"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// TestE8AHibernatedAddressIsKept: the address of a lease whose port is gone is used by no port
// without a lease.
func TestE8AHibernatedAddressIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, enforced)
	owner, at := w.plugIn("owner")
	_, peer := w.plugIn("peer")
	ear := peer.NS.Wire("eth0")
	stranger := w.ns.Port("rt0")
	if _, err := w.client.Pause(ctx, owner.ID, api.PauseRequest{Mode: api.Hibernate}); err != nil {
		t.Fatal(err)
	}
	at.Close()
	realtest.Eventually(t, wait, "the rules to be as book and ports say", func() bool { return !w.ruled(at, owner.Address) && w.asWished() })
	if r, err := w.client.Rules(ctx, ""); err != nil || len(r.Kept) != 1 || r.Kept[0].Address != owner.Address || r.Kept[0].LeaseID != owner.ID {
		t.Errorf("the rules show %+v as kept, %v", r, err)
	}
	before, claim := w.refusedOf(stranger.HostName), announcement(stranger.MAC, owner.Address, 1)
	stranger.NS.Wire("eth0").Send(claim)
	realtest.Eventually(t, wait, "the claim to be received or refused", func() bool {
		for got, ok := ear.Receive(0); ok; got, ok = ear.Receive(0) {
			if bytes.Equal(got, claim) {
				t.Fatal("a port without a lease is received by a hibernated lease's address")
			}
		}
		return w.refusedOf(stranger.HostName) > before
	})
}

// TestE3ABindByANamespaceWithoutAPort: a bind that is answered leaves its sandbox its network. The
// runtime names the outer namespace, and the sandbox's end of the port is in one inside of it.
func TestE3ABindByANamespaceWithoutAPort(t *testing.T) {
	t.Parallel()
	w := newWorld(t, enforced)
	l := w.allocate("a").Leases[0]
	p := w.ns.Port("rt0", l.Address+"/24")
	if _, err := w.client.Bind(ctx, l.ID, api.BindRequest{Netns: nstest.New(t).Path()}); err != nil {
		t.Fatal(err)
	}
	p.NS.Do(func() {
		c, err := net.DialTimeout("tcp", addr(1)+":9", wait)
		if err == nil {
			c.Close()
		} else if !errors.Is(err, unix.ECONNREFUSED) { // there and back
			t.Error("the sandbox has lost its network by its bind: ", err)
		}
	})
}
