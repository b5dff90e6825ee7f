package netdb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/internal/elapsed"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/bookfile"
	"github.com/ipamd/ipamd/netdb/index"
	"github.com/ipamd/ipamd/netdb/sqlite"
)

const (
	// foldAt is from how many pages on the log is folded into the file, behind
	// each commit: SQLite's own number. A longer log costs each commit more.
	foldAt = 1000
	// stepPages is more than a step writes into the log: a page of each index, and
	// what splits.
	stepPages = 8
)

const (
	// pruneEvery is how many revisions pass between two looks at the old end of
	// the history, and an eighth of them where the last look left something.
	pruneEvery = 128
	// pruneMost bounds what one look removes: a thousand rows at once hold up the
	// commits behind it for ten times as long as one takes.
	pruneMost = 256
	// forgetAfter is how many pruned changes may be left in what readers know of
	// the history.
	forgetAfter = 10_000
)

// An upkeep keeps the files from growing for ever: it folds the log into the
// file and prunes the history. SQLite folds by itself, too, but hides the error of a
// file that takes no write. The lock holder does it, once the others whose commit it
// made are answered. What it cannot do loses nothing and refuses nothing.
type upkeep struct {
	opts    *Options
	clock   *elapsed.Clock
	store   *store
	index   *index.Index
	writer  *writer
	history *history

	// These are the lock holder's.
	pruneAt  int64     // the revision of the next look at the history
	pruned   int       // changes, since readers forgot
	pages    int       // in the log, at the most: to ask SQLite behind each commit makes it some 6 % longer
	nextLook time.Time // at a damaged book

	log, rows sqlite.Troubles // why the log grows, and the history
}

// growing is why the files grow, without an error when they do not.
func (u *upkeep) growing() (all sqlite.Trouble) {
	for _, t := range []*sqlite.Trouble{u.log.Now(), u.rows.Now()} {
		switch {
		case t == nil:
		case all.Why == nil:
			all = *t
		default:
			all.Why = fmt.Errorf("%w; %w", all.Why, t.Why)
			if t.Since.Before(all.Since) {
				all.Since = t.Since
			}
		}
	}
	return all
}

// Tidy tries again what keeps the book's files from growing, and returns nil
// when nothing of what [Info] has as Growing is left. Commits do not try again
// what an error of the file ended: a disk that fails is not tried behind each
// of them, and the caller of this has seen the error before it is
// repaired. At once, when nothing fails.
func (u *upkeep) Tidy(ctx context.Context) error {
	if u.growing().Why == nil {
		return nil
	}
	for left := u.rows.Now() != nil; ; {
		if err := u.writer.group.Lock(ctx); err != nil {
			return fmt.Errorf("tidy %s: %w", u.store.Path, err)
		}
		func() {
			defer u.writer.group.Unlock() // between two looks commits go on
			if left {
				left = u.prune()
			}
			if !left {
				u.fold()
			}
		}()
		if !left {
			return u.growing().Why
		}
	}
}

// keep is what follows a commit. For the lock holder.
func (u *upkeep) keep() {
	if u.index.Rev() >= u.pruneAt {
		u.prune()
	}
	switch t := u.log.Now(); {
	case t == nil && u.pages >= foldAt, t != nil && errors.Is(t.Why, ErrLogHeld):
		u.fold()
	}
}

// fold writes the pages of a long log into the file, for the next commit to
// begin the log anew: as far as readers let it, and waiting for none of them.
func (u *upkeep) fold() {
	log, err := u.store.Checkpoint("NOOP")
	if err == nil && log.Pages >= foldAt {
		how := "PASSIVE"
		if log.Pages >= sqlite.LongLog {
			how = "RESTART" // which counts readers, too, that hold a log that is in the file
		}
		now, failed := u.store.Checkpoint(how)
		switch {
		case failed == nil:
			log = now
		case !errors.Is(failed, sqlite.ErrFolding):
			err = failed
		case log.Pages < sqlite.LongLog:
			return // it will be shorter in a moment
		}
	}
	if errors.Is(err, sqlite.ErrFolding) {
		return
	}
	if err != nil {
		u.log.Remember(fmt.Errorf("fold the log into the book: %w", err), u.clock.Now().Wall)
		return
	}
	left := log.Pages - log.Folded
	if u.pages = log.Pages; left == 0 {
		u.pages = 0 // the next commit begins it anew
	}
	if log.Pages >= sqlite.LongLog && (left > 0 || log.Held) {
		u.log.Remember(fmt.Errorf("%w: %d of its %d pages are not in the book", ErrLogHeld, left, log.Pages), u.clock.Now().Wall)
		return
	}
	u.log.Over()
}

// prune removes changes that are beyond the kept count or age, and tombstones
// that no longer stand, the oldest first and no more than a few at once: commits
// wait meanwhile. An error leaves them for the next time. It reports whether some
// are left that could go. For the lock holder.
func (u *upkeep) prune() (left bool) {
	now := u.clock.Now()
	u.pages = foldAt
	n, err := u.pruneRows(now)
	u.pruneAt = u.index.Rev() + pruneEvery
	if left = n == pruneMost; left {
		u.pruneAt = u.index.Rev() + pruneEvery/8
	}
	if err != nil {
		u.rows.Remember(fmt.Errorf("prune the history: %w", err), now.Wall)
		return false
	}
	u.rows.Over()
	if u.pruned += n; u.pruned >= forgetAfter {
		u.pruned = 0
		u.history.lasts.forget()
	}
	return left
}

// pruneRows is one commit. It returns how many changes it removed, or tombstones
// if they are more.
func (u *upkeep) pruneRows(now ipam.Stamp) (n int, err error) {
	over := u.index.TombstonesOver(pruneMost, func(t index.Tombstone) bool { return now.Since(t.At) >= u.opts.Tombstone })
	if _, err := u.store.sql.begin.Exec(); err != nil {
		return 0, err
	}
	if err := u.store.finish(func() (err error) {
		if n, err = u.pruneChanges(now); err != nil {
			return err
		}
		for _, uid := range over {
			if _, err := u.store.sql.pruneTombstones.Exec(uid); err != nil {
				return err
			}
		}
		u.opts.failpoint("prune")
		return nil
	}); err != nil {
		return 0, err
	}
	u.index.DropTombstones(over)
	return max(n, len(over)), nil
}

// pruneChanges removes the oldest changes as far as they are too old or too
// many, and returns how many those were.
func (u *upkeep) pruneChanges(now ipam.Stamp) (n int, err error) {
	most, upTo := u.index.Rev()-int64(u.opts.KeepChanges), int64(0)
	err = sqlite.Each(context.Background(), u.store.Conn, `SELECT rev, boottime, boot_id FROM changes ORDER BY rev LIMIT ?1`,
		func(s sqlite.Scanner) error {
			var at ipam.Stamp
			var rev, boot int64
			if err := s.Scan(&rev, &boot, &at.BootID); err != nil {
				return err
			}
			at.Boottime = time.Duration(boot)
			if rev > most && now.Since(at) < u.opts.KeepFor {
				return errYoung
			}
			upTo = rev
			n++
			return nil
		}, pruneMost)
	if errors.Is(err, errYoung) {
		err = nil
	}
	upTo = min(upTo, u.index.Rev()-1) // by the last one a later start knows how long ago it was
	if err == nil && n > 0 {
		if _, err = u.store.sql.pruneRows.Exec(upTo); err == nil {
			_, err = u.store.sql.pruneHostNames.Exec(upTo)
		}
	}
	return n, err
}

// errYoung ends the walk over old changes: those behind are younger still.
var errYoung = errors.New("not old enough")

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
		if err := u.writer.group.Lock(ctx); err != nil {
			return fmt.Errorf("write to %s: %w", u.store.Path, err)
		}
		defer u.writer.group.Unlock()
		return cmp.Or(u.store.Rescue(), u.store.Look(bookfile.AllFiles), why.Why)
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(u.store.Path), &disk); err != nil {
		return fmt.Errorf("write to %s: look for room: %w", u.store.Path, err)
	}
	if free := disk.Bavail * uint64(disk.Bsize); free < room {
		return fmt.Errorf("write to %s: %w: %d bytes are free, less than %d", u.store.Path, ErrReadOnly, free, room)
	}
	if err := u.writer.group.Lock(ctx); err != nil {
		return fmt.Errorf("write to %s: %w", u.store.Path, err)
	}
	defer u.writer.group.Unlock()
	if errors.Is(why.Why, ErrDamaged) {
		if err := u.lookOver(ctx, why.Why); err != nil {
			return err
		}
	}
	if err := u.writer.group.Begin(ctx); err != nil {
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
