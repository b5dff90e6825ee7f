package main

import (
	"slices"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
)

// Two incarnations of a sandbox bind one tap. The address of the first does not cool
// while that very tap is plugged, a restart of ipamd in between; once it is another
// link of the same name, that is the successor's alone.
func TestG4AnAddressDoesNotCoolBehindTheSameTap(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	plug := func() {
		w.ns.Exec("ip", "tuntap", "add", "dev", "tap0", "mode", "tap")
		w.ns.Exec("ip", "link", "set", "tap0", "master", "rt0", "up")
	}
	bound := func(uid string) api.Lease {
		return w.boundToIts("vm", uid, api.BindRequest{HostInterface: "tap0"})
	}
	holds := func(l api.Lease) {
		t.Helper()
		realtest.Eventually(t, wait, "the tap to keep the first lease", func() bool {
			got, err := w.client.Lease(ctx, l.ID)
			if err != nil || got.Lease.State != api.Releasing {
				t.Fatalf("it is %+v, %v", got, err)
			}
			return slices.ContainsFunc(got.Blockers, func(b api.Blocker) bool { return b.Kind == "port" })
		})
	}
	plug()
	first, second := bound("vm-1"), bound("vm-2")
	if first.HostIndex == 0 || first.HostIndex != second.HostIndex || first.Address == second.Address {
		t.Fatalf("bound are %+v and %+v", first, second)
	}
	realtest.Eventually(t, wait, "the same bind again to find its tap", func() bool {
		second = bound("vm-2") // what a bind could not look up is recorded as not known
		again := w.bindTo(second.ID, api.BindRequest{HostInterface: "tap0"})
		if again.HostIndex != 0 && again.Revision != second.Revision {
			t.Errorf("the same bind again is a change: %+v after %+v", again, second)
		}
		return again.HostIndex != 0
	})
	if _, err := w.client.Release(ctx, first.ID, api.ReleaseRequest{}); err != nil {
		t.Fatal(err)
	}
	holds(first)
	w.stopDaemon()
	w.start()
	w.pass()
	holds(first)

	w.ns.Exec("ip", "link", "del", "tap0")
	plug()
	if now := bound("vm-2"); now.HostIndex == second.HostIndex {
		t.Fatalf("the link was made anew, and is %+v", now)
	}
	w.gone(first)
	if got := w.state(second.Address); got != api.Bound {
		t.Errorf("the successor is %s", got)
	}
}

// A lease that was bound before its tap was made, or when it was not known which link
// that was, keeps the name, whatever a later incarnation records of it: its address
// does not cool while the tap is plugged, and cools once it is not.
func TestG4AnAddressDoesNotCoolBehindATapMadeAfterTheBind(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	bound := func(sandbox, uid, tap string) api.Lease {
		r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: sandbox, UID: uid})
		if err != nil {
			t.Fatal(err)
		}
		l, err := w.client.Bind(ctx, r.Leases[0].ID, api.BindRequest{HostInterface: tap})
		if err != nil {
			t.Fatal(err)
		}
		return l.Lease
	}
	plug := func(tap string) {
		w.ns.Exec("ip", "tuntap", "add", "dev", tap, "mode", "tap")
		w.ns.Exec("ip", "link", "set", tap, "master", "rt0", "up")
	}
	first := []api.Lease{bound("a", "a-1", "tap0"), bound("b", "b-1", "tap1")}
	early := bound("b", "b-2", "tap1")
	plug("tap0")
	plug("tap1")
	late := w.boundToIts("a", "a-2", api.BindRequest{HostInterface: "tap0"})
	if first[0].HostIndex != 0 || first[1].HostIndex != 0 || early.HostIndex != 0 {
		t.Fatalf("bound are %+v and %+v", first, early)
	}
	for _, l := range first {
		if _, err := w.client.Release(ctx, l.ID, api.ReleaseRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	holds := func() {
		t.Helper()
		w.pass()
		for _, l := range first {
			realtest.Eventually(t, wait, "the tap to keep the first lease", func() bool {
				got, err := w.client.Lease(ctx, l.ID)
				if err != nil || got.Lease.State != api.Releasing {
					t.Fatalf("it is %+v, %v", got, err)
				}
				return slices.ContainsFunc(got.Blockers, func(b api.Blocker) bool { return b.Kind == "port" })
			})
		}
	}
	holds()
	w.stopDaemon()
	w.start()
	holds()
	w.ns.Exec("ip", "link", "del", "tap0")
	w.ns.Exec("ip", "link", "del", "tap1")
	for _, l := range first {
		w.gone(l)
	}
	for _, l := range []api.Lease{early, late} {
		if got := w.state(l.Address); got != api.Bound {
			t.Errorf("the successor is %s", got)
		}
	}
}

// A tap that is made after the bind is recorded by the next pass, once, and after a
// reboot anew: its name alone does not keep the address of a former incarnation once it
// is another link.
func TestG4APortThatCameAfterTheBindIsRecorded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	plug := func() {
		w.ns.Exec("ip", "tuntap", "add", "dev", "tap0", "mode", "tap")
		w.ns.Exec("ip", "link", "set", "tap0", "master", "rt0", "up")
	}
	bound := func(uid string) api.Lease {
		r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "vm", UID: uid})
		if err != nil {
			t.Fatal(err)
		}
		l, err := w.client.Bind(ctx, r.Leases[0].ID, api.BindRequest{HostInterface: "tap0"})
		if err != nil {
			t.Fatal(err)
		}
		return l.Lease
	}
	recorded := func(l api.Lease) (now api.Lease) {
		t.Helper()
		realtest.Eventually(t, wait, "a pass to record its tap", func() bool { // which a busy kernel may leave out
			w.pass()
			got, err := w.client.Lease(ctx, l.ID)
			if err != nil {
				t.Fatal(err)
			}
			now = got.Lease
			return now.HostIndex == w.linkIndex("tap0")
		})
		return now
	}
	first := bound("vm-1")
	if w.pass(); first.HostIndex != 0 {
		t.Fatalf("bound is %+v", first)
	}
	plug()
	now := recorded(first)
	if again := recorded(first); again.Revision != now.Revision || now.Revision == first.Revision {
		t.Errorf("recorded at %d, and again at %d", now.Revision, again.Revision)
	}
	before := ipam.Binding{HostInterface: "tap0", Plug: ipam.Plug{Boot: "the boot before", Index: 1}}
	if _, err := w.program.book.Bind(ctx, ipam.Who{Actor: ipam.ByClient, Reason: "bound"}, first.ID, 0, before); err != nil {
		t.Fatal(err)
	}
	recorded(first)
	w.ns.Exec("ip", "link", "del", "tap0")
	plug()
	second := bound("vm-2")
	if _, err := w.client.Release(ctx, first.ID, api.ReleaseRequest{}); err != nil {
		t.Fatal(err)
	}
	w.gone(first)
	if got := w.state(second.Address); got != api.Bound {
		t.Errorf("the successor is %s", got)
	}
}

// A sandbox that is made anew, with its names, does not keep the address of the one
// before: neither the link nor the namespace is the same.
func TestG4ASuccessorInheritsItsNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	port := w.ns.Port("rt0")
	bound := func(uid, netns string) api.Lease {
		return w.boundToIts("job", uid, api.BindRequest{HostInterface: "eth-job", Netns: netns})
	}
	w.ns.Exec("ip", "link", "set", port.HostName, "name", "eth-job")
	first := bound("job-1", port.NS.Path())
	w.ns.Exec("ip", "link", "set", "eth-job", "name", port.HostName)
	port.Close()
	next := w.ns.Port("rt0")
	w.ns.Exec("ip", "link", "set", next.HostName, "name", "eth-job")
	second := bound("job-2", next.NS.Path())
	if _, err := w.client.Release(ctx, first.ID, api.ReleaseRequest{}); err != nil {
		t.Fatal(err)
	}
	w.gone(first)
	if got := w.state(second.Address); got != api.Bound {
		t.Errorf("the successor is %s", got)
	}
}

// boundToIts allocates for an incarnation, and binds until the link and the namespace
// are recorded, which a bind leaves out where the kernel is busy.
func (w *world) boundToIts(sandbox, uid string, where api.BindRequest) api.Lease {
	w.t.Helper()
	r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: sandbox, UID: uid})
	if err != nil {
		w.t.Fatal(err)
	}
	var l api.Lease
	realtest.Eventually(w.t, wait, "a bind to find what it names", func() bool {
		l = w.bindTo(r.Leases[0].ID, where)
		return l.HostIndex != 0 && (where.Netns == "" || l.NetnsInode != 0)
	})
	return l
}

func (w *world) bindTo(id string, where api.BindRequest) api.Lease {
	w.t.Helper()
	r, err := w.client.Bind(ctx, id, where)
	if err != nil {
		w.t.Fatal(err)
	}
	return r.Lease
}
