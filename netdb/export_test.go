package netdb

import (
	"context"
	"database/sql"
	"errors"

	"github.com/ipamd/ipamd/migrations"
	"github.com/ipamd/ipamd/netdb/bookfile"
	"github.com/ipamd/ipamd/netdb/index"
	"github.com/ipamd/ipamd/netdb/sqlite"
)

// Upgraded returns the options of a later build, with one more migration.
func Upgraded(o Options, name, sql string) Options {
	all := migrations.All()
	o.schema = append(all, migrations.Migration{Version: len(all) + 1, Name: name, SQL: sql})
	return o
}

// Forgetful returns options of a book whose pools remember so many freed
// addresses.
func Forgetful(o Options, most int) Options {
	o.mostFreed = most
	return o
}

// FewTombstones returns options of a book that keeps so many tombstones.
func FewTombstones(o Options, most int) Options {
	o.mostTombstones = most
	return o
}

// Failing returns options of a book whose commits, and whose readers of all rows,
// call at with each point that they come to: it may panic there, or wait.
func Failing(o Options, at func(point string)) Options {
	o.failpoint = at
	return o
}

// OwnMark makes a mark that was copied with its book that of the copy, as if both had
// been moved there.
func OwnMark(book string) error {
	was, err := bookfile.ReadMark(book)
	if err != nil || was == nil {
		return err
	}
	m := bookfile.MarkerOf(book)
	return errors.Join(m.Open(*was), m.Close())
}

// LookUpSlowly looks a lease id up in the history, and LastConflictSlowly the
// last conflict, as slowly as pause has it: it is called in the middle.
func LookUpSlowly(b *Book, id string, pause func()) error {
	m := &b.lasts
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.readOn(context.Background(), slowly{b.store.Readers, pause})
}

func LastConflictSlowly(b *Book, pause func()) error {
	b.conflicts.mu.Lock()
	defer b.conflicts.mu.Unlock()
	pause()
	return nil
}

// ForgetSoon has the next pruning take back what readers know of the history.
func ForgetSoon(ctx context.Context, b *Book) error {
	if err := b.writer.group.Lock(ctx); err != nil {
		return err
	}
	defer b.writer.group.Unlock()
	b.pruned = forgetAfter
	return nil
}

// Prune takes one look at the old end of the history, and reports whether something
// is left that could go.
func Prune(ctx context.Context, b *Book) (left bool, err error) {
	if err := b.writer.group.Lock(ctx); err != nil {
		return false, err
	}
	defer b.writer.group.Unlock()
	return b.prune(), nil
}

// slowly pauses in the middle of what is read.
type slowly struct {
	sqlite.Querier
	pause func()
}

func (s slowly) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	rows, err := s.Querier.QueryContext(ctx, query, args...)
	s.pause()
	return rows, err
}

// DropCaches makes the book forget the pages that SQLite keeps in memory, and what it
// knows of the history, and close its idle readers, so that what comes next asks
// the disk.
func (b *Book) DropCaches(ctx context.Context) error {
	if err := b.writer.group.Lock(ctx); err != nil {
		return err
	}
	defer b.writer.group.Unlock()
	b.lasts.forget()
	b.store.Readers.SetMaxIdleConns(0)
	b.store.Readers.SetMaxIdleConns(2)
	_, err := b.store.Conn.ExecContext(ctx, `PRAGMA shrink_memory`)
	return err
}

// CannotWrite has a reading or a commit report why the book cannot be written.
func (b *Book) CannotWrite(why error) { b.store.CannotWrite(why) }

// Fold folds the log into the file as a commit does behind a long one.
func (b *Book) Fold(ctx context.Context) error {
	if err := b.writer.group.Lock(ctx); err != nil {
		return err
	}
	defer b.writer.group.Unlock()
	log, err := b.store.Checkpoint("PASSIVE")
	if err == nil && log.Folded < log.Pages {
		err = errors.New("some of the log is not in the file")
	}
	return err
}

// Committing reports whether a caller holds the lock.
func (b *Book) Committing() bool { return b.writer.group.Committing() }

// Waiting is how many requests are in the line for the next commit.
func (b *Book) Waiting() int {
	return b.writer.group.Waiting()
}

// Tombstones is how many are in memory, where they stand or not.
func Tombstones(b *Book) (n int) {
	b.writer.index.Preview(func(v *index.View) { n, _ = v.Tombstones() })
	return n
}

// LogPages is how many pages the log has.
func LogPages(ctx context.Context, b *Book) (int, error) {
	if err := b.writer.group.Lock(ctx); err != nil {
		return 0, err
	}
	defer b.writer.group.Unlock()
	log, err := b.store.Checkpoint("NOOP")
	return log.Pages, err
}

// Cancelled reports whether a tombstone of a sandbox's attempt stands.
func (b *Book) Cancelled(uid string, attempt int64) (stands bool) {
	b.writer.index.Preview(func(v *index.View) {
		stands = (&tx{Batch: &index.Batch{View: *v}, opts: b.store.opts, now: b.Now()}).cancelled(uid, attempt)
	})
	return stands
}

// Entries is how much memory has of a pool and of its rows.
func Entries(b *Book, uid string) int { return b.writer.index.Entries(uid) }
