package bridge

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

func desired(mtu int, cidrs ...string) Desired {
	d := Desired{MTU: mtu}
	for _, c := range cidrs {
		d.Gateways = append(d.Gateways, netip.MustParsePrefix(c))
	}
	return d
}

// has lists the addresses and the MTU that rt0 has.
func has(ns *nstest.NS, words ...string) bool {
	out := ns.Exec("ip", "addr", "show", "dev", "rt0")
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(out, w) })
}

// What a managed bridge has to be changes while it runs: it is so when Set returns, the
// same again asks the kernel nothing, a former gateway goes, and what others
// take away comes again. Wanted while there is no bridge to make it of, it is so once there is.
func TestSetManaged(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	v := open(t, ns, manage, gateways("10.8.0.1/24"))
	for v.asks(v.settle) > 0 { // its own news would have it looked at again
	}
	v.wantReady()
	want := desired(1400, "10.8.0.1/24", "10.9.0.1/24", "fd00:9::1/64")
	if err := v.Set(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	v.wantReady()
	if !has(ns, "10.8.0.1/24", "10.9.0.1/24", "fd00:9::1/64", "mtu 1400") || v.MTU() != 1400 {
		t.Errorf("rt0 is %s", ns.Exec("ip", "addr", "show", "dev", "rt0"))
	}
	v.settle() // its own news
	if n := v.asks(func() {
		if err := v.Set(t.Context(), want); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("the same again is %d questions", n)
	}
	want.Gateways[0] = netip.MustParsePrefix("10.7.0.1/24") // the caller's own again
	ns.DelAddr("rt0", "10.9.0.1/24")
	v.settle()
	if v.wantReady(); !has(ns, "10.8.0.1/24", "10.9.0.1/24") || has(ns, "10.7.0.1/24") {
		t.Errorf("rt0 is %s", ns.Exec("ip", "addr", "show", "dev", "rt0"))
	}
	v.set("10.8.0.1/24")
	if v.wantReady(); !has(ns, "10.8.0.1/24", "mtu 1400") || has(ns, "10.9.0.1/24") || has(ns, "fd00:9::1/64") {
		t.Errorf("rt0 is %s", ns.Exec("ip", "addr", "show", "dev", "rt0"))
	}

	v.mu.Lock()
	v.trouble = errors.New("the sockets broke")
	v.mu.Unlock()
	if err := v.Set(t.Context(), desired(0, "10.6.0.1/24")); err == nil {
		t.Error("the sockets broke, and nothing is said")
	}
	if err := v.openAgain(); err != nil {
		t.Fatal(err)
	}
	if err := v.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v.wantReady(); !has(ns, "10.6.0.1/24") {
		t.Errorf("rt0 is %s", ns.Exec("ip", "addr", "show", "dev", "rt0"))
	}
	v.Close()
	if err := v.Set(t.Context(), want); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// A bridge of others is judged by what it has to be now, and nothing of it is changed.
func TestSetUnmanaged(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	v := open(t, ns, gateways("10.8.0.1/24"))
	v.wantReady()
	ours := netip.MustParsePrefix("10.7.0.1/24") // of when ipamd managed it
	v.mu.Lock()
	err := v.kernel.AddAddress(v.device.link.Index, ours)
	v.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Set(t.Context(), desired(1400, "10.8.0.1/24", "10.9.0.1/24")); err != nil {
		t.Fatal(err)
	}
	v.wantUnready("rt0 is without the gateway 10.9.0.1/24")
	if !has(ns, ours.String()) {
		t.Errorf("a bridge of others lost an address: %s", ns.Exec("ip", "addr", "show", "dev", "rt0"))
	}
	if has(ns, "10.9.0.1/24") || has(ns, "mtu 1400") {
		t.Errorf("rt0 is %s", ns.Exec("ip", "addr", "show", "dev", "rt0"))
	}
	ns.AddAddr("rt0", "10.9.0.1/24")
	v.settle()
	v.wantReady()
	ns.Exec("ip", "link", "del", "rt0")
	if err := v.Set(t.Context(), desired(0, "10.9.0.1/24")); err != nil {
		t.Errorf("without the bridge: %v", err)
	}
	v.wantUnready("rt0 is missing")
	ns.Bridge("rt0", "10.9.0.1/24")
	realtest.Eventually(t, wait, "it to be ready", func() bool { v.settle(); return v.Ready() == nil })
}
