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
	"github.com/ipamd/ipamd/netdb/index"
)

// A writer makes commits, for all that wait in its group. The lock holder alone uses what
// writes: the writing connection of the [store], the index, the [upkeep].
type writer struct {
	group   *group.Group[*tx]
	opts    *Options
	clock   *elapsed.Clock
	store   *store
	upkeep  *upkeep
	index   *index.Index
	history *history
	staged  *index.Batch // for the lock holder
	signal  signal
	times   durations
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
	// the commit that finds out, and to [Book.Info], which a daemon asks each second; a
	// reading that fails behind those has another reason.
	if w.store.Failing.Now() != nil {
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
	staged.Reset()
	t := &tx{Batch: staged, opts: w.opts, store: w.store, now: w.clock.Now()}
	answers = make([]error, len(batch))
	for i, o := range batch {
		before := len(staged.Steps())
		if answers[i] = o.Run(t); answers[i] == nil {
			answers[i] = w.refuse(before)
		}
		if answers[i] != nil {
			staged.Rewind(before)
		}
	}
	steps := staged.Steps()
	if len(steps) == 0 {
		return answers, nil, w.rollback(nil)
	}
	if err := group.Safely(func() error { return w.store.write(steps) }); err != nil {
		return nil, nil, w.rollback(err)
	}
	took := time.Since(began)
	w.store.Failing.Over()
	if h := steps[0].Identity; h != nil {
		w.store.identity.Store(h)
	}
	w.upkeep.pages += stepPages * (1 + len(steps))
	behind = group.Safely(func() error { w.publish(took); return nil })
	if behind != nil {
		w.readAnew(behind)
	}
	if err := w.store.Settle(w.store.whose().Epoch, staged.Rev()); err != nil {
		return nil, behind, err
	}
	return answers, behind, nil
}

// refuse is why what was staged from a step on is not committed: the book is another
// runner's, and these steps do not make it this one's.
func (w *writer) refuse(from int) error {
	if steps := w.staged.Steps(); len(steps) == from || steps[from].Identity != nil {
		return nil
	}
	return w.store.foreign()
}

// publish makes a durable batch visible to readers. Who sees it finds closed the channel that it took before:
// a call that met a changed pool was refused, for its bridge, as long as the bridge seemed to follow all pools.
func (w *writer) publish(took time.Duration) {
	var touched stateSet
	for i := range w.staged.Steps() {
		touched |= touchedBy(&w.staged.Steps()[i])
	}
	w.times.add(took)
	w.index.Apply(w.staged, func() { w.signal.send(touched) })
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
	w.store.Mark.Keep(w.index.Rev())
}

// load reads the whole book into a new index.
func (w *writer) load(ctx context.Context) error {
	idx, err := w.store.readIndex(ctx, w.store.Conn)
	if err != nil {
		return w.store.Classify("read", err)
	}
	w.index.Replace(idx)
	return nil
}

// readAnew reads the book into a new index behind a durable commit that could
// not be published: half of it may be in the old one. Where that is not possible
// the process ends, by a panic that is not recovered: an address could be given
// twice by an index that does not know the newest leases.
func (w *writer) readAnew(why error) {
	err := group.Safely(func() error {
		w.opts.failpoint("read anew")
		return w.load(context.Background())
	})
	if err != nil {
		go panic(fmt.Sprintf("the book cannot be read behind a commit: %v\n\n%v", err, why))
		select {}
	}
	w.signal.send(^stateSet(0))
}

// change runs fn in a transaction and returns what it returned, once that is durable.
func change[T any](ctx context.Context, w *writer, fn func(*tx) (T, error)) (out T, err error) {
	err = w.update(ctx, func(t *tx) (err error) {
		out, err = fn(t)
		return err
	})
	if err != nil {
		var none T
		return none, err
	}
	return out, nil
}

// changeLease is change of the row with an id.
func (w *writer) changeLease(ctx context.Context, id string, fn func(*tx, *ipam.Lease) (*ipam.Lease, error)) (*ipam.Lease, error) {
	l, err := change(ctx, w, func(t *tx) (*ipam.Lease, error) {
		l := t.Lease(id)
		if l == nil {
			return nil, errEnded
		}
		return fn(t, l)
	})
	if err == errEnded {
		_, err = w.history.ended(ctx, id)
	}
	return l, err
}
