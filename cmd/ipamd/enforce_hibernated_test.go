package main

import (
	"bytes"
	"testing"

	"github.com/ipamd/ipamd/api"
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
