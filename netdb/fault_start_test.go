package netdb_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/ipamd/ipamd/internal/faultfs"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// powered is what is on the disk while it has power.
func powered(t *testing.T, d *faultfs.Disk) faultfs.Image {
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

// troubled is a life that is not born yet, with another for each trouble but those to
// skip, each on a disk of its own.
func troubled(t *testing.T, skip ...string) *life {
	l := unborn(t, "full")
	l.under = make(map[string]*life)
	for name := range troubles {
		if !slices.Contains(skip, name) {
			l.under[name] = unborn(t, "full")
		}
	}
	return l
}

// eachTrouble runs try at the first operation of what it does, and at others behind
// [trouble.skips], in each way to fail, on the disk that is for this trouble, where an image
// is put before. try reports what was refused; each trouble has to have some refusal, and
// each of the operations in wanted has to have failed once alone. A sample passes some over,
// and so does counting, as on a busy machine one try has more operations than another: those
// fail by their names then.
func (l *life) eachTrouble(t *testing.T, image faultfs.Image, wanted []string, try func(t *testing.T, l *life, strike func() func() bool) (refused, struck bool)) {
	t.Helper()
	for name, own := range l.under {
		own.epoch, own.stones = l.epoch, l.stones
		tr := troubles[name]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun, count, refusals := make(tally), make(tally), 0
			tryWith := func(what any, strike func() func() bool) bool {
				t.Helper()
				put(t, own.disk, image)
				refused, struck := try(t, own, strike)
				if refused {
					refusals++
				}
				if t.Failed() {
					t.Fatalf("from operation %v on", what)
				}
				return struck
			}
			skips := 0 // before the first one
			for at := 0; tryWith(at, func() func() bool {
				restore := tr.strike(own.disk, at, skips, begun, count)
				return func() bool { at = restore(); return at >= 0 }
			}); at++ {
				skips = tr.skips()
			}
			if name == once {
				for _, o := range wanted {
					if count[o] == 0 {
						tryWith(o, func() func() bool {
							restore := tr.strikeFirst(own.disk, o, count)
							return func() bool { return restore() >= 0 }
						})
					}
				}
				count.want(t, wanted...)
			}
			t.Logf("%d refusals, failed: %v", refusals, count)
			if refusals == 0 {
				t.Error("nothing was refused")
			}
		})
	}
}

// wantFound opens the book and wants it to be as it was known.
func (l *life) wantFound(t *testing.T, path, known string) {
	t.Helper()
	b := OpenAt(t, path, l.opts)
	if now := l.rowsOf(b); now != known || b.Epoch() != l.epoch {
		t.Errorf("the next opening found\n%s, and there was\n%s", now, known)
	}
	Close(t, b)
}

// A book is opened on a disk that begins to fail at each operation of that,
// after a stop and after a kill. It opens, and can be written from then on, or
// refuses; and the next opening finds everything.
func TestL13OpeningOnADiskThatFails(t *testing.T) {
	realtest.Long(t)
	hardlyWritten := []string{"one sync", "every sync", "no room behind a while"}
	lives := map[string]*life{"stopped": troubled(t, hardlyWritten...), "killed": troubled(t, hardlyWritten...)}
	t.Parallel()
	for after, l := range lives {
		killed := after == "killed"
		t.Run(after, func(t *testing.T) {
			t.Parallel()
			l.open(t)
			l.work(t)
			known := l.rowsOf(l.book)
			if !killed {
				Close(t, l.book)
			}
			image := powered(t, l.disk)
			Close(t, l.book)
			wanted := []string{"open book.db", "stat book.db", "read book.db", "stat book.db-wal", "stat book.db-journal",
				"create book.db-shm", "stat book.db-shm", "truncate book.db-shm", "syncdir",
				"open book.db-mark", "read book.db-mark", "create book.db-wal"}
			if killed {
				wanted = append(wanted[:len(wanted)-1], "open book.db-wal", "read book.db-wal")
			}
			l.eachTrouble(t, image, wanted, func(t *testing.T, l *life, strike func() func() bool) (bool, bool) {
				restore := strike()
				b, err := netdb.Open(l.path(), l.opts)
				struck, known := restore(), known
				if err == nil {
					Reserve(t, b, "next")
					known = l.rowsOf(b)
					if err := b.Close(); err != nil {
						t.Errorf("close: %v", err)
					}
				} else if !struck || errors.Is(err, netdb.ErrNotABook) || errors.Is(err, netdb.ErrDamaged) {
					t.Error(err)
				}
				l.wantFound(t, l.path(), known)
				return err != nil, struck
			})
		})
	}
}

// L16: a book that is closed on a disk that begins to fail at each operation of
// that has all that was acknowledged, at the next opening and after a power loss.
func TestL13ClosingOnADiskThatFails(t *testing.T) {
	realtest.Long(t)
	l := troubled(t)
	t.Parallel()
	l.open(t)
	l.work(t)
	image := powered(t, l.disk)
	Close(t, l.book)
	l.eachTrouble(t, image, []string{
		"stat book.db", "write book.db", "sync book.db", "truncate book.db", "stat book.db-wal", "read book.db-wal",
		"sync book.db-wal", "truncate book.db-wal", "unlink book.db-wal", "stat book.db-shm", "unlink book.db-shm",
	}, func(t *testing.T, l *life, strike func() func() bool) (bool, bool) {
		b, err := netdb.Open(l.path(), l.opts)
		if err != nil {
			t.Fatal(err)
		}
		Reserve(t, b, "acknowledged")
		known := l.rowsOf(b)
		restore := strike()
		err = b.Close()
		struck := restore()
		if err != nil && !struck {
			t.Error(err)
		}
		dir := t.TempDir()
		if err := lay(l.disk.Left(), dir); err != nil {
			t.Fatal(err)
		}
		l.wantFound(t, filepath.Join(dir, "book.db"), known)
		l.wantFound(t, l.path(), known)
		return err != nil, struck
	})
}

// L14: a first start on a disk that begins to fail at each operation of that.
// The next one, on a disk that is well, makes the book or goes on with it.
func TestL14AFirstStartOnADiskThatFails(t *testing.T) {
	realtest.Long(t)
	l := troubled(t)
	t.Parallel()
	l.eachTrouble(t, nil, []string{
		"create book.db", "open book.db", "stat book.db", "read book.db", "write book.db", "sync book.db",
		"create book.db-journal", "stat book.db-journal", "read book.db-journal", "write book.db-journal", "sync book.db-journal",
		"unlink book.db-journal", "create book.db-wal", "stat book.db-wal", "write book.db-wal", "sync book.db-wal",
		"create book.db-shm", "stat book.db-shm", "truncate book.db-shm", "syncdir",
		"create book.db-mark", "write book.db-mark", "sync book.db-mark",
	}, func(t *testing.T, l *life, strike func() func() bool) (bool, bool) {
		restore := strike()
		b, err := netdb.Open(l.path(), l.opts)
		struck := restore()
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
}

// L16: the folder of the book cannot be synced, so a power loss would take
// away the names of what a start makes in it, with all that is acknowledged
// there. SQLite does not mind; the book refuses to open. Once the disk is well
// it opens, and what it acknowledges stays.
func TestL16AFolderThatCannotBeSynced(t *testing.T) {
	for name, before := range map[string]func(*testing.T, *life){
		"a new book": nil,
		"one that was closed": func(t *testing.T, l *life) {
			l.open(t)
			Pool(t, l.book, "default", "10.8.64.0/24")
			Close(t, l.book)
		},
		"one whose start was killed before its first change": func(t *testing.T, l *life) {
			l.open(t)
			Pool(t, l.book, "default", "10.8.64.0/24")
			Close(t, l.book)
			if err := os.WriteFile(l.path()+"-wal", nil, 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := &life{disk: faultfs.Mount(t, "book.db-shm"), opts: Options()}
			if before != nil {
				before(t, l)
			}
			l.disk.Inject(func(op faultfs.Op) (f faultfs.Fault) {
				if op.Kind == faultfs.SyncDir {
					f.Err = syscall.EIO
				}
				return f
			})
			b, err := netdb.Open(l.path(), l.opts)
			if !errors.Is(err, syscall.EIO) {
				t.Errorf("a folder that cannot be synced: %v", err)
			}
			if err == nil {
				Close(t, b)
			}
			l.disk.Inject(nil)
			l.open(t)
			if before == nil {
				Pool(t, l.book, "default", "10.8.64.0/24")
			}
			Reserve(t, l.book, "a")
			l.note()
			l.wantDurable(t)
		})
	}
}
