package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/vishvananda/netns"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/bridge"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/netdb"
)

// openBook opens a new book below the run's directory, with the daemon's
// durability and one pool.
func (b *bench) openBook(ctx context.Context, name string, change ...func(*netdb.Options)) (*netdb.Book, *netdb.Pool, error) {
	opts := netdb.Options{
		Synchronous: "full", QuarantineShare: 0.25, Tombstone: time.Hour, KeepChanges: 100_000, KeepFor: 30 * 24 * time.Hour,
	}
	for _, c := range change {
		c(&opts)
	}
	book, err := netdb.Open(filepath.Join(b.dir, name, "book.db"), opts)
	if err != nil {
		return nil, nil, err
	}
	prefix := netip.MustParsePrefix(poolPrefix)
	pool, err := book.EnsurePool(ctx, netdb.Who{Actor: netdb.ByOperator, Reason: "bench"}, netdb.PoolSpec{
		Name: "default", Prefix: prefix, Gateway: prefix.Addr().Next(), Bridge: bridgeName,
	})
	if err != nil {
		return nil, nil, errors.Join(err, book.Close())
	}
	return book, pool, nil
}

// policy is the daemon's.
func policy() netdb.Policy {
	return netdb.Policy{Cooldown: 30 * time.Minute, CooldownMin: 2 * time.Minute}
}

// A bookCaller uses a book in this process, without looking at any wire.
type bookCaller struct {
	book  *netdb.Book
	pool  *netdb.Pool
	name  string // tells its sandboxes from another caller's
	calls int
	held  *netdb.Lease
}

func (c *bookCaller) allocate(ctx context.Context) error {
	candidate, err := c.book.Pick(c.pool.UID, policy())
	if err != nil {
		return err
	}
	return c.reserve(ctx, candidate, time.Minute)
}

func (c *bookCaller) reserve(ctx context.Context, candidate netdb.Candidate, within time.Duration) error {
	c.calls++
	name := "sandbox-" + c.name + strconv.Itoa(c.calls)
	got, err := c.book.Reserve(ctx, netdb.Who{Actor: netdb.ByAllocator, Reason: "allocated"}, netdb.Reservation{
		Candidate: candidate, Sandbox: name, UID: name, Interface: "eth0", Attempt: 1, BindWithin: within,
	})
	if err == nil {
		c.held = got[0]
	}
	return err
}

func (c *bookCaller) release(ctx context.Context) error {
	_, err := c.book.Expire(ctx, netdb.Who{Actor: netdb.ByWatchdog, Reason: "released"}, c.held.ID, c.held.Rev, nil)
	return err
}

// A checkedCaller allocates in this process as the daemon does: the wire is
// settled and every witness asked.
type checkedCaller struct {
	bookCaller
	allocator *allocator.Allocator
	board     *census.Board
	bridge    *bridge.Bridge
	stop      func() error
}

func (c *checkedCaller) allocate(ctx context.Context) error {
	c.calls++
	got, err := c.allocator.Allocate(ctx, allocator.Request{Sandbox: "sandbox-" + strconv.Itoa(c.calls)})
	if err == nil {
		c.held = got.Leases[0]
	}
	return err
}

// openChecked opens a book and looks after a real bridge with ports.
func (b *bench) openChecked(ctx context.Context, name string, change ...func(*netdb.Options)) (c *checkedCaller, err error) {
	var closers []func() error
	closeAll := func() error {
		var errs []error
		for i := len(closers) - 1; i >= 0; i-- {
			errs = append(errs, closers[i]())
		}
		return errors.Join(errs...)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, closeAll())
		}
	}()
	book, pool, err := b.openBook(ctx, name, change...)
	if err != nil {
		return nil, err
	}
	closers = append(closers, book.Close)
	space, err := newSpace()
	if err != nil {
		return nil, err
	}
	closers = append(closers, space.Close)
	board := census.NewBoard(census.Netns, census.Host, census.Neighbour)
	br, err := openBridge(space, board, pool)
	if err != nil {
		return nil, err
	}
	closers = append(closers, br.Close)
	if err := br.Refresh(ctx); err != nil {
		return nil, err
	}
	guests, err := plug(space, b.ports)
	if err != nil {
		return nil, err
	}
	closers = append(closers, func() error { guests.close(); return nil })
	c = &checkedCaller{bookCaller: bookCaller{book: book, pool: pool}, board: board, bridge: br}
	c.allocator, err = allocator.New(allocator.Config{
		Book: book, Board: board, Prober: br, Settle: br.Settle, Gate: func() error { return nil },
		Pool: pool.Name, Policy: policy(), BindWithin: time.Minute, MaxConflicts: 32,
		ProbeWindow: probeWindow, ProbeAhead: probeAhead, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(ctx)
	var loops sync.WaitGroup
	for _, loop := range []func(context.Context) error{br.Run, c.allocator.Run} {
		loops.Go(func() { _ = loop(running) }) // a bridge that broke refuses the next allocation
	}
	closers = append(closers, func() error { cancel(); loops.Wait(); return nil })
	c.stop = closeAll
	return c, nil
}

func openBridge(space netns.NsHandle, board *census.Board, pool *netdb.Pool) (*bridge.Bridge, error) {
	return bridge.Open(bridge.Config{
		Name: bridgeName, Netns: fmt.Sprintf("/proc/self/fd/%d", int(space)), Manage: true, Board: board,
		Desired: bridge.Desired{Gateways: []netip.Prefix{netip.PrefixFrom(pool.Gateway, pool.Prefix.Bits())}},
	})
}
