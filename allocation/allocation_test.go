package allocation

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/ipam"
)

// A script is the parts that an Allocator asks. It answers as it is written, and records what
// it was asked.
type script struct {
	answers []error // of the allocator, one a try; the last one goes on; nil: it gives
	pools   []ipam.Usage
	way     map[string]error // whether slots of a pool give way: nil: one does; missing: none has an address
	address error            // whether the slot with the address gives it up
	holds   bool             // a slot has it
	behind  bool             // bridges do not follow the pools
	moves   int              // of the pools, one in each of the first tries

	changed chan struct{}
	asked   []string
	answer  []error // that were taken note of
}

func (s *script) note(f string, args ...any) { s.asked = append(s.asked, fmt.Sprintf(f, args...)) }

func (s *script) Allocate(context.Context, allocator.Request) (*allocator.Result, error) {
	s.note("allocate")
	if s.moves > 0 {
		s.moves--
		close(s.changed)
		s.changed = make(chan struct{})
	}
	err := s.answers[0]
	if len(s.answers) > 1 {
		s.answers = s.answers[1:]
	}
	if err != nil {
		return nil, err
	}
	return new(allocator.Result), nil
}

func (s *script) Ready(context.Context, *allocator.Request) ([]*ipam.Pool, error) {
	s.note("ready")
	return nil, nil
}

func (s *script) GiveWay(_ context.Context, pool string) (bool, error) {
	s.note("give way in %s", pool)
	err, has := s.way[pool]
	return has && err == nil, err
}

func (s *script) GiveAddress(_ context.Context, addr netip.Addr) (bool, error) {
	s.note("give %v", addr)
	return s.holds && s.address == nil, s.address
}

func (s *script) Current() bool                { return !s.behind }
func (s *script) Follow(context.Context) error { s.note("follow"); s.behind = false; return nil }

func (s *script) Usage() ([]ipam.Usage, int64)  { return s.pools, 1 }
func (s *script) PoolsChanged() <-chan struct{} { return s.changed }

// slots is a pool that keeps warm slots, whose uid is its name and family.
func slots(name, prefix string, free uint64) ipam.Usage {
	u := ipam.Usage{Free: free}
	u.Pool.Name, u.Pool.Prefix, u.Pool.Warm = name, netip.MustParsePrefix(prefix), &ipam.Warm{Size: 2}
	u.Pool.UID = name + map[bool]string{true: "/4", false: "/6"}[u.Pool.Prefix.Addr().Is4()]
	return u
}

func without(u ipam.Usage) ipam.Usage { u.Pool.Warm = nil; return u }

func TestAllocate(t *testing.T) {
	stuck := errors.New("the warm helper is not running")
	v4, v6 := slots("default", "10.8.64.0/24", 0), slots("default", "fd00::/64", 0)
	free4 := slots("default", "10.8.64.0/24", 1)
	addr := netip.MustParseAddr("10.8.64.9")
	try := func(n int, between ...string) (out []string) {
		out = []string{"allocate"}
		for range n {
			out = append(append(out, between...), "allocate")
		}
		return out
	}
	for name, c := range map[string]struct {
		script
		ask    allocator.Request
		want   []string // what was asked of whom
		err    error    // nil: it is given
		says   string
		unsaid bool // it is taken note of nowhere
	}{
		"an address is there": {script: script{answers: []error{nil}, pools: []ipam.Usage{v4}}, want: try(0)},
		"exhausted, a slot gives way": {script: script{answers: []error{ipam.ErrExhausted, nil}, pools: []ipam.Usage{v4}, way: map[string]error{"default/4": nil}},
			want: try(1, "give way in default/4")},
		"exhausted, others are given what two slots had": {script: script{answers: []error{ipam.ErrExhausted, ipam.ErrExhausted, nil}, pools: []ipam.Usage{v4}, way: map[string]error{"default/4": nil}},
			want: try(2, "give way in default/4")},
		"exhausted, no slot has an address": {script: script{answers: []error{ipam.ErrExhausted}, pools: []ipam.Usage{v4}},
			want: append(try(0), "give way in default/4"), err: ipam.ErrExhausted},
		"exhausted, a slot cannot be taken down": {script: script{answers: []error{ipam.ErrExhausted}, pools: []ipam.Usage{v4}, way: map[string]error{"default/4": stuck}},
			want: append(try(0), "give way in default/4"), err: ipam.ErrExhausted, says: stuck.Error()},
		"exhausted, an address came free since": {script: script{answers: []error{ipam.ErrExhausted, ipam.ErrExhausted, nil}, pools: []ipam.Usage{free4}},
			want: try(2, "give way in default/4")},
		"exhausted, although one is free for good": {script: script{answers: []error{ipam.ErrExhausted}, pools: []ipam.Usage{free4}},
			want: append(try(mostTries, "give way in default/4"), "give way in default/4"), err: ipam.ErrExhausted},
		"exhausted, a prefix is asked for": {script: script{answers: []error{ipam.ErrExhausted}, pools: []ipam.Usage{free4}}, ask: allocator.Request{PrefixLen: 28},
			want: append(try(0), "give way in default/4"), err: ipam.ErrExhausted},
		"exhausted, the pool keeps no slots": {script: script{answers: []error{ipam.ErrExhausted}, pools: []ipam.Usage{without(free4)}},
			want: try(0), err: ipam.ErrExhausted},
		"exhausted, another pool has slots": {script: script{answers: []error{ipam.ErrExhausted}, pools: []ipam.Usage{free4}}, ask: allocator.Request{Pool: "lab"},
			want: try(0), err: ipam.ErrExhausted},
		"exhausted of IPv6": {script: script{answers: []error{ipam.ErrExhausted, nil}, pools: []ipam.Usage{v4, v6}, way: map[string]error{"default/4": nil, "default/6": nil}}, ask: allocator.Request{Family: allocator.V6},
			want: try(1, "give way in default/6")},
		"exhausted of IPv4": {script: script{answers: []error{ipam.ErrExhausted, nil}, pools: []ipam.Usage{v6, v4}, way: map[string]error{"default/4": nil, "default/6": nil}}, ask: allocator.Request{Family: allocator.V4},
			want: try(1, "give way in default/4")},
		"exhausted of either, the second has a slot": {script: script{answers: []error{ipam.ErrExhausted, nil}, pools: []ipam.Usage{v4, v6}, way: map[string]error{"default/6": nil}},
			want: try(1, "give way in default/4", "give way in default/6")},
		"taken by a slot": {script: script{answers: []error{ipam.ErrTaken, nil}, holds: true}, ask: allocator.Request{Address: addr},
			want: try(1, "give 10.8.64.9")},
		"taken by a sandbox": {script: script{answers: []error{ipam.ErrTaken}}, ask: allocator.Request{Address: addr},
			want: append(try(0), "give 10.8.64.9"), err: ipam.ErrTaken},
		"taken by a slot that cannot be taken down": {script: script{answers: []error{ipam.ErrTaken}, holds: true, address: stuck}, ask: allocator.Request{Address: addr},
			want: append(try(0), "give 10.8.64.9"), err: ipam.ErrTaken, says: stuck.Error()},
		"taken, and none was named": {script: script{answers: []error{ipam.ErrTaken}, holds: true}, want: try(0), err: ipam.ErrTaken},
		"cancelled":                 {script: script{answers: []error{fmt.Errorf("allocate: %w", context.Canceled)}}, want: try(0), err: context.Canceled, unsaid: true},
		"cancelled while a slot gives way": {script: script{answers: []error{ipam.ErrExhausted, context.Canceled}, pools: []ipam.Usage{v4}, way: map[string]error{"default/4": nil}},
			want: try(1, "give way in default/4"), err: context.Canceled, unsaid: true},
		"a bridge does not follow its pool yet": {script: script{answers: []error{nil}, behind: true}, want: append([]string{"follow"}, try(0)...)},
		"a pool was changed meanwhile":          {script: script{answers: []error{allocator.ErrBridge, nil}, moves: 1}, want: try(1)},
		"a bridge is not ready":                 {script: script{answers: []error{allocator.ErrBridge}}, want: try(0), err: allocator.ErrBridge},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.script
			s.changed = make(chan struct{})
			counted := false
			a := New(Config{Gives: &s, Slots: &s, Bridges: &s, Book: &s, Pool: "default", Await: func(context.Context) { counted = true },
				OnAnswer: func(given *allocator.Result, err error, _ time.Duration) {
					if (given == nil) == (err == nil) {
						t.Errorf("noted: %v, %v", given, err)
					}
					s.answer = append(s.answer, err)
				}})
			given, err := a.Allocate(t.Context(), c.ask)
			if !errors.Is(err, c.err) || (given == nil) != (c.err != nil) || c.says != "" && !strings.Contains(err.Error(), c.says) {
				t.Errorf("it answers %v, %v; want %v that says %q", given, err, c.err, c.says)
			}
			if !slices.Equal(s.asked, c.want) || !counted {
				t.Errorf("it asked %q, want %q; behind the first census: %v", s.asked, c.want, counted)
			}
			if noted := len(s.answer); noted > 1 || (noted == 0) != c.unsaid || noted == 1 && !errors.Is(s.answer[0], c.err) {
				t.Errorf("noted are %v", s.answer)
			}
		})
	}
}

// TestReadyWaitsForBridges: what decides whether a warm slot may be given waits as an allocation does.
func TestReadyWaitsForBridges(t *testing.T) {
	s := &script{behind: true, changed: make(chan struct{})}
	a := New(Config{Gives: s, Slots: s, Bridges: s, Book: s, Await: func(context.Context) { s.note("await") }})
	if _, err := a.Ready(t.Context(), new(allocator.Request)); err != nil || !slices.Equal(s.asked, []string{"await", "follow", "ready"}) {
		t.Errorf("it asked %q, %v", s.asked, err)
	}
}
