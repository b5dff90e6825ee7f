package netdb

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/ipamd/ipamd/internal/elapsed"
	"github.com/ipamd/ipamd/netdb/bookfile"
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

// A writer makes commits. A caller that waits for one may make it: the lock holder,
// one at a time, commits for all that wait, and alone uses what writes: the
// writing connection of the [store], the rows of the [memory], the [upkeep].
type writer struct {
	opts   *Options
	clock  *elapsed.Clock
	store  *store
	memory *memory
	upkeep *upkeep

	queue   queue
	staged  *overlay              // for the lock holder
	busy    atomic.Pointer[error] // why the file's lock is waited for
	locked  chan struct{}         // full while the lock is held; full for good once closed
	closing chan struct{}
}

// update makes fn part of a commit and returns once what it staged is
// durable. When ctx ends before the request was taken, nothing happened;
// after that the answer is awaited, so that "deadline exceeded" always means
// "not done".
//
// There is no writer to hand requests to: a caller that waits while the lock is
// free takes it and commits for all that wait. A goroutine of its own costs a
// lone caller two switches, each a sleeping processor to wake.
func (w *writer) update(ctx context.Context, fn func(*tx) error) error {
	if w.opts.ReadOnly {
		return fmt.Errorf("%w: opened for reading", ErrReadOnly)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	o := &op{run: fn, done: make(chan error, 1)}
	w.queue.join(o)
	for {
		select {
		case err := <-o.done:
			return answer(err)
		case w.locked <- struct{}{}:
			if err := w.lead(ctx, o); err != nil {
				return w.leave(o, err)
			}
		case <-ctx.Done():
			return w.leave(o, w.whyWaiting(ctx.Err()))
		case <-w.closing:
			return w.leave(o, ErrClosed)
		}
	}
}

// leave walks away because of why, or takes the answer when it is too late
// for that.
func (w *writer) leave(o *op, why error) error {
	if o.state.CompareAndSwap(opWaiting, opLeft) {
		w.queue.leave(o)
		return why
	}
	return answer(<-o.done)
}

// whyWaiting says why a caller's deadline passed.
func (w *writer) whyWaiting(ctxErr error) error {
	if busy := w.busy.Load(); busy != nil {
		return fmt.Errorf("%w (%w)", *busy, ctxErr)
	}
	return ctxErr
}

// lead gives the lock back after one commit of all that wait, without waiting
// for more: under load that settles at half the callers a batch. An error is
// mine alone; the others take the lock themselves.
func (w *writer) lead(ctx context.Context, mine *op) error {
	defer w.unlock()
	if len(mine.done) > 0 {
		return nil // answered just before the lock was taken
	}
	began := time.Now()
	if err := w.begin(ctx); err != nil {
		return err
	}
	if behind := w.commit(began, w.queue.next(maxBatch)); behind != nil {
		panic(behind.Error())
	}
	w.upkeep.keep()
	return nil
}

// commit ends the transaction that has begun with a batch in it. When SQLite
// refuses something that the index had allowed, the batch is taken back and
// each request is tried alone, so that it fails by itself. What it returns is a
// panic behind the commit: every request is answered, and the caller who
// committed panics, because it has to be seen and no request is to blame.
func (w *writer) commit(began time.Time, batch []*op) (behind error) {
	defer func() {
		if p := recover(); p != nil {
			for _, o := range batch {
				select {
				case o.done <- panicked{p}:
				default: // it has its answer
				}
			}
			panic(p)
		}
	}()
	answers, behind, err := w.try(batch)
	if err != nil && len(batch) > 1 && !fileError(err) {
		for _, o := range batch {
			behind = errors.Join(behind, w.alone(o))
		}
		return behind
	}
	if err == nil && w.opts.OnCommit != nil {
		behind = errors.Join(behind, safely(func() error { w.opts.OnCommit(time.Since(began), len(batch)); return nil }))
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
func (w *writer) alone(o *op) (behind error) {
	ctx, cancel := context.WithTimeout(context.Background(), lockPatience)
	defer cancel()
	began := time.Now()
	if err := w.begin(ctx); err != nil {
		o.done <- err
		return nil
	}
	return w.commit(began, []*op{o})
}

// try runs one transaction and returns each request's answer, or the error
// that ended the transaction for all. behind is a panic behind a durable commit.
func (w *writer) try(batch []*op) (answers []error, behind, err error) {
	began := time.Now()
	staged := w.staged
	staged.reset(w.memory.idx.rev)
	t := &tx{opts: w.opts, now: w.clock.Now(), idx: w.memory.idx, staged: staged, store: w.store, memory: w.memory}
	answers = make([]error, len(batch))
	for i, o := range batch {
		before := len(staged.steps)
		if answers[i] = o.take(t); answers[i] == nil {
			answers[i] = t.refuse(before)
		}
		if answers[i] != nil {
			staged.rewind(before, w.memory.idx.rev)
		}
	}
	if len(staged.steps) == 0 {
		return answers, nil, w.rollback(nil)
	}
	if err := safely(func() error { return w.store.write(staged.steps) }); err != nil {
		return nil, nil, w.rollback(err)
	}
	took := time.Since(began)
	w.store.Failing.Over()
	if h := staged.steps[0].holding; h != nil {
		w.store.holding.Store(h)
	}
	w.upkeep.pages += stepPages * (1 + len(staged.steps))
	behind = safely(func() error { w.memory.publish(staged, took); return nil })
	if behind != nil {
		w.readAnew(behind)
	}
	if err := w.store.Settle(w.store.whose().Epoch, staged.rev); err != nil {
		return nil, behind, err
	}
	return answers, behind, nil
}

// refuse is why what was staged from a step on is not committed: the book is another
// runner's, and these steps do not make it this one's.
func (t *tx) refuse(from int) error {
	if len(t.staged.steps) == from || t.staged.steps[from].holding != nil {
		return nil
	}
	return t.store.foreign()
}

// begin takes the write lock of the file, patiently, until ctx ends.
func (w *writer) begin(ctx context.Context) error {
	// While it is known that the files were taken away no change is begun. Known it is to
	// the commit that finds out, and to [Book.Info], which a daemon asks each second.
	if r := w.store.Failing.Now(); r != nil && errors.Is(r.Why, ErrMoved) {
		if err := w.store.Look(bookfile.AllFiles); err != nil {
			return err
		}
	}
	defer w.busy.Store(nil)
	for {
		_, err := w.store.sql.begin.Exec()
		if err == nil {
			return nil
		}
		err = w.store.Classify("begin", err)
		if !errors.Is(err, ErrBusy) {
			return err
		}
		w.busy.Store(&err)
		select {
		case <-w.closing:
			return ErrClosed
		case <-ctx.Done():
			return w.whyWaiting(ctx.Err())
		case <-time.After(busyPause):
		}
	}
}

// rollback takes a transaction back and returns why. The index has nothing of
// it yet, but is loaded again all the same: a row that is not as it was read
// was changed behind our back, and behind an error of the file whatever SQLite
// says is there is the truth.
func (w *writer) rollback(why error) error {
	if _, err := w.store.sql.rollback.Exec(); err != nil && why == nil {
		why = w.store.Classify("roll back", err)
	}
	if why != nil {
		// When the file cannot even be read, the index stays: it is what was last known
		// to be durable.
		if err := safely(func() error { return w.load(context.Background()) }); err != nil {
			w.store.CannotWrite(err)
		}
	}
	return why
}

// fileError reports that the file, not a request, is the reason.
func fileError(err error) bool {
	return errors.Is(err, ErrReadOnly) || errors.Is(err, ErrBusy) ||
		errors.Is(err, ErrDamaged) || errors.Is(err, ErrClosed)
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

// lock waits until no commit is under way, and keeps it so until unlock.
func (w *writer) lock(ctx context.Context) error {
	select {
	case w.locked <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-w.closing:
		return ErrClosed
	}
}

func (w *writer) unlock() { <-w.locked }

// keepMark makes a mark again that was taken away; while the lock is held it is left
// for the next look.
func (w *writer) keepMark() {
	if w.opts.ReadOnly || w.store.Failing.Now() != nil {
		return
	}
	select {
	case w.locked <- struct{}{}:
		defer w.unlock()
		w.store.Mark.Keep(w.memory.idx.rev)
	default:
	}
}

// load reads the whole book into a new index.
func (w *writer) load(ctx context.Context) error {
	idx, err := w.store.readIndex(ctx, w.store.Conn)
	if err != nil {
		return w.store.Classify("read", err)
	}
	w.memory.replace(idx)
	return nil
}

// readAnew reads the book into a new index behind a durable commit that could
// not be published: half of it may be in the old one. Where that is not possible
// the process ends, by a panic that is not recovered: an address could be given
// twice by an index that does not know the newest leases.
func (w *writer) readAnew(why error) {
	err := safely(func() error {
		w.opts.meet("read anew")
		return w.load(context.Background())
	})
	if err != nil {
		go panic(fmt.Sprintf("the book cannot be read behind a commit: %v\n\n%v", err, why))
		select {}
	}
	w.memory.signal.send(^stateSet(0))
}
