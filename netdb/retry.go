package netdb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// room is how much must be free before a book that could not be written is
// tried, in bytes. The try is smaller than a change: without this a disk with
// room for one but not for the other was called well, and ill again at the
// next change.
const room = 1 << 20

// Retry writes to a book that could not be written, and changes nothing in it.
// It returns nil when the book can be written, at once when nothing has said
// otherwise, and [ErrReadOnly] or another error of the file when it still
// cannot, or when less than 1 MiB is free beside it. Without it a book that nobody wants to change would be taken for
// read-only for good, and whoever waits for readiness would never want to.
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
		if err := b.takeTurn(ctx); err != nil {
			return fmt.Errorf("write to %s: %w", b.path, err)
		}
		defer func() { <-b.turn }()
		return cmp.Or(b.rescue(), b.look(allFiles), why.why)
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(b.path), &disk); err != nil {
		return fmt.Errorf("write to %s: look for room: %w", b.path, err)
	}
	if free := disk.Bavail * uint64(disk.Bsize); free < room {
		return fmt.Errorf("write to %s: %w: %d bytes are free, less than %d", b.path, ErrReadOnly, free, room)
	}
	if err := b.takeTurn(ctx); err != nil {
		return fmt.Errorf("write to %s: %w", b.path, err)
	}
	defer func() { <-b.turn }()
	if errors.Is(why.why, ErrDamaged) {
		if err := b.lookOver(ctx, why.why); err != nil {
			return err
		}
	}
	if err := b.begin(ctx); err != nil {
		return err
	}
	// There and back: SQLite writes no page for a row that is set to what it
	// is, and a disk that took no write at all was called well. The page takes
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

// takeTurn waits until nobody commits, and keeps it so.
func (b *Book) takeTurn(ctx context.Context) error {
	select {
	case b.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-b.closing:
		return ErrClosed
	}
}

// lookOver returns nil when a book that was called damaged is whole, and reads
// it anew: until then nobody knows what was read wrongly. Who calls has the turn.
func (b *Book) lookOver(ctx context.Context, why error) error {
	began := time.Now()
	if began.Before(b.nextLook) {
		return why
	}
	// Pages that it keeps in memory say nothing about the disk.
	_, err := b.conn.ExecContext(ctx, `PRAGMA shrink_memory`)
	if err = b.classify("let go of memory", err); err == nil {
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
// and is no reason not to find for the next ten that the book is well.
func restAfter(look time.Duration) time.Duration { return min(20*look, time.Minute) }
