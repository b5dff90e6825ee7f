package reconciler

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/netdb/netdbtest"
)

// A slow book is one in which something happens between a plan and its commit.
type slow struct {
	*netdb.Book
	before func()
}

func (b *slow) ClearAt(ctx context.Context, who ipam.Who, id string, rev int64, unseen func() error) (*ipam.Lease, error) {
	b.before()
	return b.Book.ClearAt(ctx, who, id, rev, unseen)
}

func (b *slow) QuarantineAt(ctx context.Context, who ipam.Who, a netip.Addr, rev int64, evidence json.RawMessage) (*ipam.Lease, error) {
	b.before()
	return b.Book.QuarantineAt(ctx, who, a, rev, evidence)
}

// A quarantine that was out of sight in the plan ends only if the board says so at the
// commit too.
func TestClearAsksOnceMore(t *testing.T) {
	for name, tt := range map[string]struct {
		then func(*census.Board)
		why  string
	}{
		"it is seen":              {func(b *census.Board) { b.ReplaceScope(netns, "p", []census.Sighting{{Addr: at(9), Port: "p"}}) }, "the netns witness sees it on p"},
		"a witness falls silent":  {func(b *census.Board) { b.Silence(netns, errors.New("no socket")) }, "the netns witness cannot answer: no socket"},
		"nothing of the two does": {func(*census.Board) {}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			y := plain(t)
			y.quarantineByHand("10.8.64.9")
			for range 2 {
				y.pass()
				y.minutes(8)
			}
			y.Config.Book = &slow{y.book, func() { tt.then(y.board) }}
			want, state := []string{"clear 10.8.64.9 skipped"}, "10.8.64.9 quarantined"
			if tt.why == "" {
				want, state = []string{"clear 10.8.64.9 done"}, "10.8.64.9 cooling"
			}
			y.pass(want...)
			y.holds(state)
			if a := y.Last().Actions[0]; !strings.HasSuffix(a.Reason, tt.why) || a.Err != "" {
				t.Errorf("it says %+v, want %q", a, tt.why)
			}
		})
	}
}

// P7: an address that an operator quarantined and cleared after the plan is not
// quarantined by that plan.
func TestQuarantineIsOfTheRowThatWasSeen(t *testing.T) {
	y := plain(t)
	netdbtest.Cool(t, y.book, y.reserve("A"))
	y.show(seen(netns, "10.8.64.2", port("veth1")))
	y.Config.Book = &slow{y.book, func() {
		op := netdbtest.Who(ipam.ByOperator, "by_hand")
		op.Note = "a printer"
		_, err := y.book.Hold(ctx, op, at(2), nil)
		_, also := netdbtest.Clear(y.book, at(2))
		if err := errors.Join(err, also); err != nil {
			t.Error(err)
		}
	}}
	y.pass("quarantine 10.8.64.2 A skipped")
	y.holds("10.8.64.2 cooling")
	y.Config.Book = y.book
	y.pass("quarantine 10.8.64.2 done")
	if i := slices.Index(y.states(), "10.8.64.2 quarantined"); i != 0 {
		t.Errorf("%q", y.states())
	}
}

func at(last byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 8, 64, last}) }
