package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// M1: an address is nobody else's while a helper may be making a port with it, though the call that
// wanted it was given up, or its lease was released meanwhile. The port comes up after that, and is taken
// away only when the helper has heard that nobody wants it.
func TestM1AnAddressOfAPortInTheMaking(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	take := func(wait time.Duration) *api.PlumbReply {
		work, err := w.client.PlumbWork(ctx, api.PlumbRequest{Worker: "one", Wait: api.Lasting(wait)})
		if err != nil {
			t.Fatal(err)
		}
		return work
	}
	// attach asks for an address with its port, and returns the call's end.
	attach := func(sandbox string, within time.Duration) <-chan error {
		guest, done := nstest.New(t), make(chan error, 1)
		take(time.Millisecond) // a helper is there
		go func() {
			hurried, leave := context.WithTimeout(ctx, within)
			defer leave()
			_, err := w.client.Allocate(hurried, api.AllocateRequest{Sandbox: sandbox, Attach: &api.AttachRequest{Netns: guest.Path()}})
			done <- err
		}()
		return done
	}
	kept := func(addr, when string) {
		t.Helper()
		if is := w.state(addr); is != api.Releasing {
			t.Errorf("%s: %s is %s", when, addr, is)
		}
		if _, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "other", Address: addr}); err == nil {
			t.Errorf("%s: another gets %s", when, addr)
		}
	}

	// The caller leaves while the port is made.
	done := attach("left", time.Second)
	work := take(wait)
	addr := work.Leases[0].Address
	if err := <-done; err == nil {
		t.Fatal("an attach was answered that nobody made")
	}
	realtest.Eventually(t, wait, "what was given is taken back", func() bool { return w.state(addr) != api.Reserved })
	kept(addr, "the caller has left")
	if kept, err := w.client.PlumbDone(ctx, api.PlumbDoneRequest{ID: work.ID, Host: "sb0", MAC: "02:00:00:00:00:01"}); err != nil || kept.Keep {
		t.Errorf("the port is kept: %+v, %v", kept, err)
	}
	realtest.Eventually(t, wait, "it cools once the port was reported", func() bool { return w.state(addr) == api.Cooling })

	// The lease is released while its port waits for the helper: it is not made any more.
	done = attach("released", wait)
	var l api.Lease
	realtest.Eventually(t, wait, "its lease", func() bool {
		all, err := w.client.Leases(ctx, client.LeaseFilter{Sandbox: "released"})
		if err == nil && len(all.Leases) == 1 && w.program.desk.Has(func(work api.PlumbReply) bool { return len(work.Leases) == 1 && work.Leases[0].ID == all.Leases[0].ID }) {
			l = all.Leases[0]
		}
		return l.ID != ""
	})
	if _, err := w.client.Release(ctx, l.ID, api.ReleaseRequest{}); err != nil {
		t.Fatal(err)
	}
	kept(l.Address, "released beside the attach")
	if work := take(time.Millisecond); work.ID != "" {
		t.Errorf("the helper gets a port to make for a lease that has ended: %+v", work)
	}
	if err := <-done; !errors.As(err, new(*api.Error)) {
		t.Errorf("the attach: %v", err)
	}
	realtest.Eventually(t, wait, "it cools", func() bool { return w.state(l.Address) == api.Cooling })
}
