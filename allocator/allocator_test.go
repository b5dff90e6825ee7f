package allocator

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// An allocator with a part or a bound missing is not made.
func TestNewRefuses(t *testing.T) {
	good := newAllocator(t).Config
	for name, spoil := range map[string]func(*Config){
		"no book":                     func(c *Config) { c.Book = nil },
		"no board":                    func(c *Config) { c.Board = nil },
		"no prober":                   func(c *Config) { c.Prober = nil },
		"no settle":                   func(c *Config) { c.Settle = nil },
		"no links":                    func(c *Config) { c.HasLink = nil },
		"no gate":                     func(c *Config) { c.Gate = nil },
		"no log":                      func(c *Config) { c.Log = nil },
		"no default pool":             func(c *Config) { c.Pool = "" },
		"no bind deadline":            func(c *Config) { c.BindWithin = 0 },
		"no conflicts":                func(c *Config) { c.MaxConflicts = 0 },
		"no window":                   func(c *Config) { c.ProbeWindow = -1 },
		"nothing ahead":               func(c *Config) { c.ProbeAhead = 0 },
		"no cooldown":                 func(c *Config) { c.Policy.Cooldown = 0 },
		"no least cooldown":           func(c *Config) { c.Policy.CooldownMin = 0 },
		"the least cooldown is above": func(c *Config) { c.Policy.CooldownMin = c.Policy.Cooldown + 1 },
	} {
		cfg := good
		spoil(&cfg)
		if a, err := New(cfg); err == nil || a != nil {
			t.Errorf("%s: made %v", name, a)
		}
	}
}

// The gate and the witnesses are asked before anything is taken, and a
// refusal leaves the book as it was.
func TestRefusalsTakeNothing(t *testing.T) {
	cause := errors.New("rtnetlink is closed")
	for name, tt := range map[string]struct {
		change func(*Config)
		want   error
	}{
		"not ready":        {func(c *Config) { c.Gate = func(...*ipam.Pool) error { return ErrNotReady } }, ErrNotReady},
		"no bridge":        {func(c *Config) { c.Gate = func(...*ipam.Pool) error { return ErrBridge } }, ErrBridge},
		"another's book":   {func(c *Config) { c.Gate = func(...*ipam.Pool) error { return netdb.ErrIdentity } }, netdb.ErrIdentity},
		"news cannot come": {func(c *Config) { c.Settle = func(context.Context, ...netip.Addr) error { return cause } }, ErrEvidence},
		"netns is silent":  {func(c *Config) { c.Board.Silence(census.Netns, cause) }, ErrEvidence},
		"host is silent":   {func(c *Config) { c.Board.Silence(census.Host, cause) }, ErrEvidence},
		"neighbour too":    {func(c *Config) { c.Board.Silence(census.Neighbour, cause) }, ErrEvidence},
		"all must answer": {func(c *Config) {
			c.RequireAll = true
			c.Board.Silence(census.Runtime, cause)
		}, ErrEvidence},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAllocator(t, tt.change)
			rev := a.Book.Rev()
			r, err := a.Allocate(ctx, Request{Sandbox: "a"})
			if !errors.Is(err, tt.want) {
				t.Errorf("got %+v, %v, want %v", r, err, tt.want)
			}
			if usage, _ := a.Book.Usage(); a.Book.Rev() != rev || usage[0].Free != usage[0].Size {
				t.Errorf("revision %d after %d, %d of %d free", a.Book.Rev(), rev, usage[0].Free, usage[0].Size)
			}
			if errors.Is(err, ErrEvidence) && !strings.Contains(err.Error(), cause.Error()) {
				t.Errorf("the refusal does not say why: %v", err)
			}
		})
	}
	a := newAllocator(t, func(c *Config) { c.Board.Silence(census.Runtime, cause) })
	if _, err := a.Allocate(ctx, Request{Sandbox: "a"}); err != nil {
		t.Errorf("the kernel answers, which is enough: %v", err)
	}
}

// whileWaiting makes a request that passes its checks and then waits for the
// commit, lets change happen meanwhile, and returns the answer.
func whileWaiting(t *testing.T, a *Allocator, req Request, change func()) (*Result, error) {
	t.Helper()
	pool := a.Book.Pools()[0]
	first, err := a.Book.PickAddr(ipam.Owner{PoolUID: pool.UID, UID: "first", Interface: "eth0"}, netip.MustParseAddr("10.8.64.4"), Policy)
	if err != nil {
		t.Fatal(err)
	}
	// first holds up the commit until it is asked to go on.
	waits, goOn := make(chan struct{}), make(chan struct{})
	wave := sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(wave) // or the book could not be closed
	held := make(chan error, 1)
	go func() {
		_, err := a.Book.Reserve(ctx, Who(ipam.ByAllocator, "allocated"), netdb.Reservation{Candidate: first,
			Sandbox: "first", UID: "first", Interface: "eth0", Attempt: 1, BindWithin: time.Minute,
			Unseen: func() error { close(waits); <-goOn; return nil }})
		held <- err
	}()
	<-waits
	// A request reads the news twice: at its beginning, and when it has chosen
	// its addresses and asked the witnesses about them.
	asked, calls := make(chan struct{}), 0
	a.Settle = func(context.Context, ...netip.Addr) error {
		if calls++; calls == 2 {
			close(asked)
		}
		return nil
	}
	type answer struct {
		result *Result
		err    error
	}
	got := make(chan answer, 1)
	go func() {
		r, err := a.Allocate(ctx, req)
		got <- answer{r, err}
	}()
	select {
	case <-asked:
	case now := <-got:
		t.Fatalf("the request did not wait for the commit: %+v, %v", now.result, now.err)
	}
	change()
	wave()
	if err := <-held; err != nil {
		t.Fatal(err)
	}
	now := <-got
	return now.result, now.err
}

// An address that is first seen after the witnesses were asked, while the
// request waits for the commit, is not given: the transaction asks again.
func TestSeenBeforeTheCommitIsNotGiven(t *testing.T) {
	a := newAllocator(t)
	next := netip.MustParseAddr("10.8.64.2")
	r, err := whileWaiting(t, a, Request{Sandbox: "second"}, func() {
		a.Board.ReplaceScope(census.Netns, "ns1", []census.Sighting{{Addr: next, Port: "veth9"}})
	})
	if err != nil || r.Leases[0].Addr == next || len(r.Skipped) != 1 || r.Skipped[0].Addr != next {
		t.Fatalf("the request got %+v, %v", r, err)
	}
	if l, ok := a.Book.At(next); !ok || l.State != ipam.Quarantined || !strings.Contains(string(l.Evidence), "veth9") {
		t.Errorf("the address seen at the last moment is %+v", l)
	}
}

// Scenario P8: when the last v6 address is lost at the last moment, the v4 half of the
// request is not kept either.
func TestDualFailsWhole(t *testing.T) {
	a := newAllocator(t)
	Pool(t, a.Book, "default", "fd00:8::/126")
	last := netip.MustParseAddr("fd00:8::2")
	a.Board.ReplaceScope(census.Netns, "ns1", []census.Sighting{{Addr: last.Next(), Port: "veth8"}})
	r, err := whileWaiting(t, a, Request{Sandbox: "second", Family: Dual}, func() {
		a.Board.ReplaceScope(census.Netns, "ns2", []census.Sighting{{Addr: last, Port: "veth9"}})
	})
	if !errors.Is(err, ipam.ErrExhausted) {
		t.Fatalf("the request got %+v, %v", r, err)
	}
	leases, _ := a.Book.Leases()
	for _, l := range leases {
		if l.Sandbox == "second" {
			t.Errorf("half of a refused request left %+v", l)
		}
	}
}

// The same sandbox asks many times at once: one lease, one address.
func TestOneSandboxAsksAtOnce(t *testing.T) {
	a := newAllocator(t)
	ids := make(chan string, 20)
	for range cap(ids) {
		go func() {
			r, err := a.Allocate(ctx, Request{Sandbox: "a"})
			if err != nil {
				t.Error(err)
				ids <- ""
				return
			}
			ids <- r.Leases[0].ID
		}()
	}
	one := <-ids
	for range cap(ids) - 1 {
		if id := <-ids; id != one {
			t.Errorf("leases %s and %s for one sandbox", one, id)
		}
	}
	if leases, _ := a.Book.Leases(); len(leases) != 1 {
		t.Errorf("%d leases", len(leases))
	}
}

// A caller that hangs up while the kernel's news are read says nothing about a
// witness, silent ones or not, and takes nothing.
func TestF24HangingUpIsNoWitnessFailure(t *testing.T) {
	for name, silence := range map[string]error{"all answer": nil, "one is silent": errors.New("rtnetlink is closed")} {
		ctx, hangUp := context.WithCancel(ctx)
		a := newAllocator(t, func(c *Config) {
			c.Settle = func(ctx context.Context, _ ...netip.Addr) error { hangUp(); return ctx.Err() }
			if silence != nil {
				c.Board.Silence(census.Netns, silence)
			}
		})
		rev := a.Book.Rev()
		if _, err := a.Allocate(ctx, Request{Sandbox: "a"}); !errors.Is(err, context.Canceled) || errors.Is(err, ErrEvidence) || a.Book.Rev() != rev {
			t.Errorf("%s: %v, revision %d after %d", name, err, a.Book.Rev(), rev)
		}
	}
}
