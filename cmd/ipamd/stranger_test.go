package main

import (
	"crypto/rand"
	"net"
	"net/netip"
	"testing"

	"github.com/ipamd/ipamd/internal/realtest"
)

// A stranger that only a question on the wire finds, behind a bridge of its own,
// comes up after its address was asked ahead and kept silent. The address is not
// given all the same, and the answer says why (P5).
func TestF18StrangerAfterTheSilence(t *testing.T) {
	t.Parallel()
	w := newWorld(t, slow)
	outer := w.knownPort()
	outer.NS.Bridge("br0")
	for name, mac := range map[string]net.HardwareAddr{"br0": {2, 0, 0, 0, 0xb, 1}, "eth0": {2, 0, 0, 0, 0xb, 2}} {
		l, err := outer.NS.Netlink().LinkByName(name)
		if err == nil {
			err = outer.NS.Netlink().LinkSetHardwareAddr(l, mac)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	outer.NS.Exec("ip", "link", "set", "eth0", "master", "br0")
	inner := outer.NS.Port("br0", "10.8.64.250/24")
	// Frames pass, and the addresses ahead have been silent for long enough.
	realtest.Eventually(t, wait, "the way to the stranger", func() bool {
		seen := w.program.board.About(netip.MustParseAddr("10.8.64.250")).Seen
		return w.program.bridge.Probe(ctx, netip.MustParseAddr("10.8.64.250")) == nil && len(seen) > 0
	})
	var last netip.Addr
	realtest.Eventually(t, wait, "an address that was asked ahead", func() bool {
		r := w.allocate("before " + rand.Text())
		last = netip.MustParseAddr(r.Leases[0].Address)
		return len(r.Unprobed) == 0
	})
	inner.AddAddr(last.Next().String() + "/24")
	r := w.allocate("after")
	if got := r.Leases[0].Address; got == last.Next().String() {
		t.Fatalf("%s is given, which a stranger answers for: %+v", got, r)
	}
	if len(r.Skipped) == 0 || r.Skipped[0].Address != last.Next().String() {
		t.Errorf("skipped: %+v", r.Skipped)
	}
}
