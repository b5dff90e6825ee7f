package main

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/bridge"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/reconciler"
	"github.com/ipamd/ipamd/watchdog"
)

// policy is the daemon's.
var policy = ipam.Policy{Cooldown: 30 * time.Minute, CooldownMin: 2 * time.Minute}

// probeWindow is how long silence lasts that counts as an answer.
const probeWindow = 50 * time.Millisecond

// A bookCaller uses a new book in this process, without looking at any wire.
type bookCaller struct {
	*run
	*netdb.Book
	pool  *ipam.Pool
	path  string
	name  string // keeps its sandboxes apart from another caller's
	calls int
	held  *ipam.Lease
}

// book opens one with the daemon's durability. onCommit may be nil.
func (r *run) book(onCommit func(time.Duration, int)) *bookCaller {
	c := &bookCaller{run: r, path: filepath.Join(must(os.MkdirTemp(r.dir, "book-")), "book.db"), name: "sandbox-"}
	c.Book = must(netdb.Open(c.path, netdb.Options{Synchronous: "full", QuarantineShare: 0.25, Tombstone: time.Hour,
		KeepChanges: 100_000, KeepFor: 30 * 24 * time.Hour, OnCommit: onCommit}))
	r.Cleanup(func() { check(c.Book.Close()) })
	prefix := netip.MustParsePrefix(largePool)
	c.pool = must(c.EnsurePool(r.ctx, ipam.Who{Actor: ipam.ByOperator, Reason: "bench"}, ipam.PoolSpec{
		Name: "default", Prefix: prefix, Gateway: prefix.Addr().Next(), Bridge: bridgeName}))
	return c
}

func (c *bookCaller) allocate() error { return c.reserve(time.Minute) }

func (c *bookCaller) reserve(within time.Duration) error {
	candidate, err := c.Pick(c.pool.UID, policy)
	if err != nil {
		return err
	}
	c.calls++
	name := c.name + strconv.Itoa(c.calls)
	got, err := c.Reserve(c.ctx, ipam.Who{Actor: ipam.ByAllocator, Reason: "allocated"}, netdb.Reservation{
		Candidate: candidate, Sandbox: name, UID: name, Interface: "eth0", Attempt: 1, BindWithin: within})
	if err == nil {
		c.held = got[0]
	}
	return err
}

func (c *bookCaller) release() error {
	_, err := c.Expire(c.ctx, ipam.Who{Actor: ipam.ByWatchdog, Reason: "released"}, c.held.ID, c.held.Rev, nil)
	return err
}

func (c *bookCaller) call() call { return call{c.allocate, c.release} }

// A checkedCaller has a real bridge beside the book, and asks every witness.
type checkedCaller struct {
	*bookCaller
	allocator *allocator.Allocator
	board     *census.Board
	bridge    *bridge.Bridge
}

func (r *run) checked(onCommit func(time.Duration, int)) *checkedCaller {
	c := &checkedCaller{bookCaller: r.book(onCommit)}
	ns := nstest.New(r)
	ns.Bridge(bridgeName, "10.8.0.1/16")
	addr := netip.MustParsePrefix(portPrefix).Addr()
	for range r.ports {
		addr = addr.Next()
		ns.Port(bridgeName, addr.String()+"/16")
	}
	c.bridge, c.board = r.bridge(ns)
	c.allocator = must(allocator.New(allocator.Config{
		Book: c.Book, Board: c.board, Prober: c.bridge, Settle: c.bridge.Settle, HasLink: c.bridge.HasLink, Gate: func(...*ipam.Pool) error { return nil },
		Pool: c.pool.Name, Policy: policy, BindWithin: time.Minute, MaxConflicts: 32,
		ProbeWindow: probeWindow, ProbeAhead: 16, Log: slog.New(slog.DiscardHandler)}))
	r.loop(c.allocator.Run)
	return c
}

func (c *checkedCaller) allocate() error {
	c.calls++
	got, err := c.allocator.Allocate(c.ctx, allocator.Request{Sandbox: c.name + strconv.Itoa(c.calls)})
	if err == nil {
		c.held = got.Leases[0]
	}
	return err
}

// bridge watches that of a namespace.
func (r *run) bridge(ns *nstest.NS) (*bridge.Bridge, *census.Board) {
	board := census.NewBoard(census.Netns, census.Host, census.Neighbour)
	br := must(bridge.Open(bridge.Config{Name: bridgeName, Netns: ns.Path(), Manage: true, Board: board,
		Desired: bridge.Desired{Gateways: []netip.Prefix{netip.MustParsePrefix("10.8.0.1/16")}}}))
	r.Cleanup(func() { check(br.Close()) })
	check(br.Refresh(r.ctx))
	r.loop(br.Run)
	return br, board
}

// bookAlone is goal 2: a full record, lease and change. That a batch has one sync is
// counted by netdb's TestOneSyncPerCommit.
func bookAlone(r *run) func() []ratio {
	c := r.book(nil)
	return func() []ratio {
		fresh, log := r.book(nil), int64(0)
		const commits, frame = 100, 4096 + 24 // the log has room for them before it begins anew
		for range commits {
			if check(fresh.allocate()); fresh.calls == 1 { // the first finds the book's own pages changed
				log = must(os.Stat(fresh.path + "-wal")).Size()
			}
		}
		pages := float64(must(os.Stat(fresh.path+"-wal")).Size()-log) / frame / (commits - 1)
		t := byTurns(r.calls, r.yardF(), c.call())
		return []ratio{took(t[1].do.p50(), t[0].do.p50()), {pages, 1, "pages"}}
	}
}

// liveCheck is goal 5: what the question to every witness adds.
func liveCheck(r *run) func() []ratio {
	without, with := r.book(nil), r.checked(nil)
	return func() []ratio {
		t := byTurns(r.calls, r.yardF(), without.call(), call{with.allocate, with.release})
		return []ratio{took(t[2].do.p50()-t[1].do.p50(), t[0].do.p50())}
	}
}

// fullLoad is goal 6: callers write in this process, where no socket slows them down,
// beside a reader of the history, which a checkpoint has to wait for. Nothing is
// written before: the first commits are those of a new book.
func fullLoad(r *run) func() []ratio {
	return func() []ratio {
		var began time.Time // zero: nothing is noted yet
		seconds := make([]sample, r.load/time.Second)
		c := r.book(func(took time.Duration, _ int) { // one commit after the other
			if n := int(time.Since(began) / time.Second); n < len(seconds) {
				seconds[n] = append(seconds[n], took)
			}
		})
		writers := make([]func() error, r.callers)
		for i := range writers {
			w := *c
			w.name += strconv.Itoa(i) + "-"
			writers[i] = func() error {
				if err := w.allocate(); err != nil {
					return err
				}
				return w.release()
			}
		}
		began = time.Now()
		stop := r.loop(func(ctx context.Context) error {
			_, err := c.History(ctx, ipam.Query{Limit: 100})
			time.Sleep(10 * time.Millisecond)
			return err
		})
		var most int64
		watching := r.loop(func(context.Context) error {
			st, err := os.Stat(c.path + "-wal")
			if err == nil {
				most = max(most, st.Size())
			}
			time.Sleep(5 * time.Millisecond)
			return err
		})
		crowd(r.load, writers...)
		stop()
		watching()
		ends := func(n int) ratio {
			n = min(n, len(seconds)/2)
			return took(slices.Concat(seconds[len(seconds)-n:]...).p50(), slices.Concat(seconds[:n]...).p50())
		}
		return []ratio{sizes(float64(most), 16<<20), ends(1), ends(5)}
	}
}

// commitsBefore is the counted half of goal 14: how many commits end after an
// allocation calls the book and before its own does, beside a pass that finds that all
// agree and beside one that ends reservations. From the socket it cannot be seen when
// the book was called.
func commitsBefore(r *run) func() []ratio {
	const steps = 32
	var mu sync.Mutex
	var commits []int64 // the revision of each
	var c *checkedCaller
	c = r.checked(func(time.Duration, int) {
		mu.Lock()
		defer mu.Unlock()
		if c != nil {
			commits = append(commits, c.Rev())
		}
	})
	ended := func() []int64 {
		mu.Lock()
		defer mu.Unlock()
		return commits
	}
	passes := c.reconciler()
	must(passes.Pass(r.ctx, reconciler.Mode{})) // quarantines what the ports have
	late := *c.bookCaller
	late.name = "late-"
	beside := func(ends int) (met sample) {
		for len(met) < r.calls/4 {
			for range ends {
				check(late.reserve(time.Nanosecond))
			}
			var report *reconciler.Report
			over := make(chan error, 1)
			go func() { // waited for below
				var err error
				report, err = passes.Pass(r.ctx, reconciler.Mode{Confirm: true})
				over <- err
			}()
			for passing := true; passing; {
				select {
				case err := <-over:
					check(err)
					passing = false
				default:
					begun := len(ended())
					check(c.bookCaller.allocate())
					own, _ := slices.BinarySearch(ended(), c.held.Rev)
					check(c.release())
					met = append(met, time.Duration(own-begun))
				}
			}
			done := 0
			for _, a := range report.Actions {
				if a.Kind == "expire" && a.Result == reconciler.Done {
					done++
				}
			}
			if !report.Complete || done != ends {
				r.Fatalf("a pass ended %d of %d reservations: %+v", done, ends, report)
			}
		}
		return met
	}
	return func() []ratio {
		quiet, ending := beside(0), beside(steps)
		var sum float64
		for _, n := range ending {
			sum += float64(n)
		}
		return []ratio{{float64(quiet.at(1)), 1, "commits"}, {float64(ending.at(1)), 1, "commits"}, {sum / float64(len(ending)), 1, "commits"}}
	}
}

// reconciler makes passes over the caller's book and bridge, with the daemon's
// defaults and no runtime.
func (c *checkedCaller) reconciler() *reconciler.Reconciler {
	dog := must(watchdog.New(watchdog.Config{
		Book: c.Book, Board: c.board, Kernel: c.bridge, PortsChanged: c.bridge.Changed, Settle: c.bridge.Settle,
		ReleasingMax: time.Hour, Timeout: 5 * time.Second, Parallel: 16, Now: ipam.Now}))
	return must(reconciler.New(reconciler.Config{
		Book: c.Book, Board: c.board, Prober: c.bridge, Watchdog: dog, Refresh: c.bridge.Refresh, Settle: c.bridge.Settle,
		Misses: 3, Age: 15 * time.Minute, MaxReleases: 0.10, LeastReleases: 5,
		Quarantine: 15 * time.Minute, Every: 5 * time.Minute, Window: probeWindow, Now: ipam.Now, Log: slog.New(slog.DiscardHandler)}))
}
