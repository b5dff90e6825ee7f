package allocator

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// slowWire answers for some addresses, at the n-th look after the question.
type slowWire struct {
	board  *census.Board
	live   map[netip.Addr]int
	looks  map[netip.Addr]int // since it was asked
	missed bool
}

func (w *slowWire) Probe(_ context.Context, a netip.Addr) error {
	w.looks[a] = 0
	return nil
}

func (w *slowWire) MissedSince(time.Time) bool { return w.missed }

func (w *slowWire) settle(context.Context, ...netip.Addr) error {
	for a := range w.looks {
		if w.looks[a]++; w.live[a] == w.looks[a] {
			w.board.ReplaceScope(census.Probe, a.String(), []census.Sighting{{Addr: a}})
		}
	}
	return nil
}

func newSlow(t *testing.T) (*Allocator, *slowWire) {
	wire := &slowWire{live: make(map[netip.Addr]int), looks: make(map[netip.Addr]int)}
	a := newAllocator(t, func(c *Config) {
		wire.board = c.Board
		c.Prober, c.Settle = wire, wire.settle
	})
	return a, wire
}

func (a *Allocator) vetted(addr netip.Addr) {
	long := time.Now().Add(-2 * a.ProbeWindow)
	a.vet.ahead[addr] = probed{long, long}
}

// An address that kept silent when it was asked ahead is asked once more. One that
// answers before the commit, or while it is made, is not given; it is reported, and
// the call has no lease of it any more.
func TestF18SilenceOfBefore(t *testing.T) {
	first, second := netip.MustParseAddr("10.8.64.2"), netip.MustParseAddr("10.8.64.3")
	for name, look := range map[string]int{"before the commit": 1, "while it is made": 2} {
		t.Run(name, func(t *testing.T) {
			a, wire := newSlow(t)
			a.vetted(first)
			a.vetted(second)
			wire.live[first] = look
			r, err := a.Allocate(ctx, Request{Sandbox: "a"})
			if err != nil || len(r.Leases) != 1 || r.Leases[0].Addr != second || len(r.Unprobed) != 0 || r.Existing {
				t.Fatalf("%+v, %v", r, err)
			}
			if len(r.Skipped) != 1 || r.Skipped[0].Addr != first || r.Skipped[0].Seen[0].Witness != census.Probe {
				t.Errorf("skipped: %+v", r.Skipped)
			}
			if l, ok := a.Book.At(first); !ok || l.State != ipam.Quarantined && l.State != ipam.Releasing {
				t.Errorf("it is %+v", l)
			}
			if l, ok := a.Book.OpenLease(ipam.Owner{PoolUID: r.Leases[0].PoolUID, UID: "a", Interface: "eth0"}); !ok || l.Addr != second {
				t.Errorf("the sandbox holds %+v", l)
			}
		})
	}
}

// Both families or none: when every address of one family is answered for while it
// is given, the other family's is taken back.
func TestF18DualIsAllOrNothing(t *testing.T) {
	a, wire := newSlow(t)
	pool := Pool(t, a.Book, "default", "fd00:8::/126")
	for addr := pool.Prefix.Addr(); pool.Prefix.Contains(addr); addr = addr.Next() {
		wire.live[addr] = 2
	}
	if r, err := a.Allocate(ctx, Request{Sandbox: "a", Family: Dual}); !errors.Is(err, ipam.ErrExhausted) {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := a.Allocate(ctx, Request{Sandbox: "a", Family: V4}); err != nil || r.Existing {
		t.Errorf("a call that failed has given an address: %+v, %v", r, err)
	}
}

// A wish is given the time of a slow answer.
func TestF18WishWaits(t *testing.T) {
	addr := netip.MustParseAddr("10.8.64.77")
	for name, answers := range map[string]bool{"it answers": true, "no answer comes": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				board := census.NewBoard()
				v := newVetter(Config{Board: board, Prober: quiet{}, ProbeWindow: time.Minute, Log: slog.New(slog.DiscardHandler)})
				began := time.Now()
				if answers {
					time.AfterFunc(20*time.Second, func() {
						board.ReplaceScope(census.Probe, addr.String(), []census.Sighting{{Addr: addr}})
					})
				}
				answered := func() bool { return len(board.About(addr).Seen) > 0 }
				if sure := v.wait(t.Context(), addr, answered); !sure || answered() != answers {
					t.Errorf("sure %v, answered %v", sure, answered())
				}
				if took := time.Since(began); took != map[bool]time.Duration{true: 20 * time.Second, false: time.Minute}[answers] {
					t.Errorf("it took %v", took)
				}
				ended, cancel := context.WithCancel(t.Context())
				cancel()
				if sure := v.wait(ended, addr.Next(), func() bool { return false }); sure {
					t.Error("silence counts that was not waited for")
				}
			})
		})
	}
	a, wire := newSlow(t)
	wire.live[addr] = 1
	if r, err := a.Allocate(ctx, Request{Sandbox: "a", Address: addr}); !errors.Is(err, ipam.ErrTaken) {
		t.Errorf("a wish for what answers: %+v, %v", r, err)
	}
	wire.live[addr.Next()] = 2
	if r, err := a.Allocate(ctx, Request{Sandbox: "b", Address: addr.Next()}); !errors.Is(err, ipam.ErrTaken) {
		t.Errorf("a wish for what answers while it is given: %+v, %v", r, err)
	}
	if r, err := a.Allocate(ctx, Request{Sandbox: "c", Address: addr.Next().Next()}); err != nil || len(r.Unprobed) != 0 {
		t.Errorf("a wish that no lease has: %+v, %v", r, err)
	}
}

// Where answers may have been lost a silence is none: the address is listed as
// unprobed, and asked for again.
func TestF2LostAnswersAreNoSilence(t *testing.T) {
	a, wire := newSlow(t)
	first := netip.MustParseAddr("10.8.64.2")
	a.vetted(first)
	wire.missed = true
	if !a.vet.due(first) {
		t.Error("it is not asked for again")
	}
	if a.vet.note(first); a.vet.ahead[first].silent(a.ProbeWindow) {
		t.Error("the silence of before goes on when it is asked again")
	}
	a.vetted(first)
	for what, request := range map[string]Request{"any": {Sandbox: "a"}, "a wish": {Sandbox: "b", Address: netip.MustParseAddr("10.8.64.77")}} {
		r, err := a.Allocate(ctx, request)
		if err != nil || len(r.Unprobed) != 1 {
			t.Errorf("%s: %+v, %v", what, r, err)
		}
	}
}

// An address that is answered for while it is given is taken back, also from a caller that has hung up; what cannot
// be taken back stays reserved, and the log says so.
func TestF18WhatIsNotAnsweredIsTakenBack(t *testing.T) {
	first := netip.MustParseAddr("10.8.64.2")
	for name, tt := range map[string]struct {
		meanwhile func(a *Allocator, hangUp func()) error // behind the commit, as the answer comes
		err       error
		becomes   ipam.State
		logged    int
	}{
		"the caller hangs up": {func(_ *Allocator, hangUp func()) error { hangUp(); return nil }, context.Canceled, ipam.Releasing, 0},
		"a retry renews it": {func(a *Allocator, _ func()) error {
			l, _ := a.Book.At(first)
			_, err := a.Book.Renew(ctx, Who(ipam.ByAllocator, "asked_again"), l.ID, 9, time.Minute)
			return err
		}, ipam.ErrStale, ipam.Reserved, 1},
	} {
		t.Run(name, func(t *testing.T) {
			a, wire := newSlow(t)
			log := new(strings.Builder)
			a.Log = slog.New(slog.NewTextHandler(log, nil))
			a.vetted(first)
			wire.live[first] = 2
			call, hangUp := context.WithCancel(ctx)
			defer hangUp()
			a.Settle = func(ctx context.Context, about ...netip.Addr) error {
				if err := wire.settle(ctx, about...); err != nil {
					return err
				}
				if wire.looks[first] == 2 {
					if err := tt.meanwhile(a, hangUp); err != nil {
						t.Error(err)
					}
				}
				return ctx.Err()
			}
			if r, err := a.Allocate(call, Request{Sandbox: "a"}); !errors.Is(err, tt.err) {
				t.Errorf("answered %+v, %v, want %v", r, err, tt.err)
			}
			if l, ok := a.Book.At(first); !ok || l.State != tt.becomes {
				t.Errorf("its lease is %+v, want %s", l, tt.becomes)
			}
			if n := strings.Count(log.String(), "stays reserved"); n != tt.logged {
				t.Errorf("logged %d times that it stays reserved, want %d: %s", n, tt.logged, log)
			}
		})
	}
}
