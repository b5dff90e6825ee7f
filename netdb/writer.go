package netdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// maxBatch bounds one commit, so that no caller waits for a queue it does not
// see the end of.
const maxBatch = 256

// busyPause is how long the writer waits before it asks again for a write
// lock that another process holds.
const busyPause = 5 * time.Millisecond

// An op is one request on its way through the writer. It may be run more than
// once, when a neighbour spoils the batch; it must do nothing but stage.
type op struct {
	run   func(*tx) error
	done  chan error
	state atomic.Int32
}

const (
	opWaiting = iota // the caller may still walk away
	opTaken          // the writer answers, whatever the caller's deadline
	opLeft           // the caller walked away
)

// update runs fn on the writer and returns once what it staged is durable.
// When ctx ends before the writer took the request, nothing happened; after
// that the answer is awaited, so that "deadline exceeded" always means "not
// done".
func (b *Book) update(ctx context.Context, fn func(*tx) error) error {
	if b.opts.ReadOnly {
		return fmt.Errorf("%w: opened for reading", ErrReadOnly)
	}
	o := &op{run: fn, done: make(chan error, 1)}
	select {
	case b.queue <- o:
	case <-ctx.Done():
		return ctx.Err()
	case <-b.closing:
		return ErrClosed
	}
	select {
	case err := <-o.done:
		return err
	case <-ctx.Done():
		if o.state.CompareAndSwap(opWaiting, opLeft) {
			return b.whyWaiting(ctx.Err())
		}
		return <-o.done
	case <-b.written:
		// Queued behind the writer's back while it was closing.
		select {
		case err := <-o.done:
			return err
		default:
			return ErrClosed
		}
	}
}

// whyWaiting turns the end of a caller's patience into the reason for it.
func (b *Book) whyWaiting(ctxErr error) error {
	if busy := b.busy.Load(); busy != nil {
		return fmt.Errorf("%w (%w)", *busy, ctxErr)
	}
	return ctxErr
}

// write is the one writer. It drains what is waiting into one commit, without
// waiting for more: under load that settles at half the callers a batch.
func (b *Book) write() {
	defer close(b.written)
	for {
		select {
		case o := <-b.queue:
			batch := []*op{o}
			for len(batch) < maxBatch {
				select {
				case o := <-b.queue:
					batch = append(batch, o)
					continue
				default:
				}
				break
			}
			b.commit(batch)
		case <-b.closing:
			for {
				select {
				case o := <-b.queue:
					o.done <- ErrClosed
				default:
					return
				}
			}
		}
	}
}

// commit runs a batch in one transaction. When SQLite refuses something that
// the index had allowed, the batch is taken back and each request is tried
// alone, so that it fails by itself.
func (b *Book) commit(batch []*op) {
	began := time.Now()
	answers, err := b.try(batch)
	if err != nil && len(batch) > 1 && !fileError(err) {
		for _, o := range batch {
			if o.state.Load() != opLeft {
				b.commit([]*op{o})
			}
		}
		return
	}
	if err == nil && b.opts.OnCommit != nil {
		b.opts.OnCommit(time.Since(began), len(batch))
	}
	for i, o := range batch {
		switch {
		case o.state.Load() == opLeft:
		case err != nil:
			o.done <- err
		default:
			o.done <- answers[i]
		}
	}
}

// try runs one transaction and returns each request's answer, or the error
// that ended the transaction for all.
func (b *Book) try(batch []*op) ([]error, error) {
	if err := b.begin(batch); err != nil {
		return nil, err
	}
	began := time.Now()
	staged := newOverlay(b.idx.rev)
	now := b.opts.Now()
	answers := make([]error, len(batch))
	for i, o := range batch {
		if o.state.CompareAndSwap(opWaiting, opTaken) || o.state.Load() == opTaken {
			t := &tx{now: now, idx: b.idx, batch: staged, own: newOverlay(staged.rev)}
			if answers[i] = o.run(t); answers[i] == nil {
				staged.merge(t.own)
			}
		}
	}
	if len(staged.steps) == 0 {
		return answers, b.rollback(nil)
	}
	for _, s := range staged.steps {
		if err := b.store(s); err != nil {
			return nil, b.rollback(err)
		}
	}
	if _, err := b.sql.commit.Exec(); err != nil {
		return nil, b.rollback(b.classify("commit", err))
	}
	b.publish(staged, time.Since(began))
	return answers, nil
}

// begin takes the write lock of the file, patiently, as long as somebody in
// the batch still wants an answer.
func (b *Book) begin(batch []*op) error {
	defer b.busy.Store(nil)
	for {
		_, err := b.sql.begin.Exec()
		if err == nil {
			return nil
		}
		err = b.classify("begin", err)
		if !errors.Is(err, ErrBusy) {
			return err
		}
		b.busy.Store(&err)
		wanted := slices.ContainsFunc(batch, func(o *op) bool { return o.state.Load() != opLeft })
		select {
		case <-b.closing:
			return ErrClosed
		case <-time.After(busyPause):
		}
		if !wanted {
			return err
		}
	}
}

// rollback takes a transaction back and returns why. After an error from the
// file the index is loaded again: whatever SQLite says is there is the truth.
func (b *Book) rollback(why error) error {
	if _, err := b.sql.rollback.Exec(); err != nil && why == nil {
		why = b.classify("roll back", err)
	}
	if why != nil {
		b.reload()
	}
	return why
}

// store writes one step.
func (b *Book) store(s step) error {
	var res sql.Result
	var err error
	switch {
	case s.pool != nil:
		if _, err = b.sql.upsertPool.Exec(s.pool.row()...); err != nil {
			return b.classify("store pool "+s.pool.Name, err)
		}
	case s.tomb != "":
		_, err = b.sql.upsertTomb.Exec(s.tomb, s.stone.attempt,
			s.stone.at.Wall.UnixNano(), int64(s.stone.at.Boottime), s.stone.at.BootID)
		return b.classify("store tombstone", err)
	case s.old == nil:
		res, err = b.sql.insertLease.Exec(s.now.row()...)
	case s.now == nil:
		res, err = b.sql.deleteLease.Exec(s.old.Addr.String(), s.old.ID, s.old.Rev)
	default:
		res, err = b.sql.updateLease.Exec(append(s.now.other(), s.old.Addr.String(), s.old.ID, s.old.Rev)...)
	}
	if err != nil {
		return b.classify("store "+s.change.Addr.String(), err)
	}
	subject := "pool"
	if s.pool == nil {
		subject = "lease"
		if n, err := res.RowsAffected(); err != nil || n != 1 {
			return fmt.Errorf("store %s: %w: the row is not as it was read", s.change.Addr, ErrStale)
		}
	}
	_, err = b.sql.insertChange.Exec(s.change.row(subject)...)
	return b.classify("record "+s.change.Addr.String(), err)
}

// publish makes a durable batch visible to readers.
func (b *Book) publish(staged *overlay, took time.Duration) {
	b.readonly.Store(nil)
	b.mu.Lock()
	for _, s := range staged.steps {
		switch {
		case s.pool != nil:
			b.idx.replacePool(s.pool)
		case s.tomb != "":
			b.idx.tombs[s.tomb] = s.stone
		default:
			b.idx.apply(s.old, s.now)
		}
	}
	grew := staged.rev/pruneEvery != b.idx.rev/pruneEvery
	b.idx.rev = staged.rev
	b.commits.add(took)
	close(b.changed)
	b.changed = make(chan struct{})
	b.mu.Unlock()
	if b.opts.OnChange != nil {
		for _, s := range staged.steps {
			if s.change != nil {
				b.opts.OnChange(*s.change)
			}
		}
	}
	if grew {
		b.prune()
	}
}

// fileError reports that the file, not a request, is the reason.
func fileError(err error) bool {
	return errors.Is(err, ErrReadOnly) || errors.Is(err, ErrBusy) ||
		errors.Is(err, ErrDamaged) || errors.Is(err, ErrClosed)
}

// classify turns SQLite's result codes into what a caller can do next.
func (b *Book) classify(doing string, err error) error {
	if err == nil {
		return nil
	}
	var se *sqlite.Error
	if !errors.As(err, &se) {
		return fmt.Errorf("%s: %w", doing, err)
	}
	switch se.Code() & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return fmt.Errorf("%s: %w: another process writes to %s", doing, ErrBusy, b.path)
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN:
		err = fmt.Errorf("%s: %w: %w", doing, ErrReadOnly, err)
		b.readonly.Store(&err)
		return err
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		err = fmt.Errorf("%s: %w: %w", doing, ErrDamaged, err)
		b.readonly.Store(&err)
		return err
	}
	return fmt.Errorf("%s: %w", doing, err)
}
