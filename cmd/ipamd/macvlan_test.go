package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// The address of a macvlan on the bridge is not given, but quarantined with who
// has it, until it goes; and a link that hides is reported (P5).
func TestF19AnAddressOfAMacvlanIsNotGiven(t *testing.T) {
	w := newWorld(t, slow)
	guest, hidden := nstest.New(t), nstest.New(t)
	w.ns.Exec("ip", "link", "add", "m0", "link", "rt0", "type", "macvlan", "mode", "bridge")
	w.ns.Exec("ip", "link", "set", "m0", "netns", guest.Name())
	guest.AddAddr("m0", addr(2)+"/24")
	guest.Exec("ip", "link", "set", "m0", "up")
	w.seenBehind(addr(2), "m0")

	w.give("a", addr(3))
	if l := w.whois(addr(2)).Lease; l == nil || l.State != api.Quarantined || len(l.Evidence) != 1 ||
		!strings.Contains(l.Evidence[0].Note, "m0 is a macvlan on rt0") {
		t.Errorf("its address: %+v", l)
	}
	guest.Exec("ip", "link", "del", "m0")
	w.seenBehind(addr(2), "")
	if _, err := w.client.Clear(ctx, addr(2)); err != nil {
		t.Errorf("clear: %v", err)
	}

	w.ns.Exec("ip", "link", "add", "m1", "link", "rt0", "netns", hidden.Name(), "type", "macvlan", "mode", "bridge")
	hidden.Hide()
	hidden.Up("m1")
	realtest.Eventually(t, wait, "the hidden link to be found", func() bool { return slices.Contains(w.findings(), "link_hidden") })
	// A namespace of another test may be a gap of its own.
	if s, err := w.client.Status(ctx); err != nil || !slices.ContainsFunc(s.Bridge.Gaps, func(g string) bool { return strings.Contains(g, "cannot be found") }) {
		t.Errorf("status has %+v, %v", s, err)
	}
}
