package netdb_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/ipamd/ipamd/internal/faultfs"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/migrations"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// rewriting is what a migration does that SQLite's ALTER TABLE cannot: it
// copies two filled tables and drops the old ones.
const rewriting = `
CREATE TABLE leases_next AS SELECT * FROM leases;
DROP TRIGGER leases_keep_their_pool;
CREATE TABLE changes_next AS SELECT * FROM changes;
DELETE FROM changes;
DELETE FROM leases;
INSERT INTO leases SELECT * FROM leases_next;
INSERT INTO changes SELECT * FROM changes_next;
DROP TABLE leases_next;
DROP TABLE changes_next;
ALTER TABLE leases ADD COLUMN upgraded INTEGER NOT NULL DEFAULT 1;
CREATE TRIGGER leases_keep_their_pool BEFORE UPDATE OF pool_uid ON leases
WHEN NEW.pool_uid <> OLD.pool_uid
BEGIN
    SELECT raise(ABORT, 'a lease never changes its pool');
END;
`

// filled makes a book that has some of everything, and so many leases
// more, as a kill left it and as a stop did.
func (l *life) filled(t *testing.T, leases int) (killed, stopped faultfs.Image) {
	l.open(t)
	l.work(t)
	for i := range leases {
		a := Reserve(t, l.book, fmt.Sprint("more", i))
		_, err := l.book.Bind(ctx, client, a.ID, 0, ipam.Binding{Containers: []ipam.Container{{Namespace: "n", ID: a.ID}}})
		l.done(t, err)
	}
	killed = powered(t, l.disk)
	Close(t, l.book)
	return killed, powered(t, l.disk)
}

// upgraded is the options of a build with one more migration.
func upgraded(o netdb.Options) netdb.Options {
	return netdb.Upgraded(o, fmt.Sprintf("%04d_rewrite.sql", migrations.Latest()+1), rewriting)
}

// whole opens what is left with the old build and with the next one. It is the
// old book or the new one, and whole as either.
func (l *life) whole(in string, image faultfs.Image, next netdb.Options, known string, changes int) (upgraded bool, err error) {
	for _, opts := range []netdb.Options{l.opts, next} {
		err := l.wholeFor(filepath.Join(in, "disk"), image, opts, known, changes)
		switch {
		case errors.Is(err, netdb.ErrNewerSchema):
			upgraded = true
		case err != nil:
			return upgraded, err
		}
	}
	return upgraded, nil
}

func (l *life) wholeFor(dir string, image faultfs.Image, opts netdb.Options, known string, changes int) (err error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := lay(image, dir); err != nil {
		return err
	}
	b, err := netdb.Open(filepath.Join(dir, "book.db"), opts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	if found, err := b.Check(ctx); err != nil || len(found) > 0 {
		return fmt.Errorf("%v, %w", found, err)
	}
	history, err := b.History(ctx, ipam.Query{Limit: changes + 1})
	if err != nil || len(history) != changes || l.rowsOf(b) != known || b.Epoch() != l.epoch {
		return fmt.Errorf("schema %d has %d changes and not %d, %w:\n%s, and there was\n%s",
			b.Info().Schema, len(history), changes, err, l.rowsOf(b), known)
	}
	_, err = TryReserve(b, b.Pools()[0], "next", Policy)
	return err
}

// recorded is the number of changes in a book's history.
func recorded(t *testing.T, b *netdb.Book) int {
	t.Helper()
	history, err := b.History(ctx, ipam.Query{Limit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return len(history)
}

// L14, L16: the power goes behind every operation of an upgrade that rewrites
// filled tables, after a kill. The next start finds the old book or the new
// one, whole; and the new one, once the upgrade had ended.
func TestL16PowerLossInAnUpgrade(t *testing.T) {
	realtest.Long(t)
	l := unborn(t, "full")
	t.Parallel()
	killed, _ := l.filled(t, 60)
	next := upgraded(l.opts)
	put(t, l.disk, killed)
	l.memos = nil
	began := l.disk.Len()
	b := OpenAt(t, l.path(), next)
	l.book = b
	l.note()
	known, changes, was := l.rowsOf(b), recorded(t, b), map[bool]int{}
	Close(t, b)
	v := l.cutAt(t, spent, func(n int, _ faultfs.Op) bool { return n >= began },
		func(in string, image faultfs.Image, acked int) (bool, error) {
			upgraded, err := l.whole(in, image, next, known, changes)
			was[upgraded]++
			return acked > 0 && !upgraded, err
		})
	t.Logf("%d cuts, %d of them with some chance, %d different disks, %d old and %d new",
		v.cuts, v.random, v.images, was[false], was[true])
	if v.lost > 0 || was[false] == 0 || was[true] == 0 || v.random < leastRandom {
		t.Errorf("%d of %d disks lost the upgrade", v.lost, v.images)
	}
}

// L14: the same on a disk that begins to fail at each operation of the upgrade,
// after a stop: a log left by a kill is read by every opening, whatever follows.
func TestL14AnUpgradeOnADiskThatFails(t *testing.T) {
	realtest.Long(t)
	l := troubled(t, "every read", "read-only", "no room behind a while") // an opening meets them without this, too
	t.Parallel()
	_, stopped := l.filled(t, 5)
	next := upgraded(l.opts)
	b := OpenAt(t, l.path(), l.opts)
	known, changes := l.rowsOf(b), recorded(t, b)
	Close(t, b)
	l.eachTrouble(t, stopped, []string{"write book.db-wal", "sync book.db-wal", "read book.db", "stat book.db-wal"}, func(t *testing.T, l *life, strike func() func() bool) (bool, bool) {
		restore := strike()
		b, err := netdb.Open(l.path(), next)
		struck := restore()
		if err != nil && !struck {
			t.Error(err)
		}
		if err != nil {
			if _, err := l.whole(t.TempDir(), powered(t, l.disk), next, known, changes); err != nil {
				t.Error(err)
			}
			return true, struck
		}
		if upgraded, err := l.whole(t.TempDir(), l.disk.Left(), next, known, changes); err != nil || !upgraded {
			t.Errorf("upgraded, and after a power loss: %v, %v", upgraded, err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		return false, struck
	})
}
