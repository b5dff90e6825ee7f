package netdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// maxBatch bounds one commit, so that no caller waits for a queue it does not
// see the end of.
const maxBatch = 256

// busyPause is how long the lock holder waits before asking again for a write
// lock that another process holds.
const busyPause = 5 * time.Millisecond

// lockPatience is how long a request waits for that lock that was in a batch and
// is tried alone: its caller's deadline no longer counts.
const lockPatience = 5 * time.Second

// An op is one request on its way into a commit. It may be run more than
// once, when another request spoils the batch; it must do nothing but stage.
type op struct {
	run   func(*tx) error
	done  chan error
	state atomic.Int32
}

const (
	opWaiting = iota // the caller may still walk away
	opTaken          // it is answered, whatever the caller's deadline
	opLeft           // the caller walked away
)

// update makes fn part of a commit and returns once what it staged is
// durable. When ctx ends before the request was taken, nothing happened;
// after that the answer is awaited, so that "deadline exceeded" always means
// "not done".
//
// There is no writer to hand requests to: a caller that waits while writeLock is
// free takes it and commits for all that wait. A goroutine of its own costs a
// lone caller two switches, each a sleeping processor to wake.
func (b *Book) update(ctx context.Context, fn func(*tx) error) error {
	if b.opts.ReadOnly {
		return fmt.Errorf("%w: opened for reading", ErrReadOnly)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	o := &op{run: fn, done: make(chan error, 1)}
	b.queue.join(o)
	for {
		select {
		case err := <-o.done:
			return answer(err)
		case b.writeLock <- struct{}{}:
			if err := b.lead(ctx, o); err != nil {
				return b.leave(o, err)
			}
		case <-ctx.Done():
			return b.leave(o, b.whyWaiting(ctx.Err()))
		case <-b.closing:
			return b.leave(o, ErrClosed)
		}
	}
}

// leave walks away because of why, or takes the answer when it is too late
// for that.
func (b *Book) leave(o *op, why error) error {
	if o.state.CompareAndSwap(opWaiting, opLeft) {
		b.queue.leave(o)
		return why
	}
	return answer(<-o.done)
}

// take runs the request, unless its caller left.
func (o *op) take(t *tx) (err error) {
	if !o.state.CompareAndSwap(opWaiting, opTaken) && o.state.Load() != opTaken {
		return nil
	}
	return safely(func() error { return o.run(t) })
}

// whyWaiting says why a caller's deadline passed.
func (b *Book) whyWaiting(ctxErr error) error {
	if busy := b.busy.Load(); busy != nil {
		return fmt.Errorf("%w (%w)", *busy, ctxErr)
	}
	return ctxErr
}

// lead gives writeLock back after one commit of all that wait, without waiting
// for more: under load that settles at half the callers a batch. An error is
// mine alone; the others take the lock themselves.
func (b *Book) lead(ctx context.Context, mine *op) error {
	defer func() { <-b.writeLock }()
	if len(mine.done) > 0 {
		return nil // answered just before the lock was taken
	}
	began := time.Now()
	if err := b.begin(ctx); err != nil {
		return err
	}
	if behind := b.commit(began, b.queue.next(maxBatch)); behind != nil {
		panic(behind.Error())
	}
	b.keep()
	return nil
}

// commit ends the transaction that has begun with a batch in it. When SQLite
// refuses something that the index had allowed, the batch is taken back and
// each request is tried alone, so that it fails by itself. What it returns is a
// panic behind the commit: every request is answered, and the caller who
// committed panics, because it has to be seen and no request is to blame.
func (b *Book) commit(began time.Time, batch []*op) (behind error) {
	defer func() {
		if p := recover(); p != nil {
			answerAll(batch, panicked{p})
			panic(p)
		}
	}()
	answers, behind, err := b.try(batch)
	if err != nil && len(batch) > 1 && !fileError(err) {
		for _, o := range batch {
			behind = errors.Join(behind, b.alone(o))
		}
		return behind
	}
	if err == nil && b.opts.OnCommit != nil {
		behind = errors.Join(behind, safely(func() error { b.opts.OnCommit(time.Since(began), len(batch)); return nil }))
	}
	for i, o := range batch {
		if err != nil {
			o.done <- err
		} else {
			o.done <- answers[i]
		}
	}
	return behind
}

// alone commits one request that was in a batch. It was taken, so its own
// caller's patience no longer counts, and the leader's never did.
func (b *Book) alone(o *op) (behind error) {
	ctx, cancel := context.WithTimeout(context.Background(), lockPatience)
	defer cancel()
	began := time.Now()
	if err := b.begin(ctx); err != nil {
		o.done <- err
		return nil
	}
	return b.commit(began, []*op{o})
}

// try runs one transaction and returns each request's answer, or the error
// that ended the transaction for all. behind is a panic behind a durable commit.
func (b *Book) try(batch []*op) (answers []error, behind, err error) {
	began := time.Now()
	staged := b.staged
	staged.reset(b.idx.rev)
	t := &tx{opts: &b.opts, now: b.clock.now(), idx: b.idx, staged: staged}
	answers = make([]error, len(batch))
	for i, o := range batch {
		before := len(staged.steps)
		if answers[i] = o.take(t); answers[i] != nil {
			staged.rewind(before, b.idx.rev)
		}
	}
	if len(staged.steps) == 0 {
		return answers, nil, b.rollback(nil)
	}
	if err := safely(func() error { return b.write(staged.steps) }); err != nil {
		return nil, nil, b.rollback(err)
	}
	took := time.Since(began)
	behind = safely(func() error { b.publish(staged, took); return nil })
	if behind != nil {
		b.readAnew(behind)
	}
	if err := b.settle(); err != nil {
		return nil, behind, err
	}
	return answers, behind, nil
}

// write makes a batch durable.
func (b *Book) write(steps []step) error {
	for _, s := range steps {
		if err := b.store(s); err != nil {
			return err
		}
		b.meet("store")
	}
	_, err := b.sql.commit.Exec()
	return b.classify("commit", err)
}

// begin takes the write lock of the file, patiently, until ctx ends.
func (b *Book) begin(ctx context.Context) error {
	if err := b.stillAway(); err != nil {
		return err
	}
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
		select {
		case <-b.closing:
			return ErrClosed
		case <-ctx.Done():
			return b.whyWaiting(ctx.Err())
		case <-time.After(busyPause):
		}
	}
}

// rollback takes a transaction back and returns why. The index has nothing of
// it yet, but is loaded again all the same: a row that is not as it was read
// was changed behind our back, and behind an error of the file whatever SQLite
// says is there is the truth.
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
			s.stone.rev, s.stone.at.Wall.UnixNano(), int64(s.stone.at.Boottime), s.stone.at.BootID)
		if err != nil {
			return b.classify("store tombstone", err)
		}
	case s.runtime != "":
		if _, err = b.sql.noteRuntime.Exec(s.runtime); err != nil {
			return b.classify("note runtime "+s.runtime, err)
		}
	case s.old == nil:
		res, err = b.sql.insertLease.Exec(s.now.row()...)
	case s.now == nil:
		res, err = b.sql.deleteLease.Exec(s.old.fence()...)
	case s.now.ID == s.old.ID:
		res, err = b.sql.updateLease.Exec(append(s.now.other(), s.old.fence()...)...)
	default:
		res, err = b.sql.replaceLease.Exec(slices.Concat([]any{s.now.ID}, s.now.other(), s.old.fence())...)
	}
	if err != nil {
		return b.classify("store "+s.change.Addr.String(), err)
	}
	if res != nil {
		if n, err := res.RowsAffected(); err != nil || n != 1 {
			return fmt.Errorf("store %s: %w: the row is not as it was read", s.change.Addr, ErrStale)
		}
	}
	_, err = b.sql.insertChange.Exec(s.change.row(s.now, b.clock.uptime())...)
	return b.classify("record "+s.change.Addr.String(), err)
}

// publish makes a durable batch visible to readers.
func (b *Book) publish(staged *overlay, took time.Duration) {
	b.readonly.Store(nil)
	b.upkeep.pages += stepPages * (1 + len(staged.steps))
	b.mu.Lock()
	defer b.mu.Unlock()
	var touched stateSet
	for _, s := range staged.steps {
		b.meet("publish")
		touched |= s.touched()
		switch {
		case s.pool != nil:
			b.idx.replacePool(s.pool)
		case s.tomb != "":
			b.idx.bury(s.tomb, s.stone)
		case s.runtime != "":
			b.idx.runtime = s.runtime
		default:
			b.idx.apply(s.old, s.now, s.change.Rev)
		}
	}
	b.idx.rev = staged.rev
	b.commits.add(took)
	b.signal.send(touched)
}

// fileError reports that the file, not a request, is the reason.
func fileError(err error) bool {
	return errors.Is(err, ErrReadOnly) || errors.Is(err, ErrBusy) ||
		errors.Is(err, ErrDamaged) || errors.Is(err, ErrClosed)
}

// cannotWrite remembers that the book cannot be written. The reason may change; that
// it began is not forgotten before the book can be written again.
func (b *Book) cannotWrite(why error) { remember(&b.readonly, why, b.clock.now().Wall) }

// classify maps SQLite's result codes to what a caller can do next.
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
		b.cannotWrite(err)
		return err
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		err = fmt.Errorf("%s: %w: %w; %w", doing, ErrDamaged, err, ErrReadOnly)
		b.cannotWrite(err)
		return err
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// A panicked error carries a panic out of a commit: a request's to its own
// caller, because the lock holder for it has nothing to do with it.
type panicked struct{ value any }

func (p panicked) Error() string { return fmt.Sprint(p.value) }

func answer(err error) error {
	if p, ok := err.(panicked); ok {
		panic(p.value)
	}
	return err
}

// safely runs fn and returns its panic as an error, with the stack.
func safely(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked{fmt.Sprintf("%v\n\n%s", p, debug.Stack())}
		}
	}()
	return fn()
}

// answerAll answers the requests of a batch that have no answer yet.
func answerAll(batch []*op, err error) {
	for _, o := range batch {
		select {
		case o.done <- err:
		default:
		}
	}
}

// readAnew reads the book into a new index behind a durable commit that could
// not be published: half of it may be in the old one. Where that is not possible
// the process ends, by a panic that is not recovered: an address could be given
// twice by an index that does not know the newest leases.
func (b *Book) readAnew(why error) {
	err := safely(func() error {
		b.meet("read anew")
		return b.load(context.Background())
	})
	if err != nil {
		go panic(fmt.Sprintf("the book cannot be read behind a commit: %v\n\n%v", err, why))
		select {}
	}
	b.signal.send(^stateSet(0))
}

// meet is a point that a test may let a commit fail at.
func (b *Book) meet(point string) {
	if b.opts.meet != nil {
		b.opts.meet(point)
	}
}

// Ping goes the way of every change: it waits in the queue, takes the file's
// write lock, and changes nothing. It returns nil when that was possible
// before ctx ended. An error that wraps ctx's means that a change would not
// have come through either; [ErrBusy] beside it, that another process holds
// the lock. Any other error is an answer of the file. Nothing is synced.
func (b *Book) Ping(ctx context.Context) error {
	if err := b.update(ctx, func(*tx) error { return nil }); err != nil {
		return fmt.Errorf("ping %s: %w", b.path, err)
	}
	return nil
}
