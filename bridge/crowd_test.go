package bridge

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/nstest"
)

// A namespace with many ports and many addresses: each address is posted once, at the
// port whose far end has it, and one more address costs as few questions as behind
// a single port.
func TestF25ManyPortsIntoOneNamespace(t *testing.T) {
	t.Parallel()
	const ports, addresses = 200, 300
	ns, guest := nstest.New(t), nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/16")
	rt0, err := ns.Netlink().LinkByName("rt0")
	if err != nil {
		t.Fatal(err)
	}
	inside, err := os.Open(guest.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	for i := range ports {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MasterIndex = fmt.Sprint("crowd", i), rt0.Attrs().Index
		veth := netlink.NewVeth(attrs)
		veth.PeerName, veth.PeerNamespace = fmt.Sprint("eth", i), netlink.NsFd(inside.Fd())
		if err := ns.Netlink().LinkAdd(veth); err != nil {
			t.Fatal(err)
		}
	}
	for i := range addresses {
		guest.AddAddr(fmt.Sprint("eth", i%ports), fmt.Sprintf("10.8.%d.%d/16", 1+i/200, 1+i%200))
	}
	guest.AddAddr("lo", "10.8.9.9/32")
	v := open(t, ns)
	if n := len(v.board.By(census.Netns)); n != addresses+1 {
		t.Errorf("%d addresses behind %d ports are %d sightings", addresses+1, ports, n)
	}
	s := v.about("10.8.1.8").Seen[0]
	if s.Port != "crowd7" || !s.Behind("crowd7") || !s.Behind("crowd8") || s.Behind("rt0") {
		t.Errorf("the sighting is %+v", s)
	}
	if s := v.about("10.8.9.9").Seen[0]; !s.Behind("crowd0") || !s.Behind(fmt.Sprint("crowd", ports-1)) {
		t.Errorf("the sighting of one on lo is %+v", s)
	}

	v.settle()
	guest.AddAddr("eth0", "10.8.200.1/16")
	if n := v.asks(func() { v.expect("10.8.200.1", "netns") }); n > 8 {
		t.Errorf("one more address was %d questions to the kernel", n)
	}
	guest.Exec("ip", "link", "set", "eth5", "alias", "x")
	if n := v.asks(v.settle); n > 8 {
		t.Errorf("another alias was %d questions to the kernel", n)
	}
	ns.Exec("ip", "link", "del", "crowd7")
	v.expect("10.8.1.8", "")
	v.expect("10.8.1.9", "netns")
	if s := v.about("10.8.1.9").Seen[0]; s.Behind("crowd7") {
		t.Errorf("it is seen behind a port that is gone: %+v", s)
	}
	v.noneSilent()
}

// asks is how many questions were put to the kernel while do ran.
func (v *view) asks(do func()) uint32 {
	v.mu.Lock()
	before := v.kernel.Asked()
	v.mu.Unlock()
	do()
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.kernel.Asked() - before
}

// Whatever holds the bridge, a call returns at its deadline, and what only reads
// memory at once.
func TestF25DeadlineBesideAHeldLock(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	p := ns.Port("rt0", "10.8.0.7/24")
	v := open(t, ns)
	addr := netip.MustParseAddr("10.8.0.7")
	v.mu.Lock()
	defer v.mu.Unlock()
	for name, call := range map[string]func(context.Context) error{
		"Settle":  func(ctx context.Context) error { return v.Settle(ctx, addr) },
		"Refresh": v.Refresh,
		"Probe":   func(ctx context.Context) error { return v.Probe(ctx, addr) },
		"Forget":  func(ctx context.Context) error { return v.Forget(ctx, single(addr)) },
		"Plugged": func(ctx context.Context) error {
			_, err := v.Plugged(ctx, p.HostName, time.Time{}, "", 0)
			return err
		},
		"NetnsID": func(ctx context.Context) error {
			_, err := v.NetnsID(ctx, p.NS.Path())
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
	if s := v.Status(); s.Ports != 1 || s.MTU == 0 || v.MTU() != s.MTU || s.MAC == "" || !s.Ready || !v.PortNames()[p.HostName] {
		t.Errorf("%+v, ports %v", s, v.PortNames())
	}
	select {
	case <-v.Changed():
		t.Error("a port moved")
	default:
	}
}
