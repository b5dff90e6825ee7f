package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/ipamd/ipamd/netdb"
)

const (
	walLimit = 16 << 20 // bytes
	mebibyte = 1 << 20
	// ends is how many of the first seconds are compared with as many of the
	// last: one alone may have met anything.
	ends = 5
)

// fullLoad is goal 6: what becomes of the write-ahead log and of a commit when
// callers write without a rest. The goal's minute is one round; shorter loads
// beside it, each on a new book, have the spread.
func fullLoad(ctx context.Context, b *bench) (rows []row, err error) {
	wal := row{goal: 6, what: fmt.Sprintf("the log, at its longest in one load of %v of %d callers / 16 MiB", b.load, b.callers), most: 1}
	late := row{goal: 6, what: fmt.Sprintf("a commit in the last %v of it / in the first, p50", aSecond(b.load)), most: 1.2}
	n := min(ends, parts(b.load)/2)
	few := row{goal: 6, what: fmt.Sprintf("the same, the last %d times %v / the first %d, median of each one's p50", n, aSecond(b.load), n), most: 1.2}
	brief := row{goal: 6, what: fmt.Sprintf("the log, at its longest in each of %d loads of %v / 16 MiB", b.loads, b.brief), most: 1}
	briefLate := row{goal: 6, what: fmt.Sprintf("a commit in the last %v of each / in the first, p50", aSecond(b.brief)), most: 1.2}
	all := func() []row { return []row{wal, late, few, brief, briefLate} }
	most, took, err := b.loaded(ctx, "load", b.load)
	if err != nil {
		return nil, err
	}
	wal.mebibytes(most, walLimit)
	if err := first(late.ofEnds(took, 1), few.ofEnds(took, n)); err != nil {
		return all(), err
	}
	for i := range b.loads {
		most, took, err := b.loaded(ctx, fmt.Sprintf("load-%d", i+1), b.brief)
		if err != nil {
			return all(), err
		}
		brief.mebibytes(most, walLimit)
		if err := briefLate.ofEnds(took, 1); err != nil {
			return all(), err
		}
	}
	return all(), nil
}

// loaded lets callers write in this process, where no socket slows them down,
// beside one who reads the history, which a checkpoint has to wait for. Nothing
// is written before: the first commits are those of a new book. It returns the
// most bytes of the log, and how long commits took in each second.
func (b *bench) loaded(ctx context.Context, name string, long time.Duration) (most int64, took []sample, err error) {
	var commits sliced
	book, pool, err := b.openBook(ctx, name, func(o *netdb.Options) { o.OnCommit = commits.add })
	if err != nil {
		return 0, nil, err
	}
	defer func() { err = first(err, book.Close()) }()
	commits.begin(long)
	loaded, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	var both sync.WaitGroup
	var watching, reading error
	both.Go(func() { most, watching = longest(loaded, filepath.Join(b.dir, name, "book.db-wal")) })
	both.Go(func() { reading = reader(loaded, book) })
	err = b.writers(loaded, book, pool, long)
	both.Wait()
	return most, commits.took, first(err, watching, reading, ctx.Err())
}

// mebibytes notes one round of a size.
func (r *row) mebibytes(size, limit int64) {
	r.unit = "MiB"
	r.round(float64(size)/mebibyte, float64(limit)/mebibyte)
}

// ofEnds notes one round of the last n seconds beside the first n.
func (r *row) ofEnds(took []sample, n int) error {
	last, from := medianOf(took[len(took)-n:]), medianOf(took[:n])
	if last == 0 || from == 0 {
		return fmt.Errorf("no commit ended in the first of %d parts of a load, or in the last", len(took))
	}
	r.add(last, from)
	return nil
}

// medianOf some samples' p50.
func medianOf(of []sample) time.Duration {
	var half sample
	for _, s := range of {
		half = append(half, s.p50())
	}
	return half.p50()
}

// parts is how many a load is cut into: seconds, and two at the least.
func parts(load time.Duration) int { return max(2, int(load/time.Second)) }

// aSecond is how long one of them is.
func aSecond(load time.Duration) time.Duration { return load / time.Duration(parts(load)) }

// sliced are how long commits took, by when.
type sliced struct {
	began time.Time // zero: nothing is noted yet
	each  time.Duration
	took  []sample
}

func (s *sliced) begin(load time.Duration) {
	s.began, s.each, s.took = time.Now(), aSecond(load), make([]sample, parts(load))
}

// add is called by the book, one commit after the other.
func (s *sliced) add(took time.Duration, _ int) {
	if s.began.IsZero() {
		return
	}
	if i := int(time.Since(s.began) / s.each); i < len(s.took) {
		s.took[i] = append(s.took[i], took)
	}
}

// writers lets all callers reserve and end by turns until ctx ends, which it does
// about then.
func (b *bench) writers(ctx context.Context, book *netdb.Book, pool *netdb.Pool, then time.Duration) error {
	_, err := crowd(ctx, b.callers, then+patience, func(i int) func(context.Context) error {
		c := &bookCaller{book: book, pool: pool, name: strconv.Itoa(i) + "-"}
		return func(ctx context.Context) error {
			if err := c.allocate(ctx); err != nil {
				return err
			}
			return c.release(context.WithoutCancel(ctx))
		}
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	return err
}

// reader reads the history again and again until ctx ends.
func reader(ctx context.Context, book *netdb.Book) error {
	for ctx.Err() == nil {
		if _, err := book.History(ctx, netdb.Query{Limit: 100}); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

// longest is the most bytes that a file has, until ctx ends.
func longest(ctx context.Context, path string) (most int64, err error) {
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for {
		st, err := os.Stat(path)
		if err != nil {
			return 0, err
		}
		most = max(most, st.Size())
		select {
		case <-ctx.Done():
			return most, nil
		case <-look.C:
		}
	}
}
