package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/workload"
)

// boundAs has a sandbox's new lease bound.
func (w *world) boundAs(sandbox string, where api.BindRequest, labels map[string]string) api.Lease {
	w.t.Helper()
	a, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: sandbox, Labels: labels})
	if err != nil {
		w.t.Fatal(err)
	}
	r, err := w.client.Bind(ctx, a.Leases[0].ID, where)
	if err != nil {
		w.t.Fatal(err)
	}
	return r.Lease
}

// seenInPlace waits until the book has behind which links leases are.
func (w *world) seenInPlace(leases ...api.Lease) {
	w.t.Helper()
	realtest.Eventually(w.t, wait, "each to be seen in its place", func() bool {
		w.pass()
		for _, l := range leases {
			now, err := w.program.book.Lease(l.ID)
			if err != nil || now.Plug.Unseen || now.Plug.Index == 0 && now.Plug.Behind == 0 {
				return false
			}
		}
		return true
	})
}

// bridgeMadeAnew deletes the bridge: no port of before is one of the new bridge.
func (w *world) bridgeMadeAnew(cidrs ...string) {
	w.t.Helper()
	w.ns.Exec("ip", "link", "del", "rt0")
	w.ns.Bridge("rt0", cidrs...)
	realtest.Eventually(w.t, wait, "the bridge to be ready", func() bool { return w.pass().Complete })
}

// staysAs fails if a lease is in another state after more passes than end an absent one.
func (w *world) staysAs(l api.Lease, want api.State, when string) {
	w.t.Helper()
	for range 4 {
		w.pass()
	}
	if s := w.state(l.Address); s != want {
		now, _ := w.program.book.Lease(l.ID)
		w.t.Errorf("%s: %s is %s, want %s; %+v", when, l.Address, s, want, now)
	}
}

// endsAs makes passes until a lease is in a state: what they begin is confirmed beside them.
func (w *world) endsAs(l api.Lease, want api.State, when string) {
	w.t.Helper()
	realtest.Eventually(w.t, wait, fmt.Sprintf("%s to be %s: %s", l.Address, want, when), func() bool {
		w.pass()
		return w.is(l.Address, want)
	})
}

// linkMadeAnew makes a port's pair of links anew, with the names and the address of before.
func (w *world) linkMadeAnew(p *nstest.Port, cidr string) {
	w.t.Helper()
	w.ns.Exec("ip", "link", "del", p.HostName)
	w.ns.Exec("ip", "link", "add", p.HostName, "type", "veth", "peer", "name", "eth0", "address", p.MAC.String(), "netns", p.NS.Name())
	p.NS.Exec("ip", "link", "set", "eth0", "up")
	p.AddAddr(cidr)
	w.ns.Exec("ip", "link", "set", p.HostName, "master", "rt0", "up")
}

// openTap opens a tap that is not persistent, as a machine has it, and plugs it.
func (w *world) openTap(name string) (closeIt func()) {
	w.t.Helper()
	return w.openTapIn(w.ns, name, "rt0")
}

func (w *world) openTapIn(ns *nstest.NS, name, bridge string) (closeIt func()) {
	w.t.Helper()
	fd := -1
	var err error
	ns.Do(func() {
		if fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
			return
		}
		var ask *unix.Ifreq
		if ask, err = unix.NewIfreq(name); err != nil {
			return
		}
		ask.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		// A child of another test that has yet to execute its program keeps what was closed here open.
		for until := time.Now().Add(wait); ; time.Sleep(time.Millisecond) {
			if err = unix.IoctlIfreq(fd, unix.TUNSETIFF, ask); !errors.Is(err, unix.EBUSY) || time.Now().After(until) {
				return
			}
		}
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ns.Exec("ip", "link", "set", name, "master", bridge, "up")
	return func() { _ = unix.Close(fd) }
}

// A link of the same name that is made anew has another index, and the recorded one is of no link.
// Wherever the new one is then, its lease stays: it was given to a second sandbox.
func TestALinkMadeAnewKeepsItsLease(t *testing.T) {
	t.Parallel()
	for name, then := range map[string]func(*world, *nstest.Port){
		"the bridge made anew": func(w *world, _ *nstest.Port) { w.bridgeMadeAnew("10.8.64.1/24") },
		"unplugged":            func(w *world, p *nstest.Port) { w.ns.Exec("ip", "link", "set", p.HostName, "nomaster") },
		"on another bridge":    func(w *world, p *nstest.Port) { w.ns.Exec("ip", "link", "set", p.HostName, "master", "br9") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, hasty)
			w.ns.Bridge("br9")
			ports := []*nstest.Port{w.ns.Port("rt0"), w.ns.Port("rt0")}
			var leases []api.Lease
			for i, p := range ports {
				l := w.boundAs(fmt.Sprint("s", i), api.BindRequest{HostInterface: p.HostName, MAC: p.MAC.String()}, nil)
				p.AddAddr(l.Address + "/24")
				leases = append(leases, l)
			}
			w.seenInPlace(leases...)
			for i, p := range ports {
				w.linkMadeAnew(p, leases[i].Address+"/24")
			}
			w.staysAs(leases[0], api.Bound, "its link made anew")
			for _, p := range ports {
				then(w, p)
			}
			if _, err := w.client.Release(ctx, leases[1].ID, api.ReleaseRequest{Wait: "200ms"}); err != nil {
				t.Fatal(err)
			}
			w.staysAs(leases[0], api.Bound, name)
			w.staysAs(leases[1], api.Releasing, name+", released")
		})
	}
	t.Run("its rules follow a bind", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, enforced)
		l, p := w.plugIn("a")
		w.linkMadeAnew(p, l.Address+"/24")
		for range 3 {
			w.pass()
		}
		if w.ruled(p, l.Address) {
			t.Error("a link that may be another sandbox's has its rules")
		}
		w.bindTo(l.ID, api.BindRequest{HostInterface: p.HostName})
		realtest.Eventually(t, wait, "its port to have rules", func() bool { return w.ruled(p, l.Address) })
	})
}

// A machine closes its tap and opens it again, or it is renamed while no daemon runs, or moved to another
// namespace: it shows no address in any namespace, and its lease stays.
func TestATapThatIsOpenKeepsItsLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hasty)
	first := w.openTap("tap0")
	anew := w.boundAs("opened again", api.BindRequest{HostInterface: "tap0", MAC: "02:00:00:00:77:01"}, nil)
	renamed := w.boundAs("renamed", api.BindRequest{HostInterface: "tap1", MAC: "02:00:00:00:77:02"}, nil)
	moved := w.boundAs("moved", api.BindRequest{HostInterface: "tap2", MAC: "02:00:00:00:77:03"}, nil)
	other, third := w.openTap("tap1"), w.openTap("tap2")
	w.seenInPlace(anew, renamed, moved)
	w.ns.Exec("ip", "link", "set", "tap2", "netns", nstest.New(t).Name())
	w.staysAs(moved, api.Bound, "in another namespace")
	first()
	second := w.openTap("tap0")
	w.staysAs(anew, api.Bound, "opened again")
	w.stopDaemon()
	w.ns.Exec("ip", "link", "set", "tap1", "name", "tap9")
	w.start()
	w.staysAs(renamed, api.Bound, "under another name")
	w.bridgeMadeAnew("10.8.64.1/24")
	w.staysAs(anew, api.Bound, "open, and a port of no bridge")
	w.staysAs(renamed, api.Bound, "under another name, and a port of no bridge")
	w.staysAs(moved, api.Bound, "in another namespace, and the daemon started anew")
	second()
	other()
	third()
	realtest.Eventually(t, wait, "the leases to end with their taps", func() bool {
		w.pass()
		return !slices.ContainsFunc([]api.Lease{anew, renamed, moved}, func(l api.Lease) bool { return w.state(l.Address) != api.Cooling })
	})
}

// What no witness reads is looked at before an address is released or cools: each namespace that no
// port of the bridge leads to. There a sandbox keeps its address whose host's end was moved, which is a
// machine inside, or of which the book has only its container; and a stranger keeps a quarantine.
func TestWhatIsBesideTheBridgeIsLookedFor(t *testing.T) {
	t.Parallel()
	t.Run("the host's end in another namespace", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, hasty)
		w.ns.Bridge("br9")
		other := nstest.New(t)
		byPort := func(p *nstest.Port) api.BindRequest { return api.BindRequest{HostInterface: p.HostName} }
		byMAC := func(p *nstest.Port) api.BindRequest { return api.BindRequest{MAC: p.MAC.String()} }
		var leases []api.Lease
		var ports []*nstest.Port
		for i, where := range []func(*nstest.Port) api.BindRequest{byPort, byMAC, byPort, byMAC} {
			p := w.ns.Port("rt0")
			l := w.boundAs(fmt.Sprint("s", i), where(p), nil)
			p.AddAddr(l.Address + "/24")
			if i > 1 { // another network's link leads there, too
				second := fmt.Sprint("other", i)
				w.ns.Exec("ip", "link", "add", second, "master", "br9", "type", "veth", "peer", "name", "eth1", "netns", p.NS.Name())
			}
			leases, ports = append(leases, l), append(ports, p)
		}
		w.seenInPlace(leases...)
		for _, p := range ports {
			w.ns.Exec("ip", "link", "set", p.HostName, "netns", other.Name())
		}
		for i, l := range leases {
			w.staysAs(l, api.Bound, fmt.Sprint("bound as ", i))
		}
		for _, p := range ports {
			p.NS.Exec("ip", "link", "del", "eth0")
		}
		realtest.Eventually(t, wait, "the leases to end with their links", func() bool {
			w.pass()
			return !slices.ContainsFunc(leases, func(l api.Lease) bool { return w.state(l.Address) != api.Cooling })
		})
	})
	t.Run("what was never bound", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, hasty)
		var leases []api.Lease
		for i := range 2 {
			r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: fmt.Sprint("s", i), BindWithin: "1ms"})
			if err != nil {
				t.Fatal(err)
			}
			box, l := nstest.New(t), r.Leases[0] // the host has no id for its namespace when it gets the address
			box.Exec("ip", "link", "add", fmt.Sprint("veth", i), "type", "veth", "peer", "name", "eth0", "address", fmt.Sprintf("02:00:00:00:77:%02x", i))
			box.Exec("ip", "addr", "add", l.Address+"/24", "dev", "eth0")
			box.Exec("ip", "link", "set", fmt.Sprint("veth", i), "netns", w.ns.Name())
			leases = append(leases, l)
		}
		if r, err := w.client.Release(ctx, leases[0].ID, api.ReleaseRequest{Wait: "200ms"}); err != nil || r.Lease.State != api.Releasing {
			t.Errorf("it is %+v, %v", r, err)
		}
		w.staysAs(leases[0], api.Releasing, "released")
		w.staysAs(leases[1], api.Reserved, "past its deadline")
	})
	t.Run("a machine inside", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, hasty)
		p := w.ns.Port("rt0")
		p.NS.Bridge("in0")
		p.NS.Exec("ip", "link", "set", "eth0", "master", "in0")
		vm := p.NS.Port("in0")
		l := w.boundAs("a", api.BindRequest{Netns: p.NS.Path(), MAC: vm.MAC.String()}, nil)
		vm.AddAddr(l.Address + "/24")
		w.staysAs(l, api.Bound, "on the bridge")
		w.bridgeMadeAnew("10.8.64.1/24")
		w.staysAs(l, api.Bound, "beside it")
	})
	t.Run("a container that is made again in its namespace", func(t *testing.T) {
		t.Parallel()
		ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
			w := newWorld(t, withContainerd(d), hasty)
			b := &box{name: "a", held: w.allocate("a").Leases[0]}
			b.port = w.ns.Port("rt0")
			b.port.NS.Bridge("in0", b.held.Address+"/24")
			b.port.NS.Exec("ip", "link", "set", "eth0", "master", "in0")
			b.run(w, d)
			if _, err := w.client.Bind(ctx, b.held.ID, api.BindRequest{Containers: []api.Container{{Namespace: "default", ID: "a"}}}); err != nil {
				t.Fatal(err)
			}
			w.bridgeMadeAnew("10.8.64.1/24")
			d.Delete(t, "default", "a")
			r, err := w.client.Release(ctx, b.held.ID, api.ReleaseRequest{Wait: "500ms"})
			if err != nil || r.Lease.State != api.Releasing || len(r.Blockers) == 0 || !strings.Contains(r.Blockers[0].Detail, "leads to a namespace with "+b.held.Address) {
				t.Errorf("it is %s, blocked by %+v, %v; its namespace has the address", r.Lease.State, r.Blockers, err)
			}
		})
	})
	t.Run("after the longest wait it is a quarantine", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, hasty, func(c *config.Config) { c.Watchdog.ReleasingMax = config.Duration(time.Second) })
		p := w.ns.Port("rt0")
		l := w.boundAs("a", api.BindRequest{MAC: p.MAC.String()}, nil)
		p.AddAddr(l.Address + "/24")
		w.seenInPlace(l)
		p.DelAddr(l.Address + "/24")
		p.NS.Exec("ip", "addr", "add", l.Address+"/32", "dev", "lo")
		w.ns.Exec("ip", "link", "set", p.HostName, "netns", nstest.New(t).Name())
		if _, err := w.client.Release(ctx, l.ID, api.ReleaseRequest{Wait: "200ms"}); err != nil {
			t.Fatal(err)
		}
		realtest.Eventually(t, wait, "a quarantine", func() bool { w.pass(); return w.state(l.Address) == api.Quarantined })
		if got := w.whois(l.Address); got.Lease == nil || !strings.Contains(fmt.Sprint(got.Lease.Evidence), "no link of the host leads there") {
			t.Errorf("%+v", got)
		}
	})
	t.Run("a stranger that was unplugged", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, hasty, func(c *config.Config) { c.Allocation.Quarantine = 1 })
		p := w.ns.Port("rt0", "10.8.64.77/24")
		realtest.Eventually(t, wait, "a quarantine", func() bool { w.pass(); return w.state("10.8.64.77") == api.Quarantined })
		w.ns.Exec("ip", "link", "set", p.HostName, "nomaster")
		for range 6 {
			w.pass()
		}
		if s := w.state("10.8.64.77"); s != api.Quarantined {
			t.Errorf("it is %s, and a namespace beside the bridge has it", s)
		}
		if _, err := w.client.Clear(ctx, "10.8.64.77"); err == nil || !strings.Contains(err.Error(), "leads to a namespace with 10.8.64.77") {
			t.Errorf("a person clears it: %v", err)
		}
		p.Close()
		realtest.Eventually(t, wait, "its end", func() bool { w.pass(); return w.state("10.8.64.77") != api.Quarantined })
	})
}

// A lease that names no port ends by its owner's word though the port that it was last seen
// behind is there: another sandbox had taken its address and MAC for a moment.
func TestAPortOfAnotherDoesNotKeepAReleasedLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hasty)
	own := w.ns.Port("rt0")
	l := w.boundAs("a", api.BindRequest{MAC: own.MAC.String()}, nil)
	own.AddAddr(l.Address + "/24")
	w.seenInPlace(l)
	own.Close()
	taker := w.ns.Port("rt0")
	taker.NS.Exec("ip", "link", "set", "eth0", "address", own.MAC.String())
	taker.AddAddr(l.Address + "/24")
	w.staysAs(l, api.Bound, "its address taken")
	taker.DelAddr(l.Address + "/24")
	taker.NS.Exec("ip", "link", "set", "eth0", "address", "02:00:00:00:88:01")
	if _, err := w.client.Release(ctx, l.ID, api.ReleaseRequest{Wait: "2s"}); err != nil {
		t.Fatal(err)
	}
	w.endsAs(l, api.Cooling, "its owner released it")
}

// R9: links made anew, or moved to another namespace, are no word of the kernel that their sandboxes
// ended: more of them than a pass may release are held.
func TestLinksMadeAnewAreHeld(t *testing.T) {
	t.Parallel()
	const more = 7 // than a pass may
	w := newWorld(t, hasty)
	other := nstest.New(t)
	var leases []api.Lease
	var ports []*nstest.Port
	for i := range more {
		p := w.ns.Port("rt0")
		l := w.boundAs(fmt.Sprint("s", i), api.BindRequest{HostInterface: p.HostName, MAC: p.MAC.String()}, map[string]string{workload.ShownByLabel: "kernel"})
		p.AddAddr(l.Address + "/24")
		leases, ports = append(leases, l), append(ports, p)
	}
	w.seenInPlace(leases...)
	for _, p := range ports {
		w.ns.Exec("ip", "link", "set", p.HostName, "netns", other.Name())
	}
	realtest.Eventually(t, wait, "the absent ones to be held", func() bool {
		r, err := w.client.Reconcile(ctx, api.ReconcileRequest{})
		return err == nil && r.Report.Held != nil && r.Report.Held.Releases == more
	})
	for _, l := range leases {
		if s := w.state(l.Address); s != api.Bound {
			t.Errorf("%s is %s", l.Address, s)
		}
	}
}
