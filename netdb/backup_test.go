package netdb_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// Each backup that is made while changes go on is a prefix of the history: a whole book,
// with every change up to its revision, and none behind.
func TestBackupUnderLoad(t *testing.T) {
	b, dir := Open(t), t.TempDir()
	stop := make(chan struct{})
	var load sync.WaitGroup
	for i := range 4 {
		load.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				l, err := TryReserve(b, b.Pools()[0], fmt.Sprint(i, "-", n), eager)
				if err == nil {
					_, err = b.Expire(ctx, watchdog, l.ID, l.Rev, nil)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	var made []netdb.Backup
	for i := range 3 {
		was := b.Rev()
		one, err := b.Backup(ctx, filepath.Join(dir, fmt.Sprint(i, ".db")), false)
		if err != nil {
			t.Fatal(err)
		}
		if one.Rev < was || one.Epoch != b.Epoch() {
			t.Errorf("backup %d is at %d of %s, the book was at %d of %s", i, one.Rev, one.Epoch, was, b.Epoch())
		}
		made = append(made, one)
	}
	close(stop)
	load.Wait()

	reader := Options()
	reader.ReadOnly = true
	for _, one := range made {
		if st, err := os.Stat(one.Path); err != nil || st.Mode() != 0o600 || st.Size() != one.Bytes {
			t.Errorf("%s: %v, %v", one.Path, st, err)
		}
		c := OpenAt(t, one.Path, reader)
		got, err := c.History(ctx, ipam.Query{Limit: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		want, err := b.History(ctx, ipam.Query{Limit: 1 << 20, Before: one.Rev + 1})
		if err != nil {
			t.Fatal(err)
		}
		if c.Rev() != one.Rev || !reflect.DeepEqual(got, want) {
			t.Errorf("%s at %d of %d has %d changes, the book has %d up to there", one.Path, c.Rev(), one.Rev, len(got), len(want))
		}
	}
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(names) != len(made) {
		t.Errorf("the folder has %v, %v", names, err)
	}
}

// A target that is no new file, or that cannot be written, is refused by its field; what
// was there stays, and the book can still be written.
func TestBackupsThatAreRefused(t *testing.T) {
	dir := t.TempDir()
	book := filepath.Join(dir, "book.db")
	b := OpenAt(t, book, Options())
	pool := Pool(t, b, "default", "10.8.64.0/24")
	Reserve(t, b, "a")
	there, link, small := filepath.Join(dir, "there"), filepath.Join(dir, "link"), t.TempDir()
	again := filepath.Join(t.TempDir(), "again") // the book's folder by another path
	if err := errors.Join(os.WriteFile(there, []byte("mine"), 0o600), os.Symlink(there, link), os.Symlink(dir, again)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=16k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(small, 0) })
	for path, says := range map[string]string{
		there: "already", link: "no regular file", book: "itself", book + "-mark": "itself", dir: "no regular file", "book.db": "absolute", dir + "/../x": "absolute",
		book + ".rebuilding": "rebuild", book + ".rebuilt": "rebuild", book + ".rebuilding-wal": "rebuild", again + "/book.db.rebuilt": "rebuild", again + "/book.db-journal": "itself",
		filepath.Join(dir, "none", "x"): "no such file", filepath.Join(small, "x"): "cannot be written",
	} {
		_, err := b.Backup(ctx, path, path == link || path == book)
		if field := new(ipam.FieldError); !errors.As(err, &field) || field.Field != "path" || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if got, err := os.ReadFile(there); err != nil || !bytes.Equal(got, []byte("mine")) {
		t.Errorf("what was there has %d bytes now, %v", len(got), err)
	}
	if left, err := filepath.Glob(filepath.Join(small, "*")); err != nil || len(left) > 0 {
		t.Errorf("a full disk is left with %v, %v", left, err)
	}
	if _, err := TryReserve(b, pool, "b", Policy); err != nil || b.Info().ReadOnly != nil {
		t.Errorf("behind them: %v, %v", err, b.Info().ReadOnly)
	}
	// What a crash left is no hindrance, and what may be replaced is.
	if err := os.WriteFile(there+".partial", []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	one, err := b.Backup(ctx, there, true)
	if err != nil || one.Rev != b.Rev() {
		t.Errorf("%+v, %v", one, err)
	}
}
