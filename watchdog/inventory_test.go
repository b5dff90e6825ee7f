package watchdog

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/ipamd/ipamd/workload"

	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// The kernel's news of one lease's bridge cannot be read: that is in the way of this lease alone, not of
// another that is confirmed together with it.
func TestABridgeThatCannotBeReadHoldsUpItsOwnLeasesOnly(t *testing.T) {
	t.Parallel()
	w, book, _ := newWatchdog(t)
	ours, theirs := Reserve(t, book, "a"), Reserve(t, book, "b")
	w.cfg.Settle = func(_ context.Context, about ...netip.Addr) error {
		if slices.Contains(about, theirs.Addr) {
			return errBroken
		}
		return nil
	}
	in := w.survey(ctx, []Tie{workload.TieOf(ours), workload.TieOf(theirs)})
	for l, want := range map[netip.Addr]error{ours.Addr: nil, theirs.Addr: errBroken} {
		if err := in.unread[l]; !errors.Is(err, want) {
			t.Errorf("%v: %v, want %v", l, err, want)
		}
	}
	if alone := w.survey(ctx, []Tie{workload.TieOf(theirs)}); !errors.Is(alone.unread[theirs.Addr], errBroken) {
		t.Errorf("alone: %v", alone.unread)
	}
}
