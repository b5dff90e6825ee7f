package netdb

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// foldAt is from how many pages on the log is folded into the file, behind
	// each commit: SQLite's own number. Later cost each commit more, and a log
	// that never began anew grew to 1.9 GB and cost twice as much.
	foldAt = 1000
	// longLog is a log that should have begun anew long before, in pages.
	longLog = 4096
	// stepPages is more than a step writes into the log: a page of each index, and
	// what splits.
	stepPages = 8
	// pageSize is that of the book and of its log, in bytes: SQLite's own.
	pageSize = 4096
)

const (
	// pruneEvery is how many revisions pass between two looks at the old end of
	// the history, and an eighth of them where the last look left something.
	pruneEvery = 128
	// pruneMost bounds what one look removes: a thousand rows at once held up the
	// commits behind it for ten times as long as one takes.
	pruneMost = 256
	// forgetAfter is how many pruned changes may be left in what readers know of
	// the history.
	forgetAfter = 10_000
)

// An upkeep keeps the files from growing for ever: it folds the log into the
// file and prunes the history. SQLite would fold by itself, within the commit
// and without an error: a file that took no write had its log grow
// by all that was changed, and looked well.
//
// The holder of writeLock does it, once the others whose commit it made are answered.
// What it cannot do loses nothing that was acknowledged, and refuses nothing.
type upkeep struct {
	pruneAt      int64 // the revision of the next look; for the holder of writeLock, like the next
	pruned       int   // changes, since readers forgot
	pages        int   // in the log, at the most: to ask SQLite behind each commit made it some 6 % longer
	log, history atomic.Pointer[trouble]
}

// A trouble is what does not work, and since when.
type trouble struct {
	why   error
	since time.Time
}

// remember keeps the first moment of a trouble, and its last reason.
func remember(p *atomic.Pointer[trouble], why error, now time.Time) {
	next := &trouble{why: why, since: now}
	for {
		old := p.Load()
		if old != nil {
			next.since = old.since
		}
		if p.CompareAndSwap(old, next) {
			return
		}
	}
}

// growing is why the files grow, without an error when they do not.
func (u *upkeep) growing() trouble {
	log, history := u.log.Load(), u.history.Load()
	switch {
	case log == nil && history == nil:
		return trouble{}
	case history == nil:
		return *log
	case log == nil:
		return *history
	}
	both := trouble{fmt.Errorf("%w; %w", log.why, history.why), log.since}
	if history.since.Before(both.since) {
		both.since = history.since
	}
	return both
}

// Tidy tries again what keeps the book's files from growing, and returns nil
// when nothing of what [Info] has as Growing is left. Commits do not try again
// what an error of the file ended: a disk that fails is not asked behind each
// of them, and the caller of this has seen the error before it is
// repaired. At once, when nothing fails.
func (b *Book) Tidy(ctx context.Context) error {
	if b.upkeep.growing().why == nil {
		return nil
	}
	for left := b.upkeep.history.Load() != nil; ; {
		if err := b.takeWriteLock(ctx); err != nil {
			return fmt.Errorf("tidy %s: %w", b.path, err)
		}
		func() {
			defer func() { <-b.writeLock }() // between two looks commits go on
			if left {
				left = b.prune()
			}
			if !left {
				b.fold()
			}
		}()
		if !left {
			return b.upkeep.growing().why
		}
	}
}

// keep is what follows a commit. The caller holds writeLock.
func (b *Book) keep() {
	if b.idx.rev >= b.upkeep.pruneAt {
		b.prune()
	}
	switch t := b.upkeep.log.Load(); {
	case t == nil && b.upkeep.pages >= foldAt, t != nil && errors.Is(t.why, ErrLogHeld):
		b.fold()
	}
}

// fold writes the pages of a long log into the file, for the next commit to
// begin the log anew: as far as readers let it, and waiting for none of them.
func (b *Book) fold() {
	log, err := logOf(b.sql.measureLog)
	if err == nil && log.length >= foldAt {
		how := b.sql.foldLog
		if log.length >= longLog {
			how = b.sql.restartLog // which counts readers, too, that hold a log that is in the file
		}
		now, failed := logOf(how)
		switch {
		case failed == nil:
			log = now
		case !errors.Is(failed, errFolding):
			err = failed
		case log.length < longLog:
			return // it will be shorter in a moment
		}
	}
	if errors.Is(err, errFolding) {
		return
	}
	if err != nil {
		remember(&b.upkeep.log, fmt.Errorf("fold the log into the book: %w", err), b.clock.now().Wall)
		return
	}
	left := log.length - log.folded
	if b.upkeep.pages = log.length; left == 0 {
		b.upkeep.pages = 0 // the next commit begins it anew
	}
	if log.length >= longLog && (left > 0 || log.held) {
		remember(&b.upkeep.log, fmt.Errorf("%w: %d of its %d pages are not in the book", ErrLogHeld, left, log.length), b.clock.now().Wall)
		return
	}
	b.upkeep.log.Store(nil)
}

// A walLog is the log as a checkpoint left it: its pages, how many of them are
// in the file, too, and whether it was to begin anew and a reader holds it.
type walLog struct {
	length, folded int
	held           bool
}

// errFolding means that another process folds the log just now.
var errFolding = errors.New("another process folds the log")

// logOf runs a checkpoint.
func logOf(checkpoint *sql.Stmt) (walLog, error) {
	var l walLog
	if err := checkpoint.QueryRow().Scan(&l.held, &l.length, &l.folded); err != nil {
		return walLog{}, err
	}
	if l.length < 0 {
		return walLog{}, errFolding
	}
	return l, nil
}

// prune removes changes that are beyond the kept count or age, and tombstones
// that no longer stand, the oldest first and no more than a few at once: commits
// wait meanwhile. An error leaves them for the next time. It reports whether some
// are left that could go. The caller holds writeLock.
func (b *Book) prune() (left bool) {
	now := b.clock.now()
	b.upkeep.pages = foldAt
	n, err := b.pruneRows(now)
	b.upkeep.pruneAt = b.idx.rev + pruneEvery
	if left = n == pruneMost; left {
		b.upkeep.pruneAt = b.idx.rev + pruneEvery/8
	}
	if err != nil {
		remember(&b.upkeep.history, fmt.Errorf("prune the history: %w", err), now.Wall)
		return false
	}
	b.upkeep.history.Store(nil)
	if b.upkeep.pruned += n; b.upkeep.pruned >= forgetAfter {
		b.upkeep.pruned = 0
		b.memory.forget()
	}
	return left
}

// pruneRows is one commit. It returns how many changes it removed, or tombstones
// if they are more.
func (b *Book) pruneRows(now Stamp) (n int, err error) {
	var over []string
	b.idx.stones.Scan(func(_ int64, uid string) bool {
		if len(over) == pruneMost || now.Since(b.idx.tombs[uid].at) < b.opts.Tombstone {
			return false
		}
		over = append(over, uid)
		return true
	})
	if _, err := b.sql.begin.Exec(); err != nil {
		return 0, err
	}
	err = safely(func() (err error) {
		if n, err = b.pruneChanges(now); err != nil {
			return err
		}
		for _, uid := range over {
			if _, err := b.sql.pruneTombs.Exec(uid); err != nil {
				return err
			}
		}
		b.meet("prune")
		_, err = b.sql.commit.Exec()
		return err
	})
	if err != nil {
		_, _ = b.sql.rollback.Exec() // SQLite may have taken it back by itself
		return 0, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, uid := range over {
		b.idx.unbury(uid)
	}
	return max(n, len(over)), nil
}

// pruneChanges removes the oldest changes as far as they are too old or too
// many, and returns how many those were.
func (b *Book) pruneChanges(now Stamp) (n int, err error) {
	most, upTo := b.idx.rev-int64(b.opts.KeepChanges), int64(0)
	err = each(context.Background(), b.conn, `SELECT rev, boottime, boot_id FROM changes ORDER BY rev LIMIT ?1`,
		func(s scanner) error {
			var at Stamp
			var rev, boot int64
			if err := s.Scan(&rev, &boot, &at.BootID); err != nil {
				return err
			}
			at.Boottime = time.Duration(boot)
			if rev > most && now.Since(at) < b.opts.KeepFor {
				return errYoung
			}
			upTo = rev
			n++
			return nil
		}, pruneMost)
	if errors.Is(err, errYoung) {
		err = nil
	}
	upTo = min(upTo, b.idx.rev-1) // by the last one a later start knows how long ago it was
	if err == nil && n > 0 {
		_, err = b.sql.pruneRows.Exec(upTo)
	}
	return n, err
}

// errYoung ends the walk over old changes: those behind are younger still.
var errYoung = errors.New("not old enough")

// room is how much must be free before a book that could not be written is
// tried, in bytes. The try is smaller than a change: without this a disk with
// room for one but not for the other was called writable, and not at the
// next change.
const room = 1 << 20

// Retry writes to a book that could not be written, and changes nothing in it.
// It returns nil when the book can be written, at once when nothing has said
// otherwise, and [ErrReadOnly] or another error of the file when it still
// cannot, or when less than 1 MiB is free beside it. Without it a book that no request changes would be taken for
// read-only for good, and a caller that waits for readiness would never send one.
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
func (b *Book) Retry(ctx context.Context) error {
	why := b.readonly.Load()
	if why == nil {
		return nil
	}
	if b.opts.ReadOnly {
		return why.why
	}
	if errors.Is(why.why, ErrMoved) && b.files.check(allFiles) != nil {
		if err := b.takeWriteLock(ctx); err != nil {
			return fmt.Errorf("write to %s: %w", b.path, err)
		}
		defer func() { <-b.writeLock }()
		return cmp.Or(b.rescue(), b.look(allFiles), why.why)
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(b.path), &disk); err != nil {
		return fmt.Errorf("write to %s: look for room: %w", b.path, err)
	}
	if free := disk.Bavail * uint64(disk.Bsize); free < room {
		return fmt.Errorf("write to %s: %w: %d bytes are free, less than %d", b.path, ErrReadOnly, free, room)
	}
	if err := b.takeWriteLock(ctx); err != nil {
		return fmt.Errorf("write to %s: %w", b.path, err)
	}
	defer func() { <-b.writeLock }()
	if errors.Is(why.why, ErrDamaged) {
		if err := b.lookOver(ctx, why.why); err != nil {
			return err
		}
	}
	if err := b.begin(ctx); err != nil {
		return err
	}
	// There and back: SQLite writes no page for a row that is set to what it
	// is, and a disk that took no write at all was called writable. The page takes
	// the place in the log, too, of a change that was refused because it could
	// not be synced, and that a start after kill -9 would have found there.
	_, err := b.sql.touch.Exec()
	if err == nil {
		_, err = b.sql.untouch.Exec()
	}
	if err == nil {
		_, err = b.sql.commit.Exec()
	}
	if err != nil {
		// SQLite may have taken it back by itself.
		_, _ = b.sql.rollback.Exec()
		return b.classify("write to "+b.path, err)
	}
	if err := b.look(allFiles); err != nil {
		return err
	}
	b.readonly.Store(nil)
	return nil
}

// takeWriteLock waits until no commit is under way, and keeps it so.
func (b *Book) takeWriteLock(ctx context.Context) error {
	select {
	case b.writeLock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-b.closing:
		return ErrClosed
	}
}

// lookOver returns nil when a book that was called damaged is whole, and reads
// it anew: until then it is not known what was read wrongly. The caller holds writeLock.
func (b *Book) lookOver(ctx context.Context, why error) error {
	began := time.Now()
	if began.Before(b.nextLook) {
		return why
	}
	// Pages that it keeps in memory say nothing about the disk.
	_, err := b.conn.ExecContext(ctx, `PRAGMA shrink_memory`)
	if err = b.classify("release memory", err); err == nil {
		_, err = b.checkWhole(ctx)
	}
	if err == nil {
		err = b.load(ctx)
	}
	if err != nil {
		b.nextLook = time.Now().Add(restAfter(time.Since(began)))
		return fmt.Errorf("look over %s: %w", b.path, err)
	}
	return nil
}

// restAfter is how long to wait after a look that found damage. A disk that gives
// up a read after half a minute, or a machine that stood still, makes a look long,
// and is no reason not to find for the next ten that the book is whole.
func restAfter(look time.Duration) time.Duration { return min(20*look, time.Minute) }
