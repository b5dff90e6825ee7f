package bridge

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// after is d, with all gateways as former ones that were wanted before.
func (v *view) after(d Desired) Desired {
	v.mu.Lock()
	was := v.device.want
	v.mu.Unlock()
	for _, gw := range slices.Concat(was.Gateways, was.Former) {
		if !slices.Contains(d.Gateways, gw) {
			d.Former = append(d.Former, gw)
		}
	}
	return d
}

// set has the bridge wanted so, and fails the test on an error.
func (v *view) set(cidrs ...string) {
	v.t.Helper()
	if err := v.Set(v.t.Context(), v.after(desired(0, cidrs...))); err != nil {
		v.t.Fatal(err)
	}
	v.wantReady()
}

// onBridge lists the addresses of rt0 but for link-local ones, in their order.
func onBridge(ns *nstest.NS) (all []string) {
	for line := range strings.SplitSeq(ns.Exec("ip", "-o", "addr", "show", "dev", "rt0", "scope", "global"), "\n") {
		if f := strings.Fields(line); len(f) > 3 {
			all = append(all, f[3])
		}
	}
	slices.Sort(all)
	return all
}

func wantOnBridge(t *testing.T, ns *nstest.NS, cidrs ...string) {
	t.Helper()
	slices.Sort(cidrs)
	if got := onBridge(ns); !slices.Equal(got, cidrs) {
		t.Errorf("rt0 has %v, want %v", got, cidrs)
	}
}

// A former gateway that ipamd put on the bridge goes, also when an earlier daemon did. What
// is neither wanted nor former stays, and so does what a person added: beside it, in the subnet of one that goes, instead of one
// that was taken away, and as a gateway that is wanted for a while.
func TestSetTakesAwayWhatIsOursOnly(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.6.0.1/24") // a person's, that becomes a gateway
	v := open(t, ns, manage, gateways("10.8.0.1/24", "fd00:8::1/64"))
	v.wantReady()
	ns.AddAddr("rt0", "10.8.0.9/24") // secondary to the gateway
	ns.AddAddr("rt0", "10.5.0.1/24")
	ns.AddAddr("rt0", "fd00:8::9/64")
	v.set("10.6.0.1/24", "10.9.0.1/24")
	others := []string{"10.5.0.1/24", "10.6.0.1/24", "10.8.0.9/24", "fd00:8::9/64"}
	wantOnBridge(t, ns, append(others, "10.9.0.1/24")...)
	if routes := ns.Exec("ip", "route"); !strings.Contains(routes, "10.8.0.0/24 dev rt0") {
		t.Errorf("the address that stays has no route to its subnet:\n%s", routes)
	}
	v.set("10.9.0.1/24", "10.7.0.1/24")
	wantOnBridge(t, ns, append(others, "10.9.0.1/24", "10.7.0.1/24")...)

	v.mu.Lock() // a person is quicker than ipamd to add it
	err := v.kernel.AddAddress(v.device.link.Index, netip.MustParsePrefix("10.5.0.1/24"))
	ours, _ := v.kernel.OursOn(v.device.link.Index)
	v.mu.Unlock()
	if !errors.Is(err, unix.EEXIST) || len(ours) != 2 {
		t.Errorf("to add an address that is there is %v, and ours are %v", err, ours)
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	ns.DelAddr("rt0", "10.7.0.1/24")
	ns.AddAddr("rt0", "10.7.0.1/24") // by hand now
	later := open(t, ns, manage, gateways("10.4.0.1/24"))
	later.wantReady()
	wantOnBridge(t, ns, append(others, "10.7.0.1/24", "10.9.0.1/24", "10.4.0.1/24")...)
	if err := later.Set(t.Context(), desired(0, "10.3.0.1/24")); err != nil {
		t.Fatal(err)
	}
	wantOnBridge(t, ns, append(others, "10.7.0.1/24", "10.9.0.1/24", "10.4.0.1/24", "10.3.0.1/24")...) // a lost book's, perhaps
	want := desired(0, "10.3.0.1/24")
	want.Former = desired(0, "10.4.0.1/24", "10.7.0.1/24", "10.9.0.1/24").Gateways
	if err := later.Set(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	wantOnBridge(t, ns, append(others, "10.7.0.1/24", "10.3.0.1/24")...)
	later.set()
	wantOnBridge(t, ns, append(others, "10.7.0.1/24")...)
	later.settle() // its own news
	if n := later.asks(func() { later.set() }); n != 0 {
		t.Errorf("the same again is %d questions", n)
	}
}

// A gateway whose prefix length changes is on the bridge all the while, with its connected
// route: the new one comes before the old one goes. So is one that moves within its subnet.
// Of IPv6 one follows the other.
func TestSetChangesAPrefixLength(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	v := open(t, ns, manage, gateways("10.8.0.1/24", "fd00:8::1/64"))
	v.wantReady()
	news, done := make(chan netlink.AddrUpdate, 64), make(chan struct{})
	var err error
	ns.Do(func() { err = netlink.AddrSubscribe(news, done) })
	if err != nil {
		t.Fatal(err)
	}
	defer close(done)
	// next is the kernel's next news of an IPv4 address of rt0.
	next := func() string {
		t.Helper()
		for {
			var u netlink.AddrUpdate
			select {
			case u = <-news:
			case <-time.After(wait):
				return "none"
			}
			if p, _ := netip.AddrFromSlice(u.LinkAddress.IP); p.Unmap().Is4() {
				ones, _ := u.LinkAddress.Mask.Size()
				return fmt.Sprintf("%s/%d %v", p.Unmap(), ones, u.NewAddr)
			}
		}
	}
	for _, step := range []struct{ from, to, six string }{
		{"10.8.0.1/24", "10.8.0.1/16", "fd00:8::1/48"},
		{"10.8.0.1/16", "10.8.0.1/25", "fd00:8::1/64"},
		{"10.8.0.1/25", "10.8.0.100/25", "fd00:8::1/64"},
	} {
		v.set(step.to, step.six)
		if wantOnBridge(t, ns, step.to, step.six); t.Failed() {
			return // there is no news to wait for
		}
		if first, then := next(), next(); first != step.to+" true" || then != step.from+" false" {
			t.Errorf("from %s to %s the kernel reports %s, then %s", step.from, step.to, first, then)
		}
		if to := netip.MustParsePrefix(step.to); !strings.Contains(ns.Exec("ip", "route"), to.Masked().String()+" dev rt0") {
			t.Errorf("there is no route to %v:\n%s", to.Masked(), ns.Exec("ip", "route"))
		}
	}
	v.noneSilent()
}

// An IPv6 gateway that a person put there with another prefix length is the person's: the
// bridge is not ready, nothing is taken away, and the commands that are named make it so.
func TestSetBesideAPersonsPrefixLength(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "fd00:8::1/48")
	v := open(t, ns, manage, gateways("fd00:8::1/64"))
	v.wantUnready("rt0 is without the gateway fd00:8::1/64")
	wantOnBridge(t, ns, "fd00:8::1/48")
	not := v.Ready().(*NotReadyError)
	for _, c := range not.Repair {
		ns.Exec(strings.Fields(c)...)
	}
	realtest.Eventually(t, wait, "it to be ready", func() bool { v.settle(); return v.Ready() == nil })
	wantOnBridge(t, ns, "fd00:8::1/64")
}

// Many set, Run repairs, a person takes gateways away, and the bridge goes: it ends as it was
// wanted last.
func TestSetBesideRepairs(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	v := open(t, ns, manage, gateways("10.8.0.1/24"))
	v.run(t)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for n := range 10 {
				_ = v.Set(context.Background(), desired(0, fmt.Sprintf("10.%d.0.1/%d", 10+i, 16+n%2*8), "fd00:8::1/64"))
			}
		})
	}
	for n := range 5 {
		if l, err := ns.Netlink().LinkByName("rt0"); err == nil {
			if n == 2 {
				_ = ns.Netlink().LinkDel(l)
			}
			addrs, _ := ns.Netlink().AddrList(l, unix.AF_INET)
			for _, a := range addrs {
				_ = ns.Netlink().AddrDel(l, &a)
			}
		}
	}
	all.Wait()
	// One that could not read all of a bridge that was made just now says so.
	want := desired(0, "10.8.0.1/24", "10.9.0.1/24")
	for i := range 4 {
		want.Former = append(want.Former, desired(0, fmt.Sprintf("10.%d.0.1/16", 10+i), fmt.Sprintf("10.%d.0.1/24", 10+i), "fd00:8::1/64").Gateways...)
	}
	realtest.Eventually(t, wait, "it to be wanted", func() bool { return v.Set(t.Context(), want) == nil })
	realtest.Eventually(t, wait, "it to be as it is wanted", func() bool {
		v.settle()
		return v.Ready() == nil && slices.Equal(onBridge(ns), []string{"10.8.0.1/24", "10.9.0.1/24"})
	})
	v.noneSilent()
}
