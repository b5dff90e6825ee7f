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
// callers write without a rest, in this process, where no socket slows them
// down, beside one who reads the history, which a checkpoint has to wait for.
// Nothing is written before: the first commits are those of a new book.
func fullLoad(ctx context.Context, b *bench) (rows []row, err error) {
	var commits sliced
	book, pool, err := b.openBook(ctx, "load", func(o *netdb.Options) { o.OnCommit = commits.add })
	if err != nil {
		return nil, err
	}
	defer func() { err = first(err, book.Close()) }()
	commits.begin(max(2, int(b.load/time.Second)), b.load)
	loaded, cancel := context.WithTimeout(ctx, b.load)
	defer cancel()
	var both sync.WaitGroup
	var most int64
	var watching, reading error
	both.Go(func() { most, watching = longest(loaded, filepath.Join(b.dir, "load", "book.db-wal")) })
	both.Go(func() { reading = reader(loaded, book) })
	err = b.writers(loaded, book, pool)
	both.Wait()
	if err = first(err, watching, reading, ctx.Err()); err != nil {
		return nil, err
	}
	wal := row{goal: 6, what: fmt.Sprintf("the log, at its longest in %v of %d callers / 16 MiB", b.load, b.callers), most: 1}
	wal.round(float64(most)/mebibyte, walLimit/mebibyte)
	wal.unit = "MiB"
	parts := len(commits.took)
	late := row{goal: 6, what: fmt.Sprintf("a commit in the last %v of it / in the first, p50", commits.each), most: 1.2}
	late.add(medianOf(commits.took[parts-1:]), medianOf(commits.took[:1]))
	n := min(ends, parts/2)
	few := row{goal: 6, what: fmt.Sprintf("the same, the last %d times %v / the first %d, median of each one's p50", n, commits.each, n)}
	few.add(medianOf(commits.took[parts-n:]), medianOf(commits.took[:n]))
	return []row{wal, late, few}, nil
}

// medianOf some samples' p50.
func medianOf(of []sample) time.Duration {
	var half sample
	for _, s := range of {
		half = append(half, s.p50())
	}
	return half.p50()
}

// sliced are how long commits took, by when.
type sliced struct {
	began time.Time // zero: nothing is noted yet
	each  time.Duration
	took  []sample
}

func (s *sliced) begin(parts int, load time.Duration) {
	s.began, s.each, s.took = time.Now(), load/time.Duration(parts), make([]sample, parts)
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

// writers lets all callers reserve and end by turns until ctx ends.
func (b *bench) writers(ctx context.Context, book *netdb.Book, pool *netdb.Pool) error {
	_, err := crowd(ctx, b.callers, b.load+patience, func(i int) func(context.Context) error {
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
