package netdb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/netdb/bookfile"
)

// room is how much must be free before a book that could not be written is
// tried, in bytes: the try is smaller than a change.
const room = 1 << 20

// Retry writes to a book that could not be written, and changes nothing in it.
// It returns nil when the book can be written, at once when nothing has said
// otherwise, and [ErrReadOnly] or another error of the file when it still
// cannot, or when less than 1 MiB is free beside it. Without it a daemon that is not
// ready, and so is sent no change, stays read-only for good.
//
// A book whose files were taken away is written to again once they are back. Until
// then, where the book itself is in its place and its log is not, what the log has is
// folded into it.
//
// A book that SQLite called damaged is looked over as it is at opening, and is
// well when nothing is found: SQLite says the same of a page that the disk
// could not read just then. Damage that is real stays; a look that found it
// takes up to a twentieth of the time, or one comes a minute after the other, and
// in between its finding is the answer.
func (u *upkeep) Retry(ctx context.Context) error {
	why := u.store.Failing.Now()
	if why == nil {
		return nil
	}
	if u.opts.ReadOnly {
		return why.Why
	}
	if errors.Is(why.Why, ErrMoved) && u.store.Away(bookfile.AllFiles) != nil {
		if err := u.writer.lock(ctx); err != nil {
			return fmt.Errorf("write to %s: %w", u.store.Path, err)
		}
		defer u.writer.unlock()
		return cmp.Or(u.store.Rescue(), u.store.Look(bookfile.AllFiles), why.Why)
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(u.store.Path), &disk); err != nil {
		return fmt.Errorf("write to %s: look for room: %w", u.store.Path, err)
	}
	if free := disk.Bavail * uint64(disk.Bsize); free < room {
		return fmt.Errorf("write to %s: %w: %d bytes are free, less than %d", u.store.Path, ErrReadOnly, free, room)
	}
	if err := u.writer.lock(ctx); err != nil {
		return fmt.Errorf("write to %s: %w", u.store.Path, err)
	}
	defer u.writer.unlock()
	if errors.Is(why.Why, ErrDamaged) {
		if err := u.lookOver(ctx, why.Why); err != nil {
			return err
		}
	}
	if err := u.writer.begin(ctx); err != nil {
		return err
	}
	// There and back: SQLite writes no page for a row that is set to what it is. The
	// page also overwrites, in the log, a change that was refused because it could not
	// be synced, and that a start after kill -9 would find there.
	err := u.store.finish(func() error {
		_, err := u.store.sql.touch.Exec()
		if err == nil {
			_, err = u.store.sql.untouch.Exec()
		}
		return err
	})
	if err != nil {
		return u.store.Classify("write to "+u.store.Path, err)
	}
	if err := u.store.Look(bookfile.AllFiles); err != nil {
		return err
	}
	u.store.Failing.Over()
	return nil
}

// lookOver returns nil when a book that was called damaged is whole, and reads
// it anew: until then it is not known what was read wrongly. For the lock holder.
func (u *upkeep) lookOver(ctx context.Context, why error) error {
	began := time.Now()
	if began.Before(u.nextLook) {
		return why
	}
	// Pages that it keeps in memory say nothing about the disk.
	_, err := u.store.Conn.ExecContext(ctx, `PRAGMA shrink_memory`)
	if err = u.store.Classify("release memory", err); err == nil {
		_, _, err = u.store.CheckWhole(ctx)
	}
	if err == nil {
		err = u.writer.load(ctx)
	}
	if err != nil {
		u.nextLook = time.Now().Add(restAfter(time.Since(began)))
		return fmt.Errorf("look over %s: %w", u.store.Path, err)
	}
	return nil
}

// restAfter is how long to wait after a look that found damage. A disk that gives
// up a read after half a minute, or a machine that stood still, makes a look long,
// and is no reason not to find for the next ten that the book is whole.
func restAfter(look time.Duration) time.Duration { return min(20*look, time.Minute) }

// Ping goes the way of every change: it waits in the queue, takes the file's
// write lock, and changes nothing. It returns nil when that was possible
// before ctx ended. An error that wraps ctx's means that a change would not
// have come through either; [ErrBusy] beside it, that another process holds
// the lock. Any other error is an answer of the file. Nothing is synced.
func (u *upkeep) Ping(ctx context.Context) error {
	if err := u.writer.update(ctx, func(*tx) error { return nil }); err != nil {
		return fmt.Errorf("ping %s: %w", u.store.Path, err)
	}
	return nil
}
