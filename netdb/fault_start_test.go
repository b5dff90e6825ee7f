package netdb_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ipamd/ipamd/internal/faultfs"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// left is what a power loss leaves of the disk now.
func left(d *faultfs.Disk) faultfs.Image {
	r := d.Replay()
	for more := true; more; {
		_, more = r.Step()
	}
	return r.Cut(nil)
}

// kept is what is on the disk while it has power.
func kept(t *testing.T, d *faultfs.Disk) faultfs.Image {
	t.Helper()
	image := make(faultfs.Image)
	for _, part := range []string{"", "-wal", "-mark"} {
		data, err := os.ReadFile(filepath.Join(d.Dir(), "book.db"+part))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		image["book.db"+part] = data
	}
	return image
}

// lay writes an image to a folder as what became of the disk's own files: they are no
// copies.
func lay(image faultfs.Image, dir string) error {
	return errors.Join(image.Write(dir), netdb.OwnMark(filepath.Join(dir, "book.db")))
}

// put leaves an image on the disk, durably, and nothing else.
func put(t *testing.T, d *faultfs.Disk, image faultfs.Image) {
	t.Helper()
	for _, part := range []string{"", "-wal", "-shm", "-journal", "-mark"} {
		if err := os.Remove(filepath.Join(d.Dir(), "book.db"+part)); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	sync := func(path string) {
		f, err := os.Open(path)
		if err == nil {
			err = errors.Join(f.Sync(), f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := lay(image, d.Dir()); err != nil {
		t.Fatal(err)
	}
	for name := range image {
		sync(filepath.Join(d.Dir(), name))
	}
	sync(d.Dir())
}

// eachTrouble runs try at each operation of what it does, in each way to fail,
// on a disk where an image is put before, but for the troubles to skip. try
// reports what was refused; each trouble has to have some refusal.
func (l *life) eachTrouble(t *testing.T, image faultfs.Image, try func(*testing.T, func() func() bool) (refused, struck bool), skip ...string) tally {
	t.Helper()
	failed := make(tally)
	for name, tr := range troubles {
		if slices.Contains(skip, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			count, refusals := make(tally), 0
			if name == once {
				count = failed
			}
			for k, struck := 0, true; struck; k++ {
				put(t, l.disk, image)
				var refused bool
				refused, struck = try(t, func() func() bool { return tr.strike(l.disk, k, count) })
				if refused {
					refusals++
				}
				if t.Failed() {
					t.Fatalf("operation %d", k)
				}
			}
			t.Logf("%d refusals, failed: %v", refusals, count)
			if refusals == 0 {
				t.Error("nothing was refused")
			}
		})
	}
	return failed
}

// wantFound opens the book and wants it to be as it was known.
func (l *life) wantFound(t *testing.T, path, known string) {
	t.Helper()
	b := OpenAt(t, path, l.opts)
	if now := l.told(b); now != known || b.Epoch() != l.epoch {
		t.Errorf("the next opening found\n%s, and there was\n%s", now, known)
	}
	Close(t, b)
}

// A book is opened on a disk that begins to fail at each operation of that,
// after a stop and after a kill. It opens, and can be written from then on, or
// refuses; and the next opening finds everything.
func TestL13OpeningOnADiskThatFails(t *testing.T) {
	realtest.Long(t)
	for after, killed := range map[string]bool{"stopped": false, "killed": true} {
		t.Run(after, func(t *testing.T) {
			l := newLife(t, "full")
			l.work(t)
			known := l.told(l.book)
			if !killed {
				Close(t, l.book)
			}
			image := kept(t, l.disk)
			Close(t, l.book)
			failed := l.eachTrouble(t, image, func(t *testing.T, strike func() func() bool) (bool, bool) {
				mend := strike()
				b, err := netdb.Open(l.path(), l.opts)
				struck, known := mend(), known
				if err == nil {
					Reserve(t, b, "next")
					known = l.told(b)
					if err := b.Close(); err != nil {
						t.Errorf("close: %v", err)
					}
				} else if !struck || errors.Is(err, netdb.ErrNotABook) || errors.Is(err, netdb.ErrDamaged) {
					t.Error(err)
				}
				l.wantFound(t, l.path(), known)
				return err != nil, struck
			}, "one sync", "every sync", "no room behind a while") // it hardly writes
			failed.want(t, "open book.db", "stat book.db", "read book.db", "stat book.db-wal", "stat book.db-journal",
				"create book.db-shm", "stat book.db-shm", "truncate book.db-shm", "syncdir",
				"open book.db-mark", "read book.db-mark")
			if killed {
				failed.want(t, "open book.db-wal", "read book.db-wal")
			} else {
				failed.want(t, "create book.db-wal")
			}
		})
	}
}

// L16: a book that is closed on a disk that begins to fail at each operation of
// that has all that was acknowledged, at the next opening and after a power loss.
func TestL13ClosingOnADiskThatFails(t *testing.T) {
	realtest.Long(t)
	l := newLife(t, "full")
	l.work(t)
	image := kept(t, l.disk)
	Close(t, l.book)
	failed := l.eachTrouble(t, image, func(t *testing.T, strike func() func() bool) (bool, bool) {
		b, err := netdb.Open(l.path(), l.opts)
		if err != nil {
			t.Fatal(err)
		}
		Reserve(t, b, "acknowledged")
		known := l.told(b)
		mend := strike()
		err = b.Close()
		struck := mend()
		if err != nil && !struck {
			t.Error(err)
		}
		dir := t.TempDir()
		if err := lay(left(l.disk), dir); err != nil {
			t.Fatal(err)
		}
		l.wantFound(t, filepath.Join(dir, "book.db"), known)
		l.wantFound(t, l.path(), known)
		return err != nil, struck
	})
	failed.want(t, "stat book.db", "write book.db", "sync book.db", "truncate book.db", "stat book.db-wal", "read book.db-wal",
		"sync book.db-wal", "truncate book.db-wal", "unlink book.db-wal", "stat book.db-shm", "unlink book.db-shm")
}

// L14: a first start on a disk that begins to fail at each operation of that.
// The next one, on a disk that is well, makes the book or goes on with it.
func TestL14AFirstStartOnADiskThatFails(t *testing.T) {
	realtest.Long(t)
	l := &life{disk: faultfs.Mount(t, "book.db-shm"), opts: Options()}
	failed := l.eachTrouble(t, nil, func(t *testing.T, strike func() func() bool) (bool, bool) {
		mend := strike()
		b, err := netdb.Open(l.path(), l.opts)
		struck := mend()
		if err == nil {
			if err := b.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		} else if !struck {
			t.Error(err)
		}
		b = OpenAt(t, l.path(), l.opts)
		Pool(t, b, "default", "10.8.64.0/24")
		Reserve(t, b, "a")
		Close(t, b)
		return err != nil, struck
	})
	failed.want(t, "create book.db", "open book.db", "stat book.db", "read book.db", "write book.db", "sync book.db",
		"create book.db-journal", "stat book.db-journal", "read book.db-journal", "write book.db-journal", "sync book.db-journal",
		"unlink book.db-journal", "create book.db-wal", "stat book.db-wal", "write book.db-wal", "sync book.db-wal",
		"create book.db-shm", "stat book.db-shm", "truncate book.db-shm", "syncdir",
		"create book.db-mark", "write book.db-mark", "sync book.db-mark")
}
