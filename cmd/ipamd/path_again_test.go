package main

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/workload"
)

// leadsTo has a path, at which no namespace is any more, lead to the namespace of another path.
func (w *world) leadsTo(path string, ns *nstest.NS) {
	w.t.Helper()
	if err := os.WriteFile(path, nil, 0o444); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = os.Remove(path) })
	w.covers(path, ns)
}

// covers has a path, at which a namespace may be, lead to another one.
func (w *world) covers(path string, ns *nstest.NS) {
	w.t.Helper()
	if err := unix.Mount(ns.Path(), path, "", unix.MS_BIND, ""); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			w.t.Error(err)
		}
	})
}

// boundIn has a sandbox's lease bound by the namespace behind a port, of which the lease records the inode.
func (w *world) boundIn(sandbox string, p *nstest.Port, where api.BindRequest, labels map[string]string) api.Lease {
	w.t.Helper()
	where.Netns = p.NS.Path()
	l := w.boundAs(sandbox, where, labels)
	realtest.Eventually(w.t, wait, "the namespace to be recorded", func() bool {
		l = w.bindTo(l.ID, where)
		return l.NetnsInode != 0
	})
	return l
}

// F21: a runner has fixed names for its namespaces. That one's path leads to the namespace of another sandbox by now, which no lease
// records, keeps neither a released lease nor one whose owner never said that it ended: its own namespace has ended.
func TestF21APathThatLeadsElsewhereKeepsNoLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hasty)
	var leases []api.Lease
	var ports []*nstest.Port
	for i, labels := range []map[string]string{nil, nil, {workload.ShownByLabel: "kernel"}} {
		p := w.ns.Port("rt0")
		l := w.boundIn(fmt.Sprint("s", i), p, api.BindRequest{}, labels)
		p.AddAddr(l.Address + "/24")
		leases, ports = append(leases, l), append(ports, p)
	}
	w.seenInPlace(leases...)
	for i, p := range ports {
		next := w.ns.Port("rt0", fmt.Sprintf("10.8.64.%d/24", 200+i)) // before the first has ended: an inode is used again
		p.Close()
		w.leadsTo(p.NS.Path(), next.NS)
	}
	if _, err := w.client.Release(ctx, leases[0].ID, api.ReleaseRequest{}); err != nil {
		t.Fatal(err)
	}
	w.endsAs(leases[0], api.Cooling, "released, and its namespace has ended")
	w.endsAs(leases[1], api.Cooling, "absent, and its namespace has ended")
	w.endsAs(leases[2], api.Cooling, "shown by the kernel alone, and its namespace has ended")
}

// F21: the path of a namespace leads elsewhere by now, and the namespace lives on: a port leads into it, or no link at all. Whether its
// address is seen in there or a machine is whose address nothing shows, its lease stays.
func TestF21ANamespaceThatLostItsPathKeepsItsLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hasty)
	stays := func(what string, alter func(*nstest.Port, api.Lease)) {
		var both []api.Lease
		for _, when := range []string{"bound", "released"} {
			p, next := w.ns.Port("rt0"), w.ns.Port("rt0")
			l := w.boundIn(what+", "+when, p, api.BindRequest{}, map[string]string{workload.ShownByLabel: "kernel"})
			p.AddAddr(l.Address + "/24")
			w.seenInPlace(l)
			alter(p, l)
			path := p.NS.Path()
			p.NS.Hide()
			w.leadsTo(path, next.NS)
			both = append(both, l)
		}
		if _, err := w.client.Release(ctx, both[1].ID, api.ReleaseRequest{Wait: "300ms"}); err != nil {
			t.Fatal(err)
		}
		w.staysAs(both[0], api.Bound, what)
		w.staysAs(both[1], api.Releasing, what+", released")
	}
	stays("its address is seen", func(*nstest.Port, api.Lease) {})
	stays("unplugged", func(p *nstest.Port, _ api.Lease) { w.ns.Exec("ip", "link", "set", p.HostName, "nomaster") })
	stays("no link of the host leads there", func(p *nstest.Port, _ api.Lease) {
		w.ns.Exec("ip", "link", "set", p.HostName, "netns", nstest.New(t).Name())
	})
	stays("a machine inside", func(p *nstest.Port, l api.Lease) {
		p.DelAddr(l.Address + "/24")
		p.NS.Bridge("in0")
		p.NS.Exec("ip", "link", "set", "eth0", "master", "in0")
		t.Cleanup(w.openTapIn(p.NS, "tap0", "in0"))
	})
}

// F21: a runtime makes a sandbox's namespace anew at its path, and binds nothing again. While it has the lease's address in
// there, or has a machine in there and did not release it, the lease stays; it ends with what is in there.
func TestF21ANamespaceMadeAnewKeepsItsLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hasty)
	anew := func(sandbox string, fill func(*nstest.Port, api.Lease)) (api.Lease, *nstest.Port) {
		p, next := w.ns.Port("rt0"), w.ns.Port("rt0")
		l := w.boundIn(sandbox, p, api.BindRequest{}, nil)
		p.AddAddr(l.Address + "/24")
		w.seenInPlace(l)
		// At no moment is there nothing of it: that would be its end.
		p.DelAddr(l.Address + "/24")
		fill(next, l)
		w.covers(p.NS.Path(), next.NS)
		w.ns.Exec("ip", "link", "del", p.HostName)
		return l, next
	}
	address := func(p *nstest.Port, l api.Lease) { p.AddAddr(l.Address + "/24") }
	lives, its := anew("address", address)
	released, theirs := anew("released", address)
	var closeTap func()
	machine, _ := anew("machine", func(p *nstest.Port, l api.Lease) {
		p.NS.Bridge("in0")
		p.NS.Exec("ip", "link", "set", "eth0", "master", "in0")
		closeTap = sync.OnceFunc(w.openTapIn(p.NS, "tap0", "in0"))
		t.Cleanup(closeTap)
	})
	if _, err := w.client.Release(ctx, released.ID, api.ReleaseRequest{Wait: "300ms"}); err != nil {
		t.Fatal(err)
	}
	w.staysAs(lives, api.Bound, "its address is seen")
	w.staysAs(released, api.Releasing, "its address is seen, and it is released")
	w.staysAs(machine, api.Bound, "a machine is in its namespace")
	its.DelAddr(lives.Address + "/24")
	theirs.DelAddr(released.Address + "/24")
	closeTap()
	w.endsAs(lives, api.Cooling, "its address is seen no more")
	w.endsAs(released, api.Cooling, "its address is seen no more, and it is released")
	w.endsAs(machine, api.Cooling, "its machine has ended")
}
