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

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
)

// Policy is a policy whose waits a test can reach with a [Clock].
var Policy = ipam.Policy{Cooldown: 30 * time.Minute, CooldownMin: 2 * time.Minute}

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
func Clear(b *netdb.Book, addr netip.Addr) (*ipam.Lease, error) {
	l, ok := b.At(addr)
	if !ok {
		return nil, fmt.Errorf("clear %s: %w: it is free", addr, ipam.ErrState)
	}
	return b.ClearAt(context.Background(), Who(ipam.ByOperator, "cleared"), l.ID, l.Rev, nil)
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
	if err != nil && err != ipam.ErrClosed && !errors.Is(err, netdb.ErrMoved) {
		t.Errorf("check the book: %v", err)
	}
	for _, v := range found {
		if !slices.Contains(allow, v.Invariant) {
			t.Errorf("broken invariant: %s", v)
		}
	}
}

// Pool makes a pool with the first host as its gateway.
func Pool(t testing.TB, b *netdb.Book, name, prefix string) *ipam.Pool {
	t.Helper()
	p := netip.MustParsePrefix(prefix)
	pool, err := b.EnsurePool(context.Background(), Who(ipam.ByOperator, "test"), ipam.PoolSpec{
		Name: name, Prefix: p, Gateway: ipam.FirstHost(p), Bridge: "rt0"})
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

// Who names an actor.
func Who(a ipam.Actor, reason string) ipam.Who {
	return ipam.Who{Actor: a, Peer: "test", Reason: reason}
}

// Reserve gives a sandbox the pool's next address.
func Reserve(t testing.TB, b *netdb.Book, sandbox string) *ipam.Lease {
	t.Helper()
	l, err := TryReserve(b, b.Pools()[0], sandbox, Policy)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TryReserve is [Reserve] with an error, from any pool.
func TryReserve(b *netdb.Book, p *ipam.Pool, sandbox string, policy ipam.Policy) (*ipam.Lease, error) {
	c, err := b.Pick(p.UID, policy)
	if err != nil {
		return nil, err
	}
	defer b.Drop(c)
	ls, err := b.Reserve(context.Background(), Who(ipam.ByAllocator, "allocated"), netdb.Reservation{
		Candidate: c, Sandbox: sandbox, UID: sandbox, Interface: "eth0", Attempt: 1, BindWithin: 10 * time.Minute})
	if err != nil {
		return nil, err
	}
	return ls[0], nil
}

// ReservePrefix delegates the first pool's next prefix of that length to a sandbox.
func ReservePrefix(t testing.TB, b *netdb.Book, sandbox string, bits int) *ipam.Lease {
	t.Helper()
	c, err := b.PickPrefix(b.Pools()[0].UID, bits, Policy)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Drop(c)
	ls, err := b.Reserve(context.Background(), Who(ipam.ByAllocator, "allocated"), netdb.Reservation{
		Candidate: c, Sandbox: sandbox, UID: sandbox, Interface: "eth0", Attempt: 1, BindWithin: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return ls[0]
}

// Cool releases a lease and confirms its removal.
func Cool(t testing.TB, b *netdb.Book, l *ipam.Lease) *ipam.Lease {
	t.Helper()
	ctx := context.Background()
	r, err := b.Release(ctx, Who(ipam.ByClient, "released"), l.ID, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	c, err := b.Confirm(ctx, Who(ipam.ByWatchdog, "removal_confirmed"), r.ID, r.Rev, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A Clock is a Stamp that a test moves.
type Clock struct{ ipam.Stamp }

// NewClock starts at a fixed moment of boot "one".
func NewClock() *Clock {
	return &Clock{ipam.Stamp{Wall: time.Unix(1_750_000_000, 0), Boottime: time.Hour, BootID: "one"}}
}

// Now is for netdb.Options.
func (c *Clock) Now() ipam.Stamp { return c.Stamp }

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
