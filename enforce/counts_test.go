package enforce

import (
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/ipam"
)

// What a port sent before it was a lease's, or was another's, is not said of the lease; what the
// lease sends is. After a restart nothing is recent that is not sent then.
func TestE7WhoseRefusals(t *testing.T) {
	t.Parallel()
	w, ns := new(one), nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	p := ns.Port("rt0")
	link, err := ns.Netlink().LinkByName(p.HostName)
	if err != nil {
		t.Fatal(err)
	}
	index, wire := link.Attrs().Index, p.NS.Wire("eth0")
	w.ports = []Port{{Index: index, Name: p.HostName, Bridge: "rt0"}}
	open := func() *Keeper {
		var k *Keeper
		ns.Do(func() {
			k, err = Open(t.Context(), Config{Policy: Policy{Mode: Enforce, DropUnleased: true}, Book: w, Kernel: w, Boot: "boot", Every: time.Hour, Log: slog.New(slog.DiscardHandler)})
		})
		if err == nil {
			t.Cleanup(func() { _ = k.Close() })
			err = k.Start(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	k := open()
	total := func() (n uint64) {
		all, err := k.Refusals()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range all {
			n += r.Packets
		}
		return n
	}
	send := func(more uint64) { // what no lease may
		t.Helper()
		before := total()
		for range more {
			wire.Send(nstest.Frame(net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 9, 9}, 0x86dd, make([]byte, 60)...))
		}
		for end := time.Now().Add(5 * time.Second); total() < before+more; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d are counted, of %d", total()-before, more)
			}
		}
	}
	bind := func(id string, n byte) {
		t.Helper()
		w.leases = []*ipam.Lease{{ID: id, Addr: netip.AddrFrom4([4]byte{10, 8, 0, n}), State: ipam.Bound, Rev: int64(n), HostInterface: p.HostName, MAC: p.MAC.String(), Plug: ipam.Plug{Index: index, Boot: "boot"}}}
		if err := k.Ensure(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		_ = total() // Run reads it behind a bind
	}
	reply := func(when string, want uint64) {
		t.Helper()
		_ = total()
		var recent, shown uint64
		for _, r := range k.Recently(time.Minute) {
			if r.Port == index && len(r.Grants) > 0 {
				recent += r.Packets
			}
		}
		v, err := k.View(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		for _, port := range v.Ports {
			for _, r := range port.Refused {
				shown += r.Packets
			}
		}
		if recent != want || shown != want {
			t.Errorf("%s: %d packets are recent and %d are shown, want %d", when, recent, shown, want)
		}
	}
	send(5) // as any kernel does once its link is up
	bind("a", 2)
	reply("the port sent before the bind", 0)
	send(3)
	reply("the lease sent", 3)
	if err := k.Withdraw(t.Context(), "a", 2); err != nil {
		t.Fatal(err)
	}
	bind("b", 3)
	reply("the lease before it sent", 0)
	send(2)
	reply("the second lease sent", 2)
	before := total()
	_ = k.Close()
	k = open()
	reply("before a restart", 0)
	if after := total(); after < before {
		t.Errorf("%d packets are counted after a restart, and %d before it", after, before)
	}
	send(1)
	reply("after it", 1)
}

// TestE7CountersOfPortsThatAreGoneAreCountedOnce: what ports counted that are gone is counted once, also where another program has
// deleted one of their counters, so that the kernel refuses to delete them together.
func TestE7CountersOfPortsThatAreGoneAreCountedOnce(t *testing.T) {
	t.Parallel()
	w, ns := new(one), nstest.New(t)
	var k *Keeper
	var err error
	ns.Do(func() {
		k, err = Open(t.Context(), Config{Policy: Policy{Mode: Enforce}, Book: w, Kernel: w, Boot: "boot", Every: time.Hour, Log: slog.New(slog.DiscardHandler)})
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	for _, name := range []string{"a", "b", "c", "d"} {
		w.bind(name)
	}
	if err := k.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	const set = "bridge " + TableName + " refused_mac"
	ns.Exec("nft", "add element "+set+" { 70000 counter packets 1 bytes 60, 70001 counter packets 20 bytes 1200, 70002 counter packets 300 bytes 18000, 70003 counter packets 4000 bytes 240000 }")
	counts := func(when string) {
		t.Helper()
		var packets, bytes uint64
		all, err := k.Refusals()
		for _, r := range all {
			packets, bytes = packets+r.Packets, bytes+r.Bytes
		}
		if err != nil || packets != 4321 || bytes != 60*packets {
			t.Errorf("%s: %d packets of %d bytes are counted: %v", when, packets, bytes, err)
		}
	}
	counts("at first")
	ns.Exec("nft", "delete element "+set+" { 70001 }")
	for _, l := range w.leases[:3] {
		l.State = ipam.Cooling
	}
	w.ports = w.ports[3:]
	if err := k.follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		counts("the ports are gone, and the counter of one")
	}
	left, err := k.conn.Counters(table, sets[NotItsMAC.set()])
	if err != nil || len(left) != 1 || len(k.refused.counts) != 2 {
		t.Errorf("%d counters are in the kernel, and %d in memory: %v", len(left), len(k.refused.counts), err)
	}
}
