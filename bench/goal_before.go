package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/reconciler"
	"github.com/ipamd/ipamd/watchdog"
)

// before is the counted half of goal 14: how many commits of a pass end after
// an allocation asked the book and before its own does. Book, bridge and pass
// are in this process, where the book tells of each commit; from the socket it
// cannot be seen when the book was asked.
func before(ctx context.Context, b *bench, steps int) (most, mean row, err error) {
	of := fmt.Sprintf("an allocation beside a pass of %d steps, ", steps)
	most = row{goal: 14, what: of + "counted in the book: commits between asking it and its own, the most of all rounds / 1", most: 1, unit: "commits"}
	mean = row{goal: 14, what: "the same, mean / 1", unit: "commits"}
	var l ledger
	c, err := b.openChecked(ctx, fmt.Sprintf("before-%d", steps), func(o *netdb.Options) { o.OnCommit = l.commit })
	if err != nil {
		return most, mean, err
	}
	defer func() { err = first(err, c.stop()) }()
	l.follow(c.book)
	r, err := c.reconciler()
	if err != nil {
		return most, mean, err
	}
	if _, err := r.Pass(ctx, reconciler.Mode{}); err != nil { // sets aside what the ports have
		return most, mean, err
	}
	late := &bookCaller{book: c.book, pool: c.pool, name: "late-"}
	var all []float64
	err = b.each(ctx, func() error {
		var round []float64
		for len(round) < b.calls/2 { // as many as beside the daemon
			for range steps {
				candidate, err := c.book.Pick(c.pool.UID, policy())
				if err = first(err, late.reserve(ctx, candidate, time.Nanosecond)); err != nil {
					return err
				}
			}
			met, err := c.besidePass(ctx, &l, r, steps)
			if err != nil {
				return err
			}
			round = append(round, met...)
		}
		mean.round(total(round)/float64(len(round)), 1)
		all = append(all, round...)
		return nil
	})
	if len(all) > 0 {
		most.round(slices.Max(all), 1)
	}
	return most, mean, err
}

// reconciler makes passes over the caller's book and bridge, with the daemon's
// defaults and no runtime.
func (c *checkedCaller) reconciler() (*reconciler.Reconciler, error) {
	dog, err := watchdog.New(watchdog.Config{
		Book: c.book, Board: c.board, Ports: c.bridge, PortsChanged: c.bridge.Changed, Settle: c.bridge.Settle,
		ReleasingMax: time.Hour, Timeout: 5 * time.Second, Parallel: 16, Now: netdb.Now,
	})
	if err != nil {
		return nil, err
	}
	return reconciler.New(reconciler.Config{
		Book: c.book, Board: c.board, Prober: c.bridge, Watchdog: dog, Refresh: c.bridge.Refresh, Settle: c.bridge.Settle,
		Misses: 3, Age: 15 * time.Minute, MaxReleases: 0.10, LeastReleases: 5,
		Quarantine: 15 * time.Minute, Every: passEvery, Window: probeWindow, Now: netdb.Now, Log: slog.New(slog.DiscardHandler),
	})
}

// besidePass has a pass made that ends so many reservations, allocates
// meanwhile, and returns how many commits each allocation met.
func (c *checkedCaller) besidePass(ctx context.Context, l *ledger, r *reconciler.Reconciler, steps int) (met []float64, err error) {
	type end struct {
		report *reconciler.Report
		err    error
	}
	ended := make(chan end, 1)
	go func() { // waited for below
		report, err := r.Pass(ctx, reconciler.Mode{Confirm: true})
		ended <- end{report, err}
	}()
	for {
		select {
		case e := <-ended:
			if e.err != nil {
				return nil, e.err
			}
			done := 0
			for _, a := range e.report.Actions {
				if a.Kind == "expire" && a.Result == reconciler.Done {
					done++
				}
			}
			if !e.report.Complete || done != steps {
				return nil, fmt.Errorf("a pass did %d of %d steps: %+v", done, steps, e.report)
			}
			return met, nil
		default:
			candidate, err := c.book.Pick(c.pool.UID, policy())
			if err != nil {
				return nil, err
			}
			asked := l.ended()
			if err := c.reserve(ctx, candidate, time.Minute); err != nil {
				return nil, err
			}
			own, err := l.of(c.held.Rev)
			if err = first(err, c.release(ctx)); err != nil {
				return nil, err
			}
			met = append(met, float64(own-asked))
		}
	}
}

// A ledger numbers a book's commits, and knows which one a change was in.
type ledger struct {
	mu   sync.Mutex
	book *netdb.Book
	last []int64 // revision of each commit
}

// follow says whose commits they are.
func (l *ledger) follow(book *netdb.Book) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.book = book
}

// commit is called by the book, before it answers.
func (l *ledger) commit(time.Duration, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.book != nil {
		l.last = append(l.last, l.book.Rev())
	}
}

// ended is how many commits did.
func (l *ledger) ended() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.last)
}

// of is how many commits ended before the one that a change was in.
func (l *ledger) of(rev int64) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, _ := slices.BinarySearch(l.last, rev)
	if n == len(l.last) {
		return 0, errors.New("a change was answered and its commit not told")
	}
	return n, nil
}
