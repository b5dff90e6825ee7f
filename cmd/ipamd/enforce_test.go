package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/enforce"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/nft"
	"github.com/ipamd/ipamd/workload"
)

func enforced(c *config.Config) { c.Enforce.Mode = "enforce" }

func dropUnleased(c *config.Config) { c.Enforce.Unleased = "drop" }

// plugIn gives a sandbox a lease and a port with its address, and binds them.
func (w *world) plugIn(sandbox string) (api.Lease, *nstest.Port) {
	w.t.Helper()
	l := w.allocate(sandbox).Leases[0]
	p := w.ns.Port("rt0", l.Address+"/24")
	realtest.Eventually(w.t, wait, "a bind to find what it names", func() bool {
		l = w.bindTo(l.ID, api.BindRequest{HostInterface: p.HostName, Netns: p.NS.Path(), MAC: p.MAC.String()})
		return l.HostIndex != 0 && l.NetnsInode != 0
	})
	return l, p
}

func (w *world) nft(args ...string) string {
	w.t.Helper()
	realtest.Need(w.t, "nft")
	return w.ns.Exec(append([]string{"nft"}, args...)...)
}

// ruled reports whether the kernel's table allows an address on a port.
func (w *world) ruled(p *nstest.Port, addr string) bool {
	w.t.Helper()
	return strings.Contains(w.nft("list", "set", "bridge", enforce.TableName, "ipv4"), fmt.Sprintf("%q . %s . %s", p.HostName, p.MAC, addr))
}

// asWished reports whether the kernel's table is f(book, ports), element by element.
func (w *world) asWished() bool {
	w.t.Helper()
	var same bool
	w.ns.Do(func() {
		c, err := nft.Open()
		if err != nil {
			w.t.Fatal(err)
		}
		defer c.Close()
		want := w.wished()
		have, err := c.Read(ctx, want)
		if err != nil {
			w.t.Fatal(err)
		}
		if have != nil { // the mark may be behind by changes that no rule follows from
			if s := have.Set("book"); s != nil {
				want.Set("book").Elements = s.Elements
			}
		}
		same = nft.Same(have, want)
	})
	return same
}

// wished is the table that follows from the book and the kernel's ports, read anew.
func (w *world) wished() *nft.Table {
	w.t.Helper()
	world := enforce.World{}
	links, err := w.ns.Netlink().LinkList()
	if err != nil {
		w.t.Fatal(err)
	}
	var bridge int
	for _, l := range links {
		if l.Attrs().Name == "rt0" {
			bridge = l.Attrs().Index
			own := enforce.Bridge{Name: "rt0", MAC: l.Attrs().HardwareAddr.String()}
			addrs, err := w.ns.Netlink().AddrList(l, netlink.FAMILY_ALL)
			if err != nil {
				w.t.Fatal(err)
			}
			for _, a := range addrs {
				addr, _ := netip.AddrFromSlice(a.IP)
				own.Addrs = append(own.Addrs, addr.Unmap())
			}
			world.Bridges = append(world.Bridges, own)
		}
	}
	for _, l := range links {
		if l.Attrs().MasterIndex == bridge {
			world.Ports = append(world.Ports, enforce.Port{Index: l.Attrs().Index, Name: l.Attrs().Name, Bridge: "rt0"})
		}
	}
	leases, _ := w.program.book.Leases()
	boot := ipam.Now().BootID
	for _, l := range leases {
		world.Grants = append(world.Grants, enforce.Grants(l, enforce.Where(l, world.Ports, workload.RecordedBy(leases, boot), nil))...)
	}
	for _, p := range w.program.book.Pools() {
		world.Gateways = append(world.Gateways, p.Gateway)
	}
	c := w.cfg.Enforce
	return enforce.Ruleset(enforce.Policy{Mode: enforce.Mode(c.Mode), DropUnleased: c.Unleased == "drop", Trusted: c.Trusted}, world)
}

// TestE2TheIncidentMadeOnPurpose: a second sandbox configures a neighbour's address by hand
// and announces it. No port receives a frame that says so, and the owner's connection goes on.
func TestE2TheIncidentMadeOnPurpose(t *testing.T) {
	t.Parallel()
	w := newWorld(t, enforced)
	owner, at := w.plugIn("owner")
	_, impostor := w.plugIn("impostor")
	_, peer := w.plugIn("peer")
	wire := peer.NS.Wire("eth0")
	impostor.AddAddr(owner.Address + "/24")
	ip := net.ParseIP(owner.Address).To4()
	claim := append([]byte{0, 1, 8, 0, 6, 4, 0, 1}, impostor.MAC...)
	claim = append(append(append(claim, ip...), make([]byte, 6)...), ip...)
	all := net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	out := impostor.NS.Wire("eth0")
	conn := echo(t, at.NS, peer.NS, owner.Address)
	for i := range 20 {
		out.Send(nstest.Frame(all, impostor.MAC, 0x0806, append(claim, make([]byte, 18)...)...))
		output, arrived := []byte{byte(i)}, []byte{0xff}
		if _, err := conn.Write(output); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, arrived); err != nil || arrived[0] != output[0] {
			t.Fatalf("the owner's connection answered %x to %x, %v", arrived, output, err)
		}
	}
	if got := peer.NS.Exec("ip", "neigh", "show", owner.Address); !strings.Contains(got, at.MAC.String()) {
		t.Errorf("the peer's neighbour is %q, and the owner has %s", got, at.MAC)
	}
	// What the impostor sends last and may: all before it has been received, or never will be.
	last := nstest.Frame(all, impostor.MAC, 0x0806, append(ownProbe(impostor, w.leaseAt(impostor)), make([]byte, 18)...)...)
	out.Send(last)
	for {
		f, ok := wire.Receive(wait)
		if !ok {
			t.Fatal("the impostor's own frame was not received")
		}
		if bytes.Equal(f, last) {
			break
		}
		if bytes.Equal(f[6:12], impostor.MAC) && bytes.Contains(f, ip) {
			t.Fatalf("the peer received the impostor with the owner's address: %x", f)
		}
	}
}

// echo connects one namespace to another, which sends back what it is sent.
func echo(t *testing.T, server, from *nstest.NS, addr string) (c net.Conn) {
	t.Helper()
	var l net.Listener
	var err error
	server.Do(func() { l, err = net.Listen("tcp", net.JoinHostPort(addr, "7")) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		if s, err := l.Accept(); err == nil {
			_, _ = io.Copy(s, s)
			_ = s.Close()
		}
	}()
	from.Do(func() { c, err = net.Dial("tcp", net.JoinHostPort(addr, "7")) })
	if err == nil {
		err = c.SetDeadline(time.Now().Add(wait))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func ownProbe(p *nstest.Port, addr netip.Addr) []byte {
	b := append([]byte{0, 1, 8, 0, 6, 4, 0, 1}, p.MAC...)
	return append(append(append(b, make([]byte, 4)...), make([]byte, 6)...), addr.AsSlice()...)
}

func (w *world) leaseAt(p *nstest.Port) netip.Addr {
	w.t.Helper()
	leases, _ := w.program.book.Leases()
	for _, l := range leases {
		if l.HostInterface == p.HostName {
			return l.Addr
		}
	}
	w.t.Fatalf("no lease is bound to %s", p.HostName)
	return netip.Addr{}
}

// TestE3BindIsAnsweredBehindItsRulesAndCoolingComesAfterThem: the answer to a bind finds the
// rules in the kernel; a lease that cools has none left, whenever it is looked at.
func TestE3BindIsAnsweredBehindItsRulesAndCoolingComesAfterThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick, enforced, dropUnleased)
	for i := range 10 {
		l, p := w.plugIn(fmt.Sprintf("s%d", i))
		if !w.ruled(p, l.Address) {
			t.Fatalf("%s is bound to %s, and the kernel has no rule for it:\n%s", l.Address, p.HostName, w.nft("list", "ruleset"))
		}
		if i%2 == 1 {
			continue
		}
		// The port stays a link of the same index, beside the bridge.
		w.ns.Exec("ip", "link", "set", p.HostName, "nomaster")
		p.DelAddr(l.Address + "/24")
		if _, err := w.client.Release(ctx, l.ID, api.ReleaseRequest{}); err != nil {
			t.Fatal(err)
		}
		realtest.Eventually(t, wait, "the release to be confirmed", func() bool {
			now := w.state(l.Address)
			if ruled := w.ruled(p, l.Address); ruled && now != api.Releasing {
				t.Fatalf("%s is %s, and was ruled after that", l.Address, now)
			}
			return w.state(l.Address) != api.Releasing
		})
	}
	realtest.Eventually(t, wait, "the rules to be as book and ports say", w.asWished)
}

// TestE3RulesFollowTheBookAfterARestart: what was changed while no daemon ran is made
// right at the next start, and what was right stays: no element of it is made anew.
func TestE3RulesFollowTheBookAfterARestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, enforced)
	stays, at := w.plugIn("stays")
	_, goes := w.plugIn("goes")
	w.stopDaemon()
	if !w.ruled(at, stays.Address) {
		t.Fatal("the rules went with the daemon")
	}
	goes.Close()
	w.nft("delete", "element", "bridge", enforce.TableName, "leased", "{", at.HostName, "}")
	w.start()
	realtest.Eventually(t, wait, "the rules to be as book and ports say", w.asWished)
	if !w.ruled(at, stays.Address) {
		t.Error("the lease that stayed has no rules")
	}
}

// TestE4ForeignChangesAreRepaired: each thing that another program does to the table is
// counted, logged with its name, and undone; other ports' elements are never away.
func TestE4ForeignChangesAreRepaired(t *testing.T) {
	t.Parallel()
	w := newWorld(t, enforced)
	l, p := w.plugIn("a")
	w.plugIn("b")
	realtest.Eventually(t, wait, "the rules to be as book and ports say", w.asWished)
	for i, hand := range []string{
		fmt.Sprintf("delete element bridge ipamd ipv4 { %s . %s . %s }", p.HostName, p.MAC, l.Address),
		"flush chain bridge ipamd ports", "delete table bridge ipamd", "flush ruleset",
		"add rule bridge ipamd ports accept", "insert rule bridge ipamd leased accept",
		"add table bridge ipamd { flags dormant; }", "add chain bridge ipamd ports { policy drop; }",
	} {
		w.nft(hand)
		realtest.Eventually(t, wait, "the change to be noticed: "+hand, func() bool { return w.program.keeper.Status().Foreign == uint64(i+1) })
		realtest.Eventually(t, wait, "the rules to be as before: "+hand, w.asWished)
		// Where the kernel's news of one change is read in two parts, that is two repairs.
		realtest.Eventually(t, wait, "its repair to be counted: "+hand, func() bool { return w.program.keeper.Status().Repairs > uint64(i) })
	}
	for _, output := range []string{"another program changed the rules", "program=nft", "the rules were not as the book has them"} {
		if !strings.Contains(w.log.String(), output) {
			t.Errorf("the log does not say %q", output)
		}
	}
}

// TestE5OthersTablesAreTheirsAndOffLeavesNone: tables of others stay byte for byte, with
// ours made, repaired and taken away; with mode off nothing of ours is there.
func TestE5OthersTablesAreTheirsAndOffLeavesNone(t *testing.T) {
	t.Parallel()
	w := prepare(t, enforced)
	w.ns.Bridge("rt0", "10.8.64.1/24")
	w.nft("add table bridge theirs; add chain bridge theirs c { type filter hook prerouting priority -310; }; add rule bridge theirs c counter accept; add table inet ipamd; add chain inet ipamd c")
	theirs := func() string {
		return w.nft("-s", "list", "table", "bridge", "theirs") + w.nft("list", "table", "inet", "ipamd")
	}
	before := theirs()
	w.start()
	w.plugIn("a")
	w.nft("delete table bridge ipamd")
	realtest.Eventually(t, wait, "the table to be made again", w.asWished)
	if got := theirs(); got != before {
		t.Errorf("theirs is\n%s\nand was\n%s", got, before)
	}
	w.stopDaemon()
	w.cfg.Enforce.Mode = "off"
	w.nft("add table bridge ipamd-try") // a start that was killed left it
	w.start()
	if got := w.nft("list", "tables"); strings.Contains(got, "bridge ipamd") {
		t.Errorf("mode is off, and there is\n%s", got)
	}
	w.plugIn("b")
	if got := w.nft("list", "tables"); strings.Contains(got, "bridge ipamd") {
		t.Errorf("mode is off, and a bind made\n%s", got)
	}
	if got := theirs(); got != before {
		t.Errorf("theirs is\n%s\nand was\n%s", got, before)
	}
}

// TestE5FlushTakesOursAway: what the package does when it is removed takes away each table that a
// stopped daemon has left, and none of others.
func TestE5FlushTakesOursAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, enforced, func(c *config.Config) { c.Idle.After = config.Duration(time.Hour) })
	w.nft("add table bridge theirs; add table inet ipamd; add table netdev theirs")
	l, _ := w.plugIn("a")
	if _, err := w.client.Pause(ctx, l.ID, api.PauseRequest{Mode: api.Freeze, Wake: &api.WakePolicy{}}); err != nil {
		t.Fatal(err)
	}
	w.stopDaemon()
	w.nft("add table bridge ipamd-try; add table netdev ipamd-wake-try") // one that was killed while it looked at what the kernel can
	flush := func() string { return w.ns.Exec(realtest.Program(t, "cmd/ipamd"), "flush") }
	out := flush()
	for _, table := range []string{"bridge ipamd", "bridge ipamd-idle", "netdev ipamd-wake"} {
		if !strings.Contains(out, "table "+table+" is gone\n") {
			t.Errorf("%s is not said to be gone: %s", table, out)
		}
	}
	after := w.nft("list", "tables")
	if want := "table bridge theirs\ntable inet ipamd\ntable netdev theirs\n"; strings.Join(sortedLines(after), "") != want {
		t.Errorf("there are\n%s\nwant\n%s", after, want)
	}
	if out := flush(); out != "" {
		t.Errorf("once more: %s", out)
	}
}

func sortedLines(text string) []string { return slices.Sorted(strings.Lines(text)) }

// TestE8NoRuleOfAnOldOwnerSurvives: a port that is renamed keeps its rules; one that leaves
// the bridge, or the namespace, has none; a new one of its name has none of the old one's.
func TestE8NoRuleOfAnOldOwnerSurvives(t *testing.T) {
	t.Parallel()
	w := newWorld(t, enforced)
	l, p := w.plugIn("a")
	old := p.HostName
	w.ns.Exec("ip", "link", "set", old, "name", "other0")
	p.HostName = "other0"
	realtest.Eventually(t, wait, "the rules to be as book and ports say", w.asWished)
	if !w.ruled(p, l.Address) {
		t.Error("a port that was renamed has no rules")
	}
	w.ns.Exec("ip", "link", "add", old, "type", "veth", "peer", "name", "far0")
	w.ns.Exec("ip", "link", "set", old, "master", "rt0", "up")
	realtest.Eventually(t, wait, "the new port to have no lease", func() bool {
		return strings.Contains(w.nft("list", "set", "bridge", enforce.TableName, "unleased"), `"`+old+`"`)
	})
	for range 5 { // it flaps
		w.ns.Exec("ip", "link", "set", "other0", "nomaster")
		w.ns.Exec("ip", "link", "set", "other0", "master", "rt0")
	}
	// What the kernel has reported of the port going is still read when it is back already.
	realtest.Eventually(t, wait, "a port that came back to have its rules", func() bool { return w.asWished() && w.ruled(p, l.Address) })
	away := nstest.New(t)
	w.ns.Exec("ip", "link", "set", "other0", "netns", away.Name())
	realtest.Eventually(t, wait, "a port in another namespace to have no rules", func() bool {
		return !strings.Contains(w.nft("list", "set", "bridge", enforce.TableName, "ipv4"), l.Address) && w.asWished()
	})
	if strings.Contains(w.nft("list", "set", "bridge", enforce.TableName, "ipv4"), l.Address) {
		t.Error("the address is still some port's")
	}
}
