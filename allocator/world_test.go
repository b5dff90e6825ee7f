package allocator

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

var ctx = context.Background()

// quiet is a wire on which no answer ever comes.
type quiet struct{}

func (quiet) Probe(context.Context, netip.Addr) error { return nil }

func (quiet) MissedSince(time.Time) bool { return false }

// newAllocator stands on a real book with the pool 10.8.64.0/24 and a board on
// which every kernel witness has reported nothing.
func newAllocator(t *testing.T, change ...func(*Config)) *Allocator {
	t.Helper()
	cfg := Config{
		Book: Open(t), Board: census.NewBoard(census.Netns, census.Host, census.Neighbour), Prober: quiet{},
		Settle: func(context.Context, ...netip.Addr) error { return nil }, Gate: func(...*ipam.Pool) error { return nil },
		HasLink: func(context.Context, string) (bool, error) { return false, nil },
		Pool:    "default", Policy: Policy, BindWithin: 10 * time.Minute, MaxConflicts: 32,
		ProbeWindow: 50 * time.Millisecond, ProbeAhead: 16, Log: slog.New(slog.DiscardHandler),
	}
	for _, w := range []census.Witness{census.Netns, census.Host, census.Neighbour} {
		cfg.Board.Replace(w, nil, nil)
	}
	for _, c := range change {
		c(&cfg)
	}
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func wantField(t *testing.T, err error, field string) {
	t.Helper()
	var fe *ipam.FieldError
	if !errors.As(err, &fe) || fe.Field != field {
		t.Errorf("error is %v, want field %q", err, field)
	}
}
