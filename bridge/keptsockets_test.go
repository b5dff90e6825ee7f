package bridge

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/ipamd/ipamd/bridge/rtnl"
	"github.com/ipamd/ipamd/internal/nstest"
)

// The sockets stay open from one Forget to the next, and not beyond Close; a
// broken one costs one answer; and a bridge that was made again is the one
// whose neighbours are forgotten, though the socket is older than it.
func TestForgetKeepsItsSockets(t *testing.T) {
	ns := nstest.New(t) // alone: descriptors are counted
	ns.Bridge("rt0", "10.8.0.1/24")
	none := descriptors(t)
	v := open(t, ns)
	addr := netip.MustParseAddr("10.8.0.99")
	forget := func() {
		t.Helper()
		setNeighbour(t, ns, "10.8.0.99", "02:aa:aa:aa:aa:01", netlink.NUD_REACHABLE)
		v.expect("10.8.0.99", "neighbour")
		if err := v.Forget(context.Background(), single(addr)); err != nil {
			t.Fatal(err)
		}
		v.expect("10.8.0.99", "")
	}
	forget()
	socket := func() (k *rtnl.Socket) {
		t.Helper()
		if err := v.tables.Ask(context.Background(), func(asked *rtnl.Socket) error { k = asked; return nil }); err != nil {
			t.Fatal(err)
		}
		return k
	}
	first, before := socket(), descriptors(t)
	for range 10 {
		forget()
	}
	if socket() != first || descriptors(t) != before {
		t.Errorf("%d descriptors were open, now %d", before, descriptors(t))
	}

	ns.Exec("ip", "link", "del", "rt0")
	ns.Bridge("rt0", "10.8.0.1/24")
	setNeighbour(t, ns, "10.8.0.99", "02:aa:aa:aa:aa:01", netlink.NUD_REACHABLE)
	if err := v.Forget(context.Background(), single(addr)); !errors.Is(err, errUnread) { // before anything else looked
		t.Error(err)
	}
	v.settle()
	forget()

	broken := errors.New("broken")
	if err := v.tables.Ask(context.Background(), func(*rtnl.Socket) error { return broken }); err != broken {
		t.Errorf("asked: %v", err)
	}
	forget()
	if socket() == first {
		t.Error("a socket that failed was asked again")
	}
	v.Close()
	if left := descriptors(t); left != none {
		t.Errorf("%d descriptors are open after Close, %d were before Open", left, none)
	}
	if err := v.tables.Ask(context.Background(), func(*rtnl.Socket) error { return nil }); !errors.Is(err, ErrClosed) {
		t.Errorf("asked after Close: %v", err)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}
