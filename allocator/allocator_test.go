package allocator

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/realtest"
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
		"not ready":        {func(c *Config) { c.Gate = func() error { return ErrNotReady } }, ErrNotReady},
		"no bridge":        {func(c *Config) { c.Gate = func() error { return ErrBridge } }, ErrBridge},
		"another's book":   {func(c *Config) { c.Gate = func() error { return ErrIdentity } }, ErrIdentity},
		"news cannot come": {func(c *Config) { c.Settle = func(context.Context) error { return cause } }, ErrEvidence},
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

// An address that is first seen after the witnesses were asked, while the
// request waits for the commit, is not given: the transaction asks again.
func TestSeenBeforeTheCommitIsNotGiven(t *testing.T) {
	a := newAllocator(t)
	pool, next := a.Book.Pools()[0], netip.MustParseAddr("10.8.64.2")
	first, err := a.Book.PickAddr(netdb.Owner{PoolUID: pool.UID, UID: "first", Interface: "eth0"}, netip.MustParseAddr("10.8.64.6"), Policy)
	if err != nil {
		t.Fatal(err)
	}
	// first holds up the writer until it is told to go on.
	waits, goOn := make(chan struct{}), make(chan struct{})
	held := make(chan error, 1)
	go func() {
		_, err := a.Book.Reserve(ctx, Who(netdb.ByAllocator, "allocated"), netdb.Reservation{Candidate: first,
			Sandbox: "first", UID: "first", Interface: "eth0", Attempt: 1, BindWithin: time.Minute,
			Unseen: func() error { close(waits); <-goOn; return nil }})
		held <- err
	}()
	<-waits
	got := make(chan *Result, 1)
	go func() {
		r, err := a.Allocate(ctx, Request{Sandbox: "second"})
		if err != nil {
			t.Error(err)
		}
		got <- r
	}()
	offered := time.Now()
	realtest.Eventually(t, 10*time.Second, "the request to wait for the writer", func() bool {
		c, err := a.Book.PickAddr(netdb.Owner{PoolUID: pool.UID, UID: "x", Interface: "eth0"}, next, Policy)
		if err == nil { // not offered to the request yet
			a.Book.Drop(c)
			offered = time.Now()
			return false
		}
		// It asks the witnesses within microseconds of the offer.
		return time.Since(offered) > 50*time.Millisecond
	})
	a.Board.ReplaceScope(census.Netns, "ns1", []census.Sighting{{Addr: next, Port: "veth9"}})
	close(goOn)
	if err := <-held; err != nil {
		t.Fatal(err)
	}
	r := <-got
	if r == nil || r.Leases[0].Addr == next || len(r.Skipped) != 1 || r.Skipped[0].Addr != next {
		t.Fatalf("the request got %+v", r)
	}
	if l, ok := a.Book.At(next); !ok || l.State != netdb.Quarantined || !strings.Contains(string(l.Evidence), "veth9") {
		t.Errorf("the address seen at the last moment is %+v", l)
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
