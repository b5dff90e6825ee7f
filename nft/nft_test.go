package nft_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/nft"
)

var update = flag.Bool("update", false, "write the golden files")

var mac = net.HardwareAddr{2, 0, 0, 0, 0, 1}

// everything is a table with a part of every kind.
func everything() *nft.Table {
	addr := netip.MustParseAddr
	return &nft.Table{Family: nft.Bridge, Name: "ipamd-test",
		Sets: []*nft.Set{
			{Name: "links", Key: []nft.Type{nft.Link}, Elements: []nft.Element{{Key: nft.Key(7)}, {Key: nft.Key(9), Comment: "the second"}}},
			{Name: "macs", Key: []nft.Type{nft.MAC}, Elements: []nft.Element{{Key: nft.Key(mac)}}},
			{Name: "sources", Key: []nft.Type{nft.Link, nft.MAC, nft.IPv4}, Elements: []nft.Element{
				{Key: nft.Key(7, mac, addr("10.0.0.7"))}, {Key: nft.Key(7, mac, addr("10.0.0.8"))}}},
			{Name: "prefixes", Key: []nft.Type{nft.Link, nft.IPv6}, Interval: true, Elements: []nft.Element{
				{Key: nft.Key(7, addr("fd00::")), End: nft.Key(7, addr("fd00::ffff"))}}},
			{Name: "ways", Key: []nft.Type{nft.Link, nft.IPv4}, Verdicts: true, Elements: []nft.Element{
				{Key: nft.Key(7, addr("10.0.0.9")), Verdict: nft.To("other")}}},
			{Name: "seen", Key: []nft.Type{nft.Link}, Dynamic: true, Size: 1024},
			{Name: "recently", Key: []nft.Type{nft.IPv4}, Dynamic: true, Size: 1024, Timeout: time.Second},
		},
		Chains: []*nft.Chain{
			{Name: "begin", Base: &nft.Base{Hook: nft.Prerouting, Priority: -310}, Rules: []nft.Rule{
				{Why: "what is known", Do: []nft.Statement{nft.In("links", nft.InLink), nft.Goto("other")}},
				{Do: []nft.Statement{nft.Is(nft.EtherType, nft.TypeIPv4), nft.By("ways", nft.InLink, nft.IPv4Source)}},
			}},
			{Name: "other", Rules: []nft.Rule{
				{Do: []nft.Statement{nft.NotIn("macs", nft.EtherSource), nft.Count("seen", nft.InLink), nft.Drop()}},
				{Do: []nft.Statement{nft.Is(nft.EtherType, nft.TypeIPv4), nft.In("sources", nft.InLink, nft.EtherSource, nft.IPv4Source), nft.Accept()}},
				{Do: []nft.Statement{nft.Is(nft.EtherType, nft.TypeARP), nft.Bytes(0, 0, 1, 8, 0, 6, 4), nft.In("sources", nft.InLink, nft.ARPSourceMAC, nft.ARPSource), nft.Accept()}},
				{Do: []nft.Statement{nft.Is(nft.EtherType, nft.TypeIPv6), nft.Within(nft.IPv6Source, netip.MustParsePrefix("fe80::/10")), nft.Return()}},
				{Do: []nft.Statement{nft.Is(nft.EtherType, nft.TypeIPv6), nft.In("prefixes", nft.InLink, nft.IPv6Source), nft.Accept()}},
				{Do: []nft.Statement{nft.Is(nft.EtherType, nft.TypeIPv6), nft.Is(nft.L4Proto, uint8(58)), nft.Is(nft.ICMPv6Type, uint8(136)), nft.IsNot(nft.NDTarget, addr("fd00::1")), nft.Drop()}},
				{Do: []nft.Statement{nft.Is(nft.EtherType, nft.TypeIPv4), nft.AtMost("recently", time.Second, 1, 5, nft.IPv4Dest), nft.Log(17, 128), nft.Counted()}},
				{Do: []nft.Statement{nft.Jump("end")}},
			}},
			{Name: "end", Rules: []nft.Rule{{Why: "the end", Do: []nft.Statement{nft.Drop()}}}},
		}}
}

func open(t *testing.T, ns *nstest.NS) (c *nft.Conn) {
	t.Helper()
	ns.Do(func() {
		var err error
		if c, err = nft.Open(); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func read(t *testing.T, c *nft.Conn, like *nft.Table) *nft.Table {
	t.Helper()
	got, err := c.Read(t.Context(), like)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func apply(t *testing.T, c *nft.Conn, have, want *nft.Table) {
	t.Helper()
	if err := c.Apply(t.Context(), have, want); err != nil {
		t.Fatal(err)
	}
	if got := read(t, c, want); !nft.Same(got, want) {
		t.Errorf("read back:\n%s\nwant:\n%s", got, want)
	}
}

// TestATableIsReadBackAsItWasMade: what was applied is what is there, in nft's own words
// too, and to apply it once more is no transaction.
func TestATableIsReadBackAsItWasMade(t *testing.T) {
	ns := nstest.New(t)
	c := open(t, ns)
	want := everything()
	if got := read(t, c, want); got != nil {
		t.Fatalf("a new namespace has the table:\n%s", got)
	}
	apply(t, c, nil, want)
	realtest.Need(t, "nft")
	golden(t, "everything.nft", ns.Exec("nft", "-n", "-n", "list", "table", "bridge", want.Name))
	golden(t, "everything.txt", want.String())

	before, err := c.Generation()
	if err != nil {
		t.Fatal(err)
	}
	apply(t, c, read(t, c, want), want)
	if after, err := c.Generation(); err != nil || after != before {
		t.Errorf("the same table once more made generation %d of %d (%v)", after, before, err)
	}
	if err := c.Remove(t.Context(), nft.Bridge, want.Name); err != nil {
		t.Error(err)
	}
	if err := c.Remove(t.Context(), nft.Bridge, want.Name); err != nil {
		t.Errorf("remove what is not there: %v", err)
	}
	if out := ns.Exec("nft", "list", "tables"); strings.TrimSpace(out) != "" {
		t.Errorf("left: %s", out)
	}
}

// TestASetOfRangesInOtherPartsIsMadeAnew: an address of IPv6 in one part, as an earlier version of
// ours had it, is not met in each of its bytes by every kernel.
func TestASetOfRangesInOtherPartsIsMadeAnew(t *testing.T) {
	realtest.Need(t, "nft")
	ns := nstest.New(t)
	c := open(t, ns)
	want := &nft.Table{Family: nft.Bridge, Name: "ipamd-test", Sets: []*nft.Set{{Name: "prefixes", Key: []nft.Type{nft.Link, nft.IPv6}, Interval: true,
		Elements: []nft.Element{{Key: nft.Key(7, netip.MustParseAddr("fd00::")), End: nft.Key(7, netip.MustParseAddr("fd00::ffff"))}}}}}
	ns.Exec("nft", "add table bridge ipamd-test; add set bridge ipamd-test prefixes { type iface_index . ipv6_addr; flags interval; }")
	have := read(t, c, want)
	if nft.Same(have, want) {
		t.Fatal("taken for the same")
	}
	apply(t, c, have, want)
	if got := ns.Exec("nft", "list", "table", "bridge", want.Name); strings.Contains(got, "ipv6_addr") {
		t.Errorf("left as it was:\n%s", got)
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := "testdata/" + name
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is\n%s\nwant\n%s", name, got, want)
	}
}

// TestForeignChangesAreUndone: whatever another hand does to the table, one Apply of the
// difference makes it whole, and nothing that was right is touched.
func TestForeignChangesAreUndone(t *testing.T) {
	realtest.Need(t, "nft")
	for what, hand := range map[string][]string{
		"an element deleted":        {"delete element bridge ipamd-test sources { 7 . 02:00:00:00:00:01 . 10.0.0.7 }"},
		"an element added":          {"add element bridge ipamd-test sources { 8 . 02:00:00:00:00:01 . 10.0.0.7 }"},
		"a range deleted":           {"flush set bridge ipamd-test prefixes"},
		"a comment lost":            {"delete element bridge ipamd-test links { 9 }", "add element bridge ipamd-test links { 9 }"},
		"a verdict changed":         {"delete element bridge ipamd-test ways { 7 . 10.0.0.9 }", "add element bridge ipamd-test ways { 7 . 10.0.0.9 : drop }"},
		"a rule added":              {"add rule bridge ipamd-test end accept"},
		"a rule put first":          {"insert rule bridge ipamd-test begin accept"},
		"rules flushed":             {"flush chain bridge ipamd-test begin"},
		"a chain of theirs":         {"add chain bridge ipamd-test theirs", "add rule bridge ipamd-test theirs drop", "add rule bridge ipamd-test end jump theirs"},
		"a set of theirs":           {"add set bridge ipamd-test theirs { type mark; }", "add element bridge ipamd-test theirs { 1 }"},
		"a chain deleted":           {"flush chain bridge ipamd-test other", "flush chain bridge ipamd-test end", "delete chain bridge ipamd-test end"},
		"a set deleted":             {"flush chain bridge ipamd-test other", "delete set bridge ipamd-test macs"},
		"a set of another type":     {"flush chain bridge ipamd-test other", "delete set bridge ipamd-test macs", "add set bridge ipamd-test macs { type mark; }"},
		"a base chain somewhere":    {"flush chain bridge ipamd-test begin", "delete chain bridge ipamd-test begin", "add chain bridge ipamd-test begin { type filter hook forward priority 5; }"},
		"the table put to sleep":    {"add table bridge ipamd-test { flags dormant; }"},
		"a policy to drop":          {"add chain bridge ipamd-test begin { policy drop; }"},
		"both, and rules flushed":   {"add table bridge ipamd-test { flags dormant; }", "add chain bridge ipamd-test begin { policy drop; }", "flush chain bridge ipamd-test begin"},
		"the table deleted":         {"delete table bridge ipamd-test"},
		"everything flushed":        {"flush ruleset"},
		"the table made by another": {"flush ruleset", "add table bridge ipamd-test"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			ns := nstest.New(t)
			c := open(t, ns)
			want := everything()
			apply(t, c, nil, want)
			ns.Exec("nft", strings.Join(hand, "; "))
			got := read(t, c, want)
			if nft.Same(got, want) {
				t.Fatal("the change is not seen")
			}
			apply(t, c, got, want)
		})
	}
}

// TestAChangeMadeForAnotherTableIsRefused: a difference that was made from what is not
// there any more changes nothing, and says so.
func TestAChangeMadeForAnotherTableIsRefused(t *testing.T) {
	ns := nstest.New(t)
	c := open(t, ns)
	want := everything()
	apply(t, c, nil, want)
	sources := want.Set("sources")
	gone := sources.Elements[0]
	if err := c.Edit(t.Context(), want, nft.Edit{Set: sources, Del: []nft.Element{gone}}); err != nil {
		t.Fatal(err)
	}
	extra := nft.Element{Key: nft.Key(11, mac, netip.MustParseAddr("10.0.0.11"))}
	if err := c.Apply(t.Context(), nil, want); !errors.Is(err, nft.ErrChanged) {
		t.Errorf("make a table that is there: %v", err)
	}
	err := c.Edit(t.Context(), want, nft.Edit{Set: sources, Del: []nft.Element{gone}, Add: []nft.Element{extra}})
	if !errors.Is(err, nft.ErrChanged) {
		t.Errorf("delete an element twice: %v", err)
	}
	got := read(t, c, want).Set("sources")
	if len(got.Elements) != 1 || got.Elements[0] != sources.Elements[1] {
		t.Errorf("a refused change left %v", got.Elements)
	}
	if err := c.Edit(t.Context(), want, nft.Edit{Set: sources, Add: []nft.Element{gone, sources.Elements[1]}}); err != nil {
		t.Errorf("add what is there: %v", err)
	}
	if got := read(t, c, want); !nft.Same(got, want) {
		t.Errorf("after it:\n%s", got)
	}
}

// TestManyElementsAreOneTransaction: more than one message can carry, seen by no packet in
// parts.
func TestManyElementsAreOneTransaction(t *testing.T) {
	ns := nstest.New(t)
	c := open(t, ns)
	want := everything()
	sources := want.Set("sources")
	for i := range 5000 {
		sources.Elements = append(sources.Elements, nft.Element{Key: nft.Key(100+i, mac, netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}))})
	}
	before, err := c.Generation()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Apply(t.Context(), nil, want); err != nil {
		t.Fatal(err)
	}
	if after, err := c.Generation(); err != nil || after != before+1 {
		t.Errorf("generation %d after %d (%v)", after, before, err)
	}
	// A list may lack elements while the kernel enlarges the set; it has them all then.
	realtest.Eventually(t, time.Minute, "all elements to be there", func() bool { return nft.Same(read(t, c, want), want) })
	less := everything()
	apply(t, c, read(t, c, want), less)
}

// TestNewsSayWhoChangedATable: a change of ours is distinguished from one of another program,
// and from one of another table.
func TestNewsSayWhoChangedATable(t *testing.T) {
	realtest.Need(t, "nft")
	ns := nstest.New(t)
	c := open(t, ns)
	var w *nft.Watch
	ns.Do(func() {
		var err error
		if w, err = nft.OpenWatch(); err != nil {
			t.Fatal(err)
		}
	})
	ctx, stop := context.WithCancel(t.Context())
	var mu sync.Mutex
	var news []nft.News
	done := make(chan error, 1)
	go func() {
		done <- w.Run(ctx, func(n nft.News) {
			mu.Lock()
			news = append(news, n)
			mu.Unlock()
		})
	}()
	want := everything()
	apply(t, c, nil, want)
	ns.Exec("nft", "add table bridge other")
	ns.Exec("nft", "delete element bridge ipamd-test links { 7 }")
	ns.Exec("nft", "flush ruleset")
	id := nft.TableID(nft.Bridge, want.Name)
	realtest.Eventually(t, time.Minute, "news of four transactions", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(news) == 4
	})
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for i, want := range []struct{ ours, table, gone bool }{{true, true, false}, {false, false, false}, {false, true, false}, {false, true, true}} {
		n := news[i]
		if c.Ours(n.Port) != want.ours || n.Tables[id] != want.table || n.Gone != want.gone || n.Lost {
			t.Errorf("news %d: %+v", i, n)
		}
		if !want.ours && n.Program != "nft" {
			t.Errorf("news %d is of program %q", i, n.Program)
		}
	}
}

// TestBadTables: what the kernel would take for something else never reaches it.
func TestBadTables(t *testing.T) {
	ns := nstest.New(t)
	c := open(t, ns)
	for what, bad := range map[string]*nft.Set{
		"no key":                     {Name: "s"},
		"ranges of one type":         {Name: "s", Key: []nft.Type{nft.IPv4}, Interval: true},
		"elements of a dynamic set":  {Name: "s", Key: []nft.Type{nft.Link}, Dynamic: true, Elements: []nft.Element{{Key: nft.Key(1)}}},
		"a range without an end":     {Name: "s", Key: []nft.Type{nft.Link, nft.IPv4}, Interval: true, Elements: []nft.Element{{Key: nft.Key(1, netip.MustParseAddr("10.0.0.1"))}}},
		"a key with an end":          {Name: "s", Key: []nft.Type{nft.Link}, Elements: []nft.Element{{Key: nft.Key(1), End: nft.Key(2)}}},
		"a timeout without rules":    {Name: "s", Key: []nft.Type{nft.Link}, Timeout: time.Minute},
		"a comment that is too long": {Name: "s", Key: []nft.Type{nft.Link}, Elements: []nft.Element{{Key: nft.Key(1), Comment: strings.Repeat("x", 128)}}},
	} {
		if err := c.Apply(t.Context(), nil, &nft.Table{Family: nft.Bridge, Name: "bad", Sets: []*nft.Set{bad}}); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	long := &nft.Chain{Name: "c", Rules: []nft.Rule{{Why: strings.Repeat("x", 128), Do: []nft.Statement{nft.Accept()}}}}
	if err := c.Apply(t.Context(), nil, &nft.Table{Family: nft.Bridge, Name: "bad", Chains: []*nft.Chain{long}}); err == nil {
		t.Error("a rule's comment that is too long: no error")
	}
	if got := read(t, c, &nft.Table{Family: nft.Bridge, Name: "bad"}); got != nil {
		t.Errorf("left:\n%s", got)
	}
}

// TestEgressOfADevice: a chain on what leaves one device.
func TestEgressOfADevice(t *testing.T) {
	ns := nstest.New(t)
	c := open(t, ns)
	apply(t, c, nil, &nft.Table{Family: nft.Netdev, Name: "ipamd-test", Chains: []*nft.Chain{
		{Name: "out", Base: &nft.Base{Hook: nft.Egress, Device: "lo"}, Rules: []nft.Rule{{Do: []nft.Statement{nft.Counted()}}}}}})
}

func ExampleFormat() {
	types := []nft.Type{nft.Link, nft.MAC, nft.IPv4}
	fmt.Println(nft.Format(types, nft.Key(7, mac, netip.MustParseAddr("10.0.0.7"))))
	// Output: 7 . 02:00:00:00:00:01 . 10.0.0.7
}
