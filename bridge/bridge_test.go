package bridge

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// wait is how long anything may take that is waited for: the kernel takes
// namespaces down one after the other, and another test's thousand may be first.
const wait = 3 * time.Minute

// A view is a Bridge under test with its board.
type view struct {
	*Bridge
	t     testing.TB
	board *census.Board
}

// open looks at rt0 in a namespace, without managing it unless change says
// so, and reads it once.
func open(t testing.TB, ns *nstest.NS, change ...func(*Config)) *view {
	t.Helper()
	board := census.NewBoard(census.Netns, census.Host, census.Neighbour, census.Probe)
	cfg := Config{Name: "rt0", Netns: ns.Path(), Board: board}
	for _, f := range change {
		f(&cfg)
	}
	var b *Bridge
	realtest.Eventually(t, wait, "the bridge can be opened", func() (ok bool) {
		// A program that another test starts has the lock of a bridge that was just
		// closed, until its exec.
		var err error
		if b, err = Open(cfg); err != nil && !errors.Is(err, ErrLocked) {
			t.Fatal(err)
		}
		return err == nil
	})
	t.Cleanup(func() {
		b.recountStock(t)
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := b.Refresh(context.Background()); err != nil {
		t.Fatal(err)
	}
	return &view{b, t, board}
}

// recountStock compares the count of known addresses with a recount.
func (b *Bridge) recountStock(t testing.TB) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	known, seen := 0, make(map[*inside]bool)
	count := func(in *inside) {
		if !seen[in] {
			known += len(in.addrs) + len(in.more) + len(in.news)
		}
		seen[in] = true
	}
	for _, s := range b.netns.spaces {
		count(s.inside)
	}
	for _, n := range b.netns.stacked.nests {
		count(n.inside)
	}
	for _, p := range b.netns.ports {
		if p.space != nil { // of one that is being taken down, too
			count(p.space.inside)
		}
	}
	if b.netns.stock.known != known {
		t.Errorf("%d addresses are known of all namespaces, and counted are %d", known, b.netns.stock.known)
	}
}

func manage(c *Config) { c.Manage = true }

func gateways(cidrs ...string) func(*Config) {
	return func(c *Config) {
		for _, s := range cidrs {
			c.Desired.Gateways = append(c.Desired.Gateways, netip.MustParsePrefix(s))
		}
	}
}

// settle has the links on a bridge that has just come searched for, as Run has.
func (v *view) settle() {
	v.t.Helper()
	err := v.Settle(context.Background())
	if errors.Is(err, errUnread) {
		err = errors.Join(v.searchStacked(context.Background()), v.Settle(context.Background()))
	}
	if err != nil {
		v.t.Fatalf("settle: %v", err)
	}
}

func (v *view) about(addr string) census.Answer { return v.board.About(netip.MustParseAddr(addr)) }

// who settles and lists the witnesses that see an address.
func (v *view) who(addr string) string {
	v.t.Helper()
	v.settle()
	var out []string
	for _, s := range v.about(addr).Seen {
		out = append(out, string(s.Witness))
	}
	return strings.Join(out, " ")
}

// expect settles and compares who sees an address.
func (v *view) expect(addr, witnesses string) {
	v.t.Helper()
	if got := v.who(addr); got != witnesses {
		v.t.Errorf("%s is seen by %q, want %q: %+v; silent are %v, gaps %+v", addr, got, witnesses, v.about(addr).Seen, v.silences(), v.Gaps())
	}
}

// await is expect for news that the kernel has not sent yet when the change is
// done: it announces an IPv6 address without duplicate address detection from
// a work queue.
func (v *view) await(addr, witnesses string) {
	v.t.Helper()
	realtest.Eventually(v.t, wait, addr+" is seen by "+witnesses, func() bool { return v.who(addr) == witnesses })
}

// silences returns the reason of each silent witness.
func (v *view) silences() map[census.Witness]string {
	out := make(map[census.Witness]string)
	for _, s := range v.board.Silent() {
		out[s.Witness] = s.Reason
	}
	return out
}

func (v *view) allSilent(reason string) {
	v.t.Helper()
	got := v.silences()
	for _, w := range []census.Witness{census.Netns, census.Host, census.Neighbour, census.Probe} {
		if got[w] == "" || !strings.Contains(got[w], reason) {
			v.t.Errorf("witness %s says %q, want silence because %q", w, got[w], reason)
		}
	}
}

func (v *view) noneSilent() {
	v.t.Helper()
	if s := v.silences(); len(s) != 0 {
		v.t.Errorf("silent: %v", s)
	}
}

// wantUnready checks that the bridge is not ready for the reason.
func (v *view) wantUnready(reason string) {
	v.t.Helper()
	err := v.Ready()
	var not *NotReadyError
	if !errors.Is(err, ErrNotReady) || !errors.As(err, &not) {
		v.t.Fatalf("ready: %v, want a NotReadyError", err)
	}
	if not.Reason != reason {
		v.t.Errorf("reason is %q, want %q", not.Reason, reason)
	}
}

func (v *view) wantReady() {
	v.t.Helper()
	if err := v.Ready(); err != nil {
		v.t.Error(err)
	}
}
