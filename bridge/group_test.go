package bridge

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/bridge/nspath"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

func aBridge(name, pool, gateway string) Want {
	p := netip.MustParsePrefix(pool)
	return Want{Name: name, Pools: []netip.Prefix{p}, Desired: Desired{Gateways: []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr(gateway), p.Bits())}}}
}

func openGroup(t *testing.T, ns *nstest.NS, manage bool, wants ...Want) (*Group, *census.Board) {
	t.Helper()
	board := census.NewBoard()
	g, err := OpenGroup(context.Background(), Config{Name: "rt0", Netns: ns.Path(), Manage: manage}, board, wants...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	realtest.Eventually(t, wait, "its loops to run", g.running) // a bridge that comes before is read when they begin
	if err := g.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	return g, board
}

// Two bridges that others made. One lacks the gateway of one of its pools, then it goes and
// comes back: the pools of the other give all the while, and so does the other pool of the
// same bridge as long as it is there. The commands that an error names make it ready.
func TestAGroupIsReadyPoolByPool(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	ns.Bridge("br9", "10.9.0.1/24")
	nine := aBridge("br9", "10.9.0.0/24", "10.9.0.1")
	nine.Pools = append(nine.Pools, netip.MustParsePrefix("10.10.0.0/24"))
	nine.Desired.Gateways = append(nine.Desired.Gateways, netip.MustParsePrefix("10.10.0.1/24"))
	g, board := openGroup(t, ns, false, aBridge("rt0", "10.8.0.0/24", "10.8.0.1"), nine)
	ready := func(bridge, gateway string) error { return g.Ready(bridge, netip.MustParseAddr(gateway)) }
	var not *NotReadyError
	if !errors.As(ready("br9", "10.10.0.1"), &not) || not.Bridge != "br9" || !slices.Equal(not.Repair, []string{"ip addr add 10.10.0.1/24 dev br9"}) {
		t.Fatalf("%+v", not)
	}
	if err := errors.Join(ready("rt0", "10.8.0.1"), ready("br9", "10.9.0.1"), g.Ready("br9", netip.Addr{})); err != nil {
		t.Error(err)
	}
	if ready("br7", "10.8.0.1") == nil || ready("rt0", "10.8.0.9") == nil {
		t.Error("a bridge that is not there, or a gateway that is not wanted, is ready")
	}
	for _, c := range not.Repair {
		ns.Exec(strings.Fields(c)...)
	}
	settled := func(what string, is func() bool) {
		t.Helper()
		realtest.Eventually(t, wait, what, func() bool { return g.Settle(context.Background()) == nil && is() })
	}
	settled("the second gateway", func() bool { return ready("br9", "10.10.0.1") == nil })

	ns.Exec("ip", "link", "del", "br9")
	settled("the bridge to be missed", func() bool { return ready("br9", "10.9.0.1") != nil })
	ours, theirs := netip.MustParseAddr("10.8.0.7"), netip.MustParseAddr("10.9.0.7")
	if err := ready("rt0", "10.8.0.1"); err != nil {
		t.Error(err)
	}
	if a := board.About(ours); !a.Unseen() {
		t.Errorf("of an address on the bridge that is there: %+v", a)
	}
	if a := board.About(theirs); a.Unseen() || len(a.Silent) == 0 {
		t.Errorf("of one on the bridge that is gone: %+v", a)
	}
	if a := board.About(netip.MustParseAddr("192.0.2.1")); a.Unseen() {
		t.Errorf("of one that is on no bridge: %+v", a)
	}
	c := board.Census()
	if c.Complete() || !c.CompleteAbout(ours) || c.CompleteAbout(theirs) {
		t.Errorf("the census: %+v", c.Silent)
	}
	ns.Bridge("br9", "10.9.0.1/24")
	settled("it to be back", func() bool { return ready("br9", "10.9.0.1") == nil && board.About(theirs).Unseen() })
}

// A stranger with another bridge's address was seen on a bridge that is gone: that keeps no
// address of the other bridge, and the bridge's own ones are not free by it.
func TestAStaleSightingOfABridgeThatIsGone(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	ns.Bridge("br9", "10.9.0.1/24")
	g, board := openGroup(t, ns, false, aBridge("rt0", "10.8.0.0/24", "10.8.0.1"), aBridge("br9", "10.9.0.0/24", "10.9.0.1"))
	ours, theirs := netip.MustParseAddr("10.8.0.7"), netip.MustParseAddr("10.9.0.7")
	ns.Port("br9", "10.8.0.7/24", "10.9.0.7/24")
	seen := func(a netip.Addr) bool { return len(board.About(a).Seen) > 0 }
	realtest.Eventually(t, wait, "the stranger to be seen", func() bool {
		return g.Settle(context.Background()) == nil && seen(ours) && seen(theirs)
	})
	ns.Exec("ip", "link", "set", "br9", "name", "gone9") // with its ports, which carry on
	realtest.Eventually(t, wait, "its sighting to count no more", func() bool { return g.Settle(context.Background()) == nil && !seen(ours) })
	if !board.About(ours).Unseen() || len(board.Census().Seen[ours]) != 0 {
		t.Errorf("%+v", board.About(ours))
	}
	if !seen(theirs) || len(board.Census().Seen[theirs]) == 0 {
		t.Errorf("what was on the bridge itself is gone with it: %+v", board.About(theirs))
	}
	// The last pool of it is removed: it is looked after no more, and nothing waits for it. That its
	// ports are none of the group any more is news.
	news := g.Changed()
	if err := g.SetAll(context.Background(), aBridge("rt0", "10.8.0.0/24", "10.8.0.1")); err != nil {
		t.Fatal(err)
	}
	select {
	case <-news:
	default:
		t.Error("the ports of a bridge are gone, and no subscriber is woken")
	}
	if s := board.Silent(); len(s) != 0 || seen(theirs) || len(g.Statuses()) != 1 {
		t.Errorf("left behind: %+v, %+v", s, board.About(theirs))
	}
}

// A managed bridge that comes later is made, one that another process looks after says so
// until that ends, and neither is in the others' way.
func TestAGroupGrows(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	own := aBridge("rt0", "10.8.0.0/24", "10.8.0.1")
	g, _ := openGroup(t, ns, true, own)
	other, err := Open(Config{Name: "br8", Netns: ns.Path(), Board: census.NewBoard()})
	if err != nil {
		t.Fatal(err)
	}
	all := []Want{aBridge("br8", "10.7.0.0/24", "10.7.0.1"), aBridge("br9", "fd00:9::/64", "fd00:9::1"), own}
	if err := g.SetAll(context.Background(), all...); !errors.Is(err, ErrLocked) {
		t.Fatalf("%v, want the bridge of another process", err)
	}
	for bridge, gateway := range map[string]string{"rt0": "10.8.0.1", "br9": "fd00:9::1"} {
		if err := g.Ready(bridge, netip.MustParseAddr(gateway)); err != nil {
			t.Error(err)
		}
	}
	var not *NotReadyError
	if !errors.As(g.Ready("br8", netip.MustParseAddr("10.7.0.1")), &not) || !errors.Is(not, ErrLocked) {
		t.Errorf("%+v", not)
	}
	if s := g.Statuses(); s[0].Name != "rt0" || len(s) != 3 || len(g.Unready()) != 1 {
		t.Errorf("%+v", s)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if err := g.SetAll(context.Background(), all...); err != nil {
		t.Error(err)
	}
	if err := g.Ready("br8", netip.MustParseAddr("10.7.0.1")); err != nil {
		t.Error(err)
	}
}

// A bridge that another process has when the group is opened keeps no other from its work. Of an
// address on it nothing is known, and what is asked about one is an error, until it is free.
func TestAGroupOpensWithoutTheBridgeOfAnotherProcess(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	ns.Bridge("br8", "10.7.0.1/24")
	other, err := Open(Config{Name: "br8", Netns: ns.Path(), Board: census.NewBoard()})
	if err != nil {
		t.Fatal(err)
	}
	all := []Want{aBridge("br8", "10.7.0.0/24", "10.7.0.1"), aBridge("rt0", "10.8.0.0/24", "10.8.0.1")}
	g, board := openGroup(t, ns, false, all...)
	if err := g.Unopened(); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), fmt.Sprintf("pid %d", os.Getpid())) {
		t.Errorf("%v", err)
	}
	ours, theirs := netip.MustParseAddr("10.8.0.7"), netip.MustParseAddr("10.7.0.7")
	ctx := context.Background()
	if err := errors.Join(g.Ready("rt0", netip.MustParseAddr("10.8.0.1")), g.Settle(ctx), g.Settle(ctx, ours), g.Probe(ctx, ours), g.Forget(ctx, single(ours))); err != nil {
		t.Errorf("the bridge that is open: %v", err)
	}
	for what, err := range map[string]error{
		"ready": g.Ready("br8", netip.MustParseAddr("10.7.0.1")), "settle": g.Settle(ctx, theirs), "probe": g.Probe(ctx, theirs), "forget": g.Forget(ctx, single(theirs)),
	} {
		if !errors.Is(err, ErrLocked) {
			t.Errorf("%s, on the bridge of another process: %v", what, err)
		}
	}
	for what, err := range map[string]error{"settle": g.Settle(ctx, ours, theirs), "forget": g.Forget(ctx, single(theirs), single(ours))} {
		if ofOurs, ofTheirs := census.ErrorAbout(ours, err), census.ErrorAbout(theirs, err); ofOurs != nil || !errors.Is(ofTheirs, ErrLocked) {
			t.Errorf("%s, of both: %v of ours, %v of theirs", what, ofOurs, ofTheirs)
		}
	}
	port := ns.Port("br8", theirs.String()+"/24") // it is in use, and no witness can see that
	var into census.Into
	realtest.Eventually(t, wait, "the kernel to say which ports lead into a namespace", func() bool { // a loaded one may take longer than lookWithin
		into = g.PortsInto(ctx, census.RecordedNetns{Path: port.NS.Path(), Inode: inode(t, port.NS.Path())})[0]
		return into.Err == nil
	})
	if len(into.Ports) != 0 || len(into.Unopened) != 1 {
		t.Errorf("ports into a namespace behind the bridge of another process: %+v", into)
	}
	if bridge, err := g.Elsewhere(ctx, port.HostName); bridge != "" || err != nil {
		t.Errorf("a port of a bridge that is wanted is taken for one of %q, %v", bridge, err)
	}
	if a := board.About(ours); !a.Unseen() || !board.Census().CompleteAbout(ours) {
		t.Errorf("of an address on the bridge that is open: %+v", a)
	}
	if a := board.About(theirs); a.Unseen() || len(a.Answered) != 0 || board.Census().CompleteAbout(theirs) {
		t.Errorf("of one on the bridge of another process: %+v", a)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if err := g.SetAll(ctx, all...); err != nil || g.Unopened() != nil {
		t.Fatalf("%v, %v", err, g.Unopened())
	}
	if a := board.About(theirs); len(a.Seen) == 0 || len(a.Silent) != 0 {
		t.Errorf("of one on the bridge that is free again: %+v", a)
	}
}

// The own bridge of a group is what it cannot be without: OpenGroup names the process that has it.
func TestAGroupDoesNotOpenWithoutItsOwnBridge(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	open(t, ns)
	g, err := OpenGroup(context.Background(), Config{Name: "rt0", Netns: ns.Path()}, census.NewBoard(), aBridge("br8", "10.7.0.0/24", "10.7.0.1"))
	if g != nil || !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), fmt.Sprintf("pid %d", os.Getpid())) {
		t.Errorf("%v, %v", g, err)
	}
	b, err := Open(Config{Name: "br8", Netns: ns.Path(), Board: census.NewBoard()})
	if err != nil {
		t.Fatalf("a bridge of the group that was not opened: %v", err)
	}
	b.Close()
}

// TestIsPort: whether a link is a port of a bridge of the group is asked of the kernel, whatever memory has.
func TestIsPort(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	for _, name := range []string{"rt0", "br9", "other0"} {
		ns.Bridge(name)
	}
	g, _ := openGroup(t, ns, false, aBridge("rt0", "10.8.0.0/24", "10.8.0.1"), aBridge("br9", "10.9.0.0/24", "10.9.0.1"))
	a, b, other, none := ns.Port("rt0"), ns.Port("br9"), ns.Port("other0"), ns.Port("rt0")
	ns.Exec("ip", "link", "set", none.HostName, "nomaster")
	l, err := ns.Netlink().LinkByName(a.HostName)
	if err != nil {
		t.Fatal(err)
	}
	ns.Exec("ip", "link", "set", a.HostName, "name", "new0")
	for what, c := range map[string]struct {
		name  string
		index int
		is    bool
	}{
		"by its name": {"new0", 0, true}, "renamed since": {a.HostName, l.Attrs().Index, true}, "of another bridge of ours": {b.HostName, 0, true},
		"of another": {other.HostName, 0, false}, "of none": {none.HostName, 0, false}, "no link": {a.HostName, 0, false},
		"a link that is gone": {"new0", 1 << 20, false}, "a name that no link can have": {"a name of more bytes", 0, false},
	} {
		if is, err := g.IsPort(context.Background(), c.name, c.index); err != nil || is != c.is {
			t.Errorf("%s: %t, %v", what, is, err)
		}
	}
	for _, p := range []*nstest.Port{a, b, other} {
		of := census.RecordedNetns{Path: p.NS.Path(), Inode: inode(t, p.NS.Path())}
		into := g.PortsInto(context.Background(), of)[0]
		for range 50 { // a loaded machine does not report it within lookWithin
			if !errors.Is(into.Err, context.DeadlineExceeded) {
				break
			}
			into = g.PortsInto(context.Background(), of)[0]
		}
		if into.Err != nil || (len(into.Ports) == 1) != (p != other) {
			t.Errorf("%s: ports into its namespace: %+v", p.HostName, into)
		}
	}
	ended, stop := context.WithCancel(context.Background())
	stop()
	if into := g.PortsInto(ended, census.RecordedNetns{Path: a.NS.Path(), Inode: inode(t, a.NS.Path())}); into[0].Err == nil {
		t.Error("what could not be asked is no port")
	}
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	i, err := nspath.Inode(path)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// TestAGroupSaysWhosePortALinkIs: the links of all bridges, each with its name and its bridge.
func TestAGroupSaysWhosePortALinkIs(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	ns.Bridge("br9", "10.9.0.1/24")
	on := map[string]string{ns.Port("rt0").HostName: "rt0", ns.Port("br9").HostName: "br9", ns.Port("br9").HostName: "br9"}
	g, _ := openGroup(t, ns, false, aBridge("rt0", "10.8.0.0/24", "10.8.0.1"), aBridge("br9", "10.9.0.0/24", "10.9.0.1"))
	links := g.Ports()
	if len(links) != len(on) {
		t.Errorf("there are %v, want %v", links, on)
	}
	for _, l := range links {
		named, is := g.PortNamed(l.Name)
		if l.Bridge != on[l.Name] || !is || named != l || l.Index == 0 || g.PortIndexes()[l.Name] != l.Index {
			t.Errorf("%+v, by its name %+v", l, named)
		}
	}
	if l, is := g.PortNamed("br9"); is {
		t.Errorf("a bridge is a port: %+v", l)
	}
}
