package main

import (
	"fmt"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/workload"
)

// asCNI makes a port as CNI's bridge plugin does: the pair is made in the sandbox's namespace, and the
// host's end moved, which keeps its index where that is free.
func (w *world) asCNI(box *nstest.NS, name string) {
	w.t.Helper()
	box.Exec("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0")
	box.Exec("ip", "link", "set", name, "netns", w.ns.Name())
	box.Exec("ip", "link", "set", "eth0", "up")
	w.ns.Exec("ip", "link", "set", name, "master", "rt0", "up")
}

// linkless waits until no link has an index.
func (w *world) linkless(index int) {
	w.t.Helper()
	realtest.Eventually(w.t, wait, "a link to end with its namespace", func() bool {
		_, err := w.ns.Netlink().LinkByIndex(index)
		return err != nil
	})
}

// A link that comes from another namespace may have the index of one that ended in the same boot. What
// the lease of the one records keeps no lease from ending, and hides no tap that is open.
func TestAnIndexIsUsedAgain(t *testing.T) {
	t.Parallel()
	kernels := map[string]string{workload.ShownByLabel: "kernel"}
	for name, where := range map[string]func(box *nstest.NS, link string) api.BindRequest{
		"of a link that is named": func(box *nstest.NS, link string) api.BindRequest {
			return api.BindRequest{HostInterface: link, Netns: box.Path()}
		},
		"of one that it was seen behind": func(box *nstest.NS, _ string) api.BindRequest { return api.BindRequest{Netns: box.Path()} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, hasty)
			first := nstest.New(t)
			w.asCNI(first, "vethA")
			a := w.boundAs("a", where(first, "vethA"), kernels)
			first.Exec("ip", "addr", "add", a.Address+"/24", "dev", "eth0")
			w.seenInPlace(a)
			index := w.linkIndex("vethA")
			w.stopDaemon()
			first.Exec("ip", "link", "del", "eth0")
			first.Delete()
			second := nstest.New(t)
			w.asCNI(second, "vethB")
			if got := w.linkIndex("vethB"); got != index {
				t.Fatalf("vethA had index %d, and vethB has %d", index, got)
			}
			w.start()
			b := w.boundAs("b", where(second, "vethB"), kernels)
			second.Exec("ip", "addr", "add", b.Address+"/24", "dev", "eth0")
			w.seenInPlace(b)
			w.endsAs(a, api.Cooling, "its link and its namespace have ended")
			w.staysAs(b, api.Bound, "it lives")
		})
	}
	t.Run("of another network", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, hasty)
		w.ns.Bridge("br9")
		for i, link := range []string{"vethA", ""} { // of leases that record no MAC
			first := nstest.New(t)
			w.asCNI(first, fmt.Sprint("vethA", i))
			where := api.BindRequest{Netns: first.Path()}
			if link != "" {
				where.HostInterface = fmt.Sprint(link, i)
			}
			a := w.boundAs(fmt.Sprint("a", i), where, nil)
			first.Exec("ip", "addr", "add", a.Address+"/24", "dev", "eth0")
			w.seenInPlace(a)
			index := w.linkIndex(fmt.Sprint("vethA", i))
			first.Delete()
			w.linkless(index)
			other := nstest.New(t)
			for range index - 3 {
				other.Exec("ip", "link", "add", "type", "bridge")
			}
			w.asCNI(other, "vethB")
			if got := w.linkIndex("vethB"); got != index {
				t.Fatalf("vethB has index %d, want %d", got, index)
			}
			w.ns.Exec("ip", "link", "set", "vethB", "master", "br9")
			if _, err := w.client.Release(ctx, a.ID, api.ReleaseRequest{}); err != nil {
				t.Fatal(err)
			}
			realtest.Eventually(t, wait, "a release that a link of another network does not keep", func() bool { return w.state(a.Address) == api.Cooling })
			w.ns.Exec("ip", "link", "del", "vethB")
		}
	})
	t.Run("of a tap that is opened again", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, hasty)
		first := w.openTap("tap0")
		index := w.linkIndex("tap0")
		a := w.boundAs("a", api.BindRequest{HostInterface: "tap0", MAC: "02:00:00:00:77:01"}, nil)
		w.seenInPlace(a)
		first()
		box := nstest.New(t)
		for range index - w.linkIndex("rt0") - 1 {
			box.Exec("ip", "link", "add", "type", "dummy")
		}
		w.asCNI(box, "vethB")
		t.Cleanup(w.openTap("tap0"))
		w.ns.Exec("ip", "link", "set", "vethB", "nomaster")
		w.ns.Exec("ip", "link", "set", "tap0", "nomaster")
		if _, err := w.client.Release(ctx, a.ID, api.ReleaseRequest{Wait: "500ms"}); err != nil {
			t.Fatal(err)
		}
		w.staysAs(a, api.Releasing, "its tap is open")
	})
}

// A release waits while a tap of the machine is open, which is down and has its carrier off, or in the sandbox's own
// namespace, or is stacked on the bridge: nothing shows the machine's address.
func TestAnOpenTapKeepsARelease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hasty)
	w.ns.Exec("ip", "link", "add", "link", "rt0", "name", "mvt0", "type", "macvtap", "mode", "bridge")
	stacked := w.boundAs("stacked", api.BindRequest{HostInterface: "mvt0", MAC: "02:00:00:00:77:03"}, nil)
	if _, err := w.client.Release(ctx, stacked.ID, api.ReleaseRequest{Wait: "200ms"}); err != nil {
		t.Fatal(err)
	}
	w.staysAs(stacked, api.Releasing, "stacked")
	w.ns.Exec("ip", "link", "del", "mvt0")
	w.becomes(stacked.Address, api.Cooling)
	t.Cleanup(w.openTap("tap0"))
	down := w.boundAs("down", api.BindRequest{HostInterface: "tap0", MAC: "02:00:00:00:77:01"}, nil)
	p := w.ns.Port("rt0")
	p.NS.Bridge("in0")
	p.NS.Exec("ip", "link", "set", "eth0", "master", "in0")
	t.Cleanup(w.openTapIn(p.NS, "tap1", "in0"))
	inside := w.boundAs("inside", api.BindRequest{HostInterface: p.HostName, Netns: p.NS.Path(), MAC: "02:00:00:00:77:02"}, nil)
	w.seenInPlace(down, inside)
	w.ns.Exec("ip", "link", "set", "tap0", "nomaster", "down")
	w.ns.Exec("ip", "link", "set", "tap0", "carrier", "off")
	w.bridgeMadeAnew("10.8.64.1/24")
	for _, l := range []api.Lease{down, inside} {
		if _, err := w.client.Release(ctx, l.ID, api.ReleaseRequest{Wait: "200ms"}); err != nil {
			t.Fatal(err)
		}
		w.staysAs(l, api.Releasing, l.Sandbox)
	}
}

// Guests of another network keep no release of ours: not by the address on a link of their own, and
// not by more addresses than are read.
func TestGuestsOfAnotherNetworkKeepNoRelease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hasty)
	w.ns.Bridge("br9")
	p := w.ns.Port("rt0")
	a := w.boundAs("a", api.BindRequest{HostInterface: p.HostName}, nil)
	p.AddAddr(a.Address + "/24")
	w.seenInPlace(a)
	crowded := w.ns.Port("br9")
	crowded.NS.Fill(5000, 0) // more than are read of one
	guest := w.ns.Port("br9", "172.30.0.2/16")
	guest.NS.Bridge("in0")
	guest.NS.Exec("ip", "addr", "add", a.Address+"/32", "dev", "in0")
	for range 3 {
		w.ns.Port("br9") // are read after it
	}
	p.Close()
	r, err := w.client.Release(ctx, a.ID, api.ReleaseRequest{Wait: "10s"})
	if err != nil || r.Lease.State != api.Cooling {
		t.Errorf("it is %s, blocked by %+v, %v", r.Lease.State, r.Blockers, err)
	}
	realtest.Eventually(t, wait, "its end", func() bool { return w.state(a.Address) == api.Cooling })
}
