package main

import (
	"slices"
	"testing"

	"github.com/ipamd/ipamd/api"
)

// The book is lost, and the daemon went on with an empty one that knows of a delegated
// prefix only a stranger in it, or gave an address of it to another. Behind a restore no
// address of the prefix is given: its sandbox has all of it back, or all but what another
// has is an operator's to clear.
func TestARestoreOfADelegatedPrefix(t *testing.T) {
	t.Parallel()
	for name, given := range map[string]bool{"a stranger is seen in it": false, "another was given an address of it": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, slow, runnerOne)
			router := w.delegate("router", "10.8.64.16")
			port := w.ns.Port("rt0", "10.8.64.17/24")
			w.bindPort(router, port)
			file := w.backup()
			w.stopDaemon()
			w.loseBook()
			w.start()
			if got := w.state("10.8.64.17"); got != api.Quarantined {
				t.Fatalf("it is %s", got)
			}
			want := []string{"10.8.64.16/28 router backup back"}
			if given {
				r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "new", Address: "10.8.64.20"})
				must(t, err)
				w.wiredOn("rt0", r.Leases[0])
				want = []string{"10.8.64.16/30 router backup quarantined", "10.8.64.20 new book kept", "10.8.64.21 router backup quarantined",
					"10.8.64.22/31 router backup quarantined", "10.8.64.24/29 router backup quarantined"}
			}
			w.stopDaemon()
			done, err := w.takeIn(file, true)
			must(t, err)
			if got := became(done); !slices.Equal(got, want) {
				t.Errorf("it says %q, want %q", got, want)
			}
			w.start()
			for _, a := range []string{"10.8.64.16", "10.8.64.17", "10.8.64.21", "10.8.64.22", "10.8.64.31"} {
				now := w.whois(a)
				if given && (now.State != api.Quarantined || now.Lease.Hold == "") || !given && (now.State != api.Bound || now.Lease.ID != router.ID) {
					t.Errorf("%s is %s, %+v", a, now.State, now.Lease)
				}
				if r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "second-" + a, Address: a}); err == nil {
					t.Errorf("%s, of the prefix of router, is given: %+v", a, r)
				}
			}
		})
	}
}

// The book is lost, and the empty one gave the address of a sandbox that hibernates to
// another, whose lease has ended since. That one's rest does not end the older lease: behind
// a restore it is paused, and no sandbox gets its address. Nor does a release that only waited for
// its confirmation; where something is there of that one it goes on.
func TestARestoreWhereAnotherRests(t *testing.T) {
	t.Parallel()
	back := []string{"10.8.64.2 new book left_out", "10.8.64.2 asleep backup back"}
	for name, c := range map[string]struct {
		released, there bool
		became          []string
		state           api.State
	}{
		"it cools":                     {became: back, state: api.Paused},
		"its release is not confirmed": {released: true, became: back, state: api.Paused},
		"its release is not confirmed, and it lives": {released: true, there: true, became: []string{"10.8.64.2 asleep backup left_out", "10.8.64.2 new book kept"}, state: api.Releasing},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, quick, runnerOne)
			asleep := w.wired("asleep")
			_, err := w.client.Pause(ctx, asleep.held.ID, api.PauseRequest{Mode: "hibernate"})
			must(t, err)
			asleep.port.Close()
			file := w.backup()
			w.stopDaemon()
			w.loseBook()
			w.start()
			if c.released {
				live := w.wired("new")
				_, err := w.client.Release(ctx, live.held.ID, api.ReleaseRequest{})
				must(t, err)
				if w.stopDaemon(); !c.there {
					live.port.Close()
				}
			} else if l := w.cool("new"); l.Address != asleep.held.Address {
				t.Fatalf("new had %s", l.Address)
			}
			w.stopDaemon()
			done, err := w.takeIn(file, true)
			must(t, err)
			if got := became(done); !slices.Equal(got, c.became) {
				t.Errorf("it says %q, want %q", got, c.became)
			}
			w.start()
			if now := w.whois(asleep.held.Address); now.State != c.state || (now.Lease.ID == asleep.held.ID) != (c.state == api.Paused) {
				t.Errorf("asleep had %s, and it is %s, %+v", asleep.held.ID, now.State, now.Lease)
			}
			if r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "third", Address: asleep.held.Address}); err == nil {
				t.Errorf("its address is given: %+v", r)
			}
		})
	}
}
