// Package netdbtest opens real lease books for tests and checks every
// invariant when the test ends.
package netdbtest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ipamd/ipamd/netdb"
)

// Policy is a policy whose waits a test can reach with a [Clock].
var Policy = netdb.Policy{Cooldown: 30 * time.Minute, CooldownMin: 2 * time.Minute}

// Options returns options that Open accepts.
func Options() netdb.Options {
	return netdb.Options{
		Synchronous: "full", QuarantineShare: 0.25, Tombstone: time.Hour,
		KeepChanges: 100_000, KeepFor: 30 * 24 * time.Hour,
	}
}

// Open opens a new book in a folder of the test's with one pool, "default",
// 10.8.64.0/24. When the test ends it checks every invariant and closes it.
func Open(t testing.TB) *netdb.Book {
	t.Helper()
	b := OpenAt(t, filepath.Join(t.TempDir(), "book.db"), Options())
	Pool(t, b, "default", "10.8.64.0/24")
	return b
}

// OpenAt opens a book and checks and closes it when the test ends. allow
// names invariants that the test breaks on purpose.
func OpenAt(t testing.TB, path string, opts netdb.Options, allow ...string) *netdb.Book {
	t.Helper()
	b, err := netdb.Open(path, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Close(t, b, allow...) })
	return b
}

// Clear ends a quarantine as an operator does, without asking any witness.
func Clear(b *netdb.Book, addr netip.Addr) (*netdb.Lease, error) {
	l, ok := b.At(addr)
	if !ok {
		return nil, fmt.Errorf("clear %s: %w: it is free", addr, netdb.ErrState)
	}
	return b.ClearAt(context.Background(), Who(netdb.ByOperator, "cleared"), l.ID, l.Rev, nil)
}

// Close checks every invariant and closes the book. Again is fine.
func Close(t testing.TB, b *netdb.Book, allow ...string) {
	t.Helper()
	Check(t, b, allow...)
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// Check fails the test for every broken invariant that is not allowed. A book whose
// files the test took away is not checked.
func Check(t testing.TB, b *netdb.Book, allow ...string) {
	t.Helper()
	found, err := b.Check(context.Background())
	if err != nil && err != netdb.ErrClosed && !errors.Is(err, netdb.ErrMoved) {
		t.Errorf("check the book: %v", err)
	}
	for _, v := range found {
		if !slices.Contains(allow, v.Invariant) {
			t.Errorf("broken invariant: %s", v)
		}
	}
}

// Pool makes a pool with the first host as its gateway.
func Pool(t testing.TB, b *netdb.Book, name, prefix string) *netdb.Pool {
	t.Helper()
	p := netip.MustParsePrefix(prefix)
	pool, err := b.EnsurePool(context.Background(), Who(netdb.ByOperator, "test"), netdb.PoolSpec{
		Name: name, Prefix: p, Gateway: netdb.FirstHost(p), Bridge: "rt0"})
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

// Who names an actor.
func Who(a netdb.Actor, reason string) netdb.Who {
	return netdb.Who{Actor: a, Peer: "test", Reason: reason}
}

// Reserve gives a sandbox the pool's next address.
func Reserve(t testing.TB, b *netdb.Book, sandbox string) *netdb.Lease {
	t.Helper()
	l, err := TryReserve(b, b.Pools()[0], sandbox, Policy)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TryReserve is [Reserve] with an error, from any pool.
func TryReserve(b *netdb.Book, p *netdb.Pool, sandbox string, policy netdb.Policy) (*netdb.Lease, error) {
	c, err := b.Pick(p.UID, policy)
	if err != nil {
		return nil, err
	}
	defer b.Drop(c)
	ls, err := b.Reserve(context.Background(), Who(netdb.ByAllocator, "allocated"), netdb.Reservation{
		Candidate: c, Sandbox: sandbox, UID: sandbox, Interface: "eth0", Attempt: 1, BindWithin: 10 * time.Minute})
	if err != nil {
		return nil, err
	}
	return ls[0], nil
}

// ReservePrefix delegates the first pool's next prefix of that length to a sandbox.
func ReservePrefix(t testing.TB, b *netdb.Book, sandbox string, bits int) *netdb.Lease {
	t.Helper()
	c, err := b.PickPrefix(b.Pools()[0].UID, bits, Policy)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Drop(c)
	ls, err := b.Reserve(context.Background(), Who(netdb.ByAllocator, "allocated"), netdb.Reservation{
		Candidate: c, Sandbox: sandbox, UID: sandbox, Interface: "eth0", Attempt: 1, BindWithin: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return ls[0]
}

// Cool releases a lease and confirms its removal.
func Cool(t testing.TB, b *netdb.Book, l *netdb.Lease) *netdb.Lease {
	t.Helper()
	ctx := context.Background()
	r, err := b.Release(ctx, Who(netdb.ByClient, "released"), l.ID, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	c, err := b.Confirm(ctx, Who(netdb.ByWatchdog, "removal_confirmed"), r.ID, r.Rev, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A Clock is a Stamp that a test moves.
type Clock struct{ netdb.Stamp }

// NewClock starts at a fixed moment of boot "one".
func NewClock() *Clock {
	return &Clock{netdb.Stamp{Wall: time.Unix(1_750_000_000, 0), Boottime: time.Hour, BootID: "one"}}
}

// Now is for netdb.Options.
func (c *Clock) Now() netdb.Stamp { return c.Stamp }

// Pass lets time pass on both clocks.
func (c *Clock) Pass(d time.Duration) {
	c.Wall, c.Boottime, c.Mono = c.Wall.Add(d), c.Boottime+d, c.Mono+d
}

// Step moves the wall clock alone.
func (c *Clock) Step(d time.Duration) { c.Wall = c.Wall.Add(d) }

// Reboot starts another boot, whose uptime is given; the machine was off for no
// time at all.
func (c *Clock) Reboot(id string, uptime time.Duration) {
	c.BootID, c.Boottime, c.Mono, c.Wall = id, uptime, uptime, c.Wall.Add(uptime)
}
