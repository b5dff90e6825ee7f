package netdb

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ipamd/ipamd/internal/elapsed"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/bookfile"
	"github.com/ipamd/ipamd/netdb/group"
)

// A writer makes commits, for all that wait in its group. The lock holder alone uses what
// writes: the writing connection of the [store], the rows of the [memory], the [upkeep].
type writer struct {
	group  *group.Group[*tx]
	opts   *Options
	clock  *elapsed.Clock
	store  *store
	memory *memory
	upkeep *upkeep
	staged *overlay // for the lock holder
}

// update makes fn part of a commit: see [group.Group.Update].
func (w *writer) update(ctx context.Context, fn func(*tx) error) error {
	if w.opts.ReadOnly {
		return fmt.Errorf("%w: opened for reading", ErrReadOnly)
	}
	return w.group.Update(ctx, fn)
}

// Begin takes the write lock of the file.
func (w *writer) Begin() (busy bool, err error) {
	// While it is known that the files were taken away no change is begun. Known it is to
	// the commit that finds out, and to [Book.Info], which a daemon asks each second.
	if r := w.store.Failing.Now(); r != nil && errors.Is(r.Why, ErrMoved) {
		if err := w.store.Look(bookfile.AllFiles); err != nil {
			return false, err
		}
	}
	if _, err = w.store.sql.begin.Exec(); err != nil {
		err = w.store.Classify("begin", err)
	}
	return errors.Is(err, ErrBusy), err
}

// Try runs one transaction and returns each request's answer, or the error
// that ended the transaction for all. behind is a panic behind a durable commit.
func (w *writer) Try(batch []*group.Request[*tx]) (answers []error, behind, err error) {
	began := time.Now()
	staged := w.staged
	staged.reset(w.memory.idx.rev)
	t := &tx{opts: w.opts, now: w.clock.Now(), idx: w.memory.idx, staged: staged, store: w.store, memory: w.memory}
	answers = make([]error, len(batch))
	for i, o := range batch {
		before := len(staged.steps)
		if answers[i] = o.Run(t); answers[i] == nil {
			answers[i] = t.refuse(before)
		}
		if answers[i] != nil {
			staged.rewind(before, w.memory.idx.rev)
		}
	}
	if len(staged.steps) == 0 {
		return answers, nil, w.rollback(nil)
	}
	if err := group.Safely(func() error { return w.store.write(staged.steps) }); err != nil {
		return nil, nil, w.rollback(err)
	}
	took := time.Since(began)
	w.store.Failing.Over()
	if h := staged.steps[0].holding; h != nil {
		w.store.holding.Store(h)
	}
	w.upkeep.pages += stepPages * (1 + len(staged.steps))
	behind = group.Safely(func() error { w.memory.publish(staged, took); return nil })
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
		if err := group.Safely(func() error { return w.load(context.Background()) }); err != nil {
			w.store.CannotWrite(err)
		}
	}
	return why
}

// OfAll reports that the file, not a request, is the reason.
func (w *writer) OfAll(err error) bool {
	return errors.Is(err, ErrReadOnly) || errors.Is(err, ErrBusy) ||
		errors.Is(err, ErrDamaged) || errors.Is(err, ipam.ErrClosed)
}

// Committed is before the requests of a commit are answered.
func (w *writer) Committed(took time.Duration, batch int) {
	if w.opts.OnCommit != nil {
		w.opts.OnCommit(took, batch)
	}
}

// Keep is once they are.
func (w *writer) Keep() { w.upkeep.keep() }

// keepMark makes a mark again that was taken away; while the lock is held it is left
// for the next look.
func (w *writer) keepMark() {
	if w.opts.ReadOnly || w.store.Failing.Now() != nil || !w.group.TryLock() {
		return
	}
	defer w.group.Unlock()
	w.store.Mark.Keep(w.memory.idx.rev)
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
	err := group.Safely(func() error {
		w.opts.meet("read anew")
		return w.load(context.Background())
	})
	if err != nil {
		go panic(fmt.Sprintf("the book cannot be read behind a commit: %v\n\n%v", err, why))
		select {}
	}
	w.memory.signal.send(^stateSet(0))
}
