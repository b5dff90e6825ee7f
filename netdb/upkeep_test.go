package netdb_test

import (
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ipamd/ipamd/internal/faultfs"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// logLimit is how long the log may be when all is well, in bytes.
const logLimit = 16 << 20

// change makes n changes of a lease, each acknowledged.
func (l *life) change(t *testing.T, id string, n int) {
	t.Helper()
	for range n {
		rev := l.book.Rev()
		if _, err := l.book.Bind(ctx, client, id, 0, ipam.Binding{MAC: fmt.Sprintf("02:00:00:00:%02x:%02x", rev>>8, rev&0xff)}); err != nil {
			t.Fatalf("behind revision %d: %v", rev, err)
		}
	}
	l.note()
}

// lengthen makes changes until the log is longer than size bytes.
func (l *life) lengthen(t *testing.T, id string, size int64) (changes int) {
	t.Helper()
	for ; l.book.Info().WALBytes <= size; changes += 10 {
		if l.change(t, id, 10); changes > 4000 {
			t.Fatalf("%d changes, and the log has %d bytes", changes, l.book.Info().WALBytes)
		}
	}
	return changes
}

// wantShort wants the log to begin anew with the next change, and nothing to
// be reported.
func (l *life) wantShort(t *testing.T, id string) {
	t.Helper()
	l.change(t, id, 1)
	if i := l.book.Info(); i.Growing != nil || !i.GrowingSince.IsZero() || i.WALBytes > logLimit {
		t.Errorf("the log has %d bytes, of at most %d; the book says %v", i.WALBytes, logLimit, i.Growing)
	}
}

// L12: the disk takes the log and not the book's own file. Every change is
// durable, and none is refused; the log grows, and the book says since when
// and why. What it acknowledged is there after a power loss. Once the disk is
// well it folds the log, without another opening, and says no more.
func TestL12ADiskThatTakesTheLogOnly(t *testing.T) {
	for name, kind := range map[string]faultfs.Kind{"no write": faultfs.Write, "no sync": faultfs.Sync} {
		t.Run(name, func(t *testing.T) {
			l := newLife(t, "full")
			Pool(t, l.book, "default", "10.8.64.0/24")
			a := Reserve(t, l.book, "a")
			l.lengthen(t, a.ID, 1<<20)
			asked := 0
			l.disk.Inject(func(op faultfs.Op) (f faultfs.Fault) {
				if op.Kind == kind && op.Name == "book.db" {
					asked++
					f.Err = syscall.EIO
				}
				return f
			})
			changes := l.lengthen(t, a.ID, logLimit)
			i := l.book.Info()
			if i.Growing == nil || errors.Is(i.Growing, netdb.ErrLogHeld) || i.GrowingSince.IsZero() || i.ReadOnly != nil {
				t.Fatalf("with a log of %d bytes the book says %v since %v, and that it cannot be written: %v", i.WALBytes, i.Growing, i.GrowingSince, i.ReadOnly)
			}
			t.Logf("%v, after %d changes that were durable; the log has %d bytes", i.Growing, changes, i.WALBytes)
			for range 3 {
				if err := l.book.Tidy(ctx); err == nil {
					t.Error("tidied on a disk that fails")
				}
			}
			if again := l.book.Info(); !again.GrowingSince.Equal(i.GrowingSince) || again.ReadOnly != nil {
				t.Errorf("it grows since %v, and did since %v", again.GrowingSince, i.GrowingSince)
			}
			l.wantDurable(t)

			l.disk.Inject(nil) // and so nothing counts any more
			if asked > 50 {
				t.Errorf("the disk was asked %d times", asked)
			}
			if err := l.book.Tidy(ctx); err != nil {
				t.Error(err)
			}
			l.wantShort(t, a.ID)
			l.wantDurable(t)
		})
	}
}

// A reader that does not end holds the log, and that is another trouble than a
// disk's: it is reported once the log is longer than it should be, and goes with the
// reader. One that came later holds a log that is all in the file, too.
func TestAReaderHoldsTheLog(t *testing.T) {
	realtest.Long(t)
	l := newLife(t, "full")
	Pool(t, l.book, "default", "10.8.64.0/24")
	a := Reserve(t, l.book, "a")
	db, err := sql.Open("sqlite", l.path())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	first := read(t, db)
	l.lengthen(t, a.ID, logLimit/2)
	if i := l.book.Info(); i.Growing != nil {
		t.Errorf("with a log of %d bytes the book says %v", i.WALBytes, i.Growing)
	}
	l.lengthen(t, a.ID, logLimit+1<<20)
	wantHeld := func(when string) {
		t.Helper()
		if i := l.book.Info(); !errors.Is(i.Growing, netdb.ErrLogHeld) || i.ReadOnly != nil {
			t.Errorf("%s, with a log of %d bytes, the book says %v", when, i.WALBytes, i.Growing)
		}
		if err := l.book.Tidy(ctx); !errors.Is(err, netdb.ErrLogHeld) {
			t.Errorf("%s, tidied: %v", when, err)
		}
	}
	wantHeld("beside a reader")
	second := read(t, db)
	end(t, first)
	wantHeld("beside one that came later")
	if why := l.book.Info().Growing; why == nil || !strings.Contains(why.Error(), " 0 of its") {
		t.Errorf("%v, and all of it is in the file", why)
	}
	end(t, second)
	if err := l.book.Tidy(ctx); err != nil {
		t.Errorf("without a reader: %v", err)
	}
	l.wantShort(t, a.ID)
}

// read begins to read the book and does not end.
func read(t *testing.T, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	var n int
	if err := tx.QueryRow(`SELECT count(*) FROM leases`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return tx
}

func end(t *testing.T, tx *sql.Tx) {
	t.Helper()
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
}

// A history that cannot be pruned grows, too, whatever it is that keeps it:
// here a trigger. Changes go on.
func TestAHistoryThatCannotBePruned(t *testing.T) {
	l := newLife(t, "full")
	l.opts.KeepChanges = 100
	Close(t, l.book)
	l.open(t)
	Pool(t, l.book, "default", "10.8.64.0/24")
	a := Reserve(t, l.book, "a")
	stored := func() int {
		past, err := l.book.History(ctx, ipam.Query{Limit: 10_000})
		if err != nil {
			t.Fatal(err)
		}
		return len(past)
	}
	l.change(t, a.ID, 300)
	db, err := sql.Open("sqlite", l.path())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(`CREATE TRIGGER kept BEFORE DELETE ON changes BEGIN SELECT raise(ABORT, 'kept by a test'); END`); err != nil {
		t.Fatal(err)
	}
	l.change(t, a.ID, 200)
	if i := l.book.Info(); i.Growing == nil || i.ReadOnly != nil || stored() < 300 {
		t.Errorf("of a history of %d changes the book says %v, and that it cannot be written: %v", stored(), i.Growing, i.ReadOnly)
	}
	if err := l.book.Tidy(ctx); err == nil {
		t.Error("pruned what cannot be")
	}
	if _, err := db.Exec(`DROP TRIGGER kept`); err != nil {
		t.Fatal(err)
	}
	if err := l.book.Tidy(ctx); err != nil || l.book.Info().Growing != nil || stored() > 100 {
		t.Errorf("once it can be pruned: %v, %d changes", err, stored())
	}
}

// However old and many the changes are, the newest stays: a book that is opened again
// counts on from it. Without any, as a person leaves it, it counts on from its
// rows, in another epoch.
func TestNoRevisionIsUsedTwice(t *testing.T) {
	path, c := filepath.Join(t.TempDir(), "book.db"), NewClock()
	opts := Options()
	opts.Now, opts.KeepChanges = c.Now, 1
	b := OpenAt(t, path, opts)
	Pool(t, b, "default", "10.8.64.0/24")
	first := Reserve(t, b, "a")
	if _, err := b.Expire(ctx, watchdog, Reserve(t, b, "b").ID, b.Rev(), nil); err != nil {
		t.Fatal(err)
	}
	c.Pass(2 * opts.KeepFor)
	for left := true; left; {
		var err error
		if left, err = netdb.Prune(ctx, b); err != nil {
			t.Fatal(err)
		}
	}
	rev, epoch := b.Rev(), b.Epoch()
	if all, err := b.History(ctx, ipam.Query{}); err != nil || len(all) != 1 || all[0].Rev != rev {
		t.Fatalf("at %d the history is %+v, %v", rev, all, err)
	}
	Close(t, b)
	b = OpenAt(t, path, opts)
	if l := Reserve(t, b, "c"); l.Rev != rev+1 || b.Epoch() != epoch {
		t.Errorf("it is at %d in %s, and was at %d in %s", l.Rev, b.Epoch(), rev, epoch)
	}
	Close(t, b)
	raw(t, path, `DELETE FROM changes; DELETE FROM leases WHERE sandbox = 'c'`)
	b = OpenAt(t, path, opts, netdb.RowsHaveTheirLast)
	if b.Rev() <= first.Rev || b.Epoch() == epoch {
		t.Errorf("without a history it is at %d in %s", b.Rev(), b.Epoch())
	}
}
