package netdb_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/faultfs"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// A trouble is how a disk fails, from the moment that it starts to.
type trouble struct {
	kinds []faultfs.Kind // that can fail
	fault faultfs.Fault
	stays bool // until it is mended; else one operation alone fails
	after faultfs.Fault
}

var changing = []faultfs.Kind{faultfs.Create, faultfs.Write, faultfs.Truncate, faultfs.Sync, faultfs.Unlink, faultfs.Rename, faultfs.SyncDir}

var troubles = map[string]trouble{
	"any operation, once":    {kinds: append([]faultfs.Kind{faultfs.Read, faultfs.Open}, changing...), fault: faultfs.Fault{Err: syscall.EIO}},
	"every read":             {kinds: []faultfs.Kind{faultfs.Read}, fault: faultfs.Fault{Err: syscall.EIO}, stays: true},
	"every change":           {kinds: changing, fault: faultfs.Fault{Err: syscall.EIO}, stays: true},
	"every operation":        {kinds: append([]faultfs.Kind{faultfs.Read, faultfs.Open}, changing...), fault: faultfs.Fault{Err: syscall.EIO}, stays: true},
	"no room":                {kinds: []faultfs.Kind{faultfs.Create, faultfs.Write, faultfs.Room}, fault: faultfs.Fault{Err: syscall.ENOSPC}, stays: true},
	"no room behind a while": {kinds: []faultfs.Kind{faultfs.Write}, fault: faultfs.Fault{Short: 100}, stays: true, after: faultfs.Fault{Err: syscall.ENOSPC}},
	"read-only":              {kinds: slices.DeleteFunc(slices.Clone(changing), func(k faultfs.Kind) bool { return k == faultfs.Sync }), fault: faultfs.Fault{Err: syscall.EROFS}, stays: true},
	"one sync":               {kinds: []faultfs.Kind{faultfs.Sync}, fault: faultfs.Fault{Err: syscall.EIO}},
	"every sync":             {kinds: []faultfs.Kind{faultfs.Sync}, fault: faultfs.Fault{Err: syscall.EIO}, stays: true},
}

// strike makes the disk fail at the k-th operation from now that the trouble
// can strike, counted from 0. mend ends that, and reports whether it came to it.
func (tr trouble) strike(d *faultfs.Disk, k int) (mend func() (struck bool)) {
	n := 0
	d.Inject(func(op faultfs.Op) (f faultfs.Fault) {
		if !slices.Contains(tr.kinds, op.Kind) {
			return f
		}
		n++
		switch {
		case n == k+1 || n > k && tr.stays && tr.after.Err == 0:
			return tr.fault
		case n > k && tr.stays:
			return tr.after
		}
		return f
	})
	return func() bool {
		d.Inject(nil) // and so nobody counts any more
		return n > k
	}
}

// L11-L13: at each operation of a lease's life the disk begins to fail, in
// each way. What cannot be stored is refused as that, and nothing else is
// different: reads know what they knew, and once the disk is well the same
// change succeeds, without another opening. What was acknowledged by then is
// on the disk, whatever a failed sync made the kernel forget.
func TestL12TheDiskFailsAtEachOperation(t *testing.T) {
	for name, tr := range troubles {
		t.Run(name, func(t *testing.T) {
			l := newLife(t, "full")
			Pool(t, l.book, "default", "10.8.64.0/24")
			l.note()
			refused := 0
			for k, struck := 0, true; struck; k++ {
				struck = false
				for _, step := range cycle(l, fmt.Sprint("s", k)) {
					before := told(l.book)
					mend := tr.strike(l.disk, k)
					err := step()
					known, why := told(l.book), l.book.Info().ReadOnly
					if err != nil && tr.stays {
						if again := l.book.Retry(ctx); again == nil && !slices.Contains(tr.kinds, faultfs.Read) {
							t.Fatalf("operation %d: tried again, the disk is called well", k)
						}
					}
					if mend() {
						struck = true
					}
					if err == nil {
						l.note()
						continue
					}
					if !struck {
						t.Fatalf("operation %d: without any trouble: %v", k, err)
					}
					refused++
					if !errors.Is(err, netdb.ErrReadOnly) || why == nil {
						t.Fatalf("operation %d: the refusal is %v, the book %v", k, err, why)
					}
					if now := told(l.book); known != before || now != before {
						t.Fatalf("operation %d: refused with %v, and yet there is\n%s\n%s, and was\n%s", k, err, known, now, before)
					}
					l.wantWell(t)
					if tr.kinds[0] == faultfs.Sync {
						l.wantAfterKill(t, before)
					}
					l.done(t, step())
				}
			}
			Check(t, l.book)
			if refused == 0 {
				t.Error("nothing was refused")
			}
			t.Logf("%d refusals", refused)
			l.wantDurable(t)
		})
	}
}

// wantWell wants the book to find by itself that its disk is well.
func (l *life) wantWell(t *testing.T) {
	t.Helper()
	var err error
	realtest.Eventually(t, 10*time.Second, "the book to be written again", func() bool {
		err = l.book.Retry(ctx)
		return err == nil
	})
	if why := l.book.Info().ReadOnly; why != nil {
		t.Fatal(why)
	}
}

// wantAfterKill wants the book to be as it was known, when the daemon is killed
// now and what it wrote is all there, synced or not.
func (l *life) wantAfterKill(t *testing.T, known string) {
	t.Helper()
	dir := t.TempDir()
	for _, part := range []string{"", "-wal"} {
		data, err := os.ReadFile(l.path() + part)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "book.db"+part), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b := OpenAt(t, filepath.Join(dir, "book.db"), l.opts)
	if now := told(b); now != known {
		t.Fatalf("what was refused came back with a start:\n%s, and was\n%s", now, known)
	}
	Close(t, b)
}

// cycle is a lease's life, in steps that can be tried again.
func cycle(l *life, sandbox string) []func() error {
	var lease *netdb.Lease
	try := func(got *netdb.Lease, err error) error {
		if err == nil {
			lease = got
		}
		return err
	}
	return []func() error{
		func() error { return try(TryReserve(l.book, l.book.Pools()[0], sandbox, eager)) },
		func() error { return try(l.book.Bind(ctx, client, lease.ID, netdb.Binding{MAC: "02:00:00:00:00:01"})) },
		func() error { _, err := l.book.History(ctx, netdb.Query{LeaseID: lease.ID}); return err },
		func() error { return try(l.book.Release(ctx, client, lease.ID, "")) },
		func() error {
			return try(l.book.Confirm(ctx, Who(netdb.ByWatchdog, "removal_confirmed"), lease.ID, lease.Rev, nil))
		},
	}
}

// eager waits for no cooldown, so that a pool lasts for any number of lives.
var eager = netdb.Policy{}

// wantDurable cuts the power now and wants everything that was acknowledged.
func (l *life) wantDurable(t *testing.T) {
	t.Helper()
	r := l.disk.Replay()
	for more := true; more; {
		_, more = r.Step()
	}
	lost, err := l.judge(t.TempDir(), r.Cut(nil), len(l.memos), r.Done())
	if err != nil || lost {
		t.Errorf("after a power loss: lost %v, %v", lost, err)
	}
}

// A book is opened on a disk that begins to fail at each operation of that.
// It opens or refuses, and the next opening finds everything.
func TestL13OpeningOnADiskThatFails(t *testing.T) {
	for _, name := range []string{"any operation, once", "every operation", "every read", "every change", "no room", "read-only"} {
		t.Run(name, func(t *testing.T) {
			l := newLife(t, "full")
			Pool(t, l.book, "default", "10.8.64.0/24")
			Reserve(t, l.book, "a")
			want, refused := told(l.book), 0
			Close(t, l.book)
			for k, struck := 0, true; struck; k++ {
				mend := troubles[name].strike(l.disk, k)
				b, err := netdb.Open(l.path(), l.opts)
				struck = mend()
				if err != nil {
					refused++
					if !struck || errors.Is(err, netdb.ErrNotABook) || errors.Is(err, netdb.ErrDamaged) {
						t.Fatalf("operation %d: %v", k, err)
					}
				} else if err := b.Close(); err != nil {
					t.Fatalf("operation %d: close: %v", k, err)
				}
				b = OpenAt(t, l.path(), l.opts)
				if got := told(b); got != want || b.Epoch() != l.epoch {
					t.Fatalf("operation %d: the next opening found\n%s, and there was\n%s", k, got, want)
				}
				Close(t, b)
			}
			t.Logf("%d refusals", refused)
			if refused == 0 {
				t.Error("nothing was refused")
			}
		})
	}
}

// L14: a first start on a disk that begins to fail at each operation of that.
// The next one, on a disk that is well, makes the book or goes on with it.
func TestL14AFirstStartOnADiskThatFails(t *testing.T) {
	for _, name := range []string{"any operation, once", "every change", "no room"} {
		t.Run(name, func(t *testing.T) {
			tr := troubles[name]
			disk, opts, refused := faultfs.Mount(t, "book.db-shm"), Options(), 0
			path := filepath.Join(disk.Dir(), "book.db")
			for k, struck := 0, true; struck; k++ {
				mend := tr.strike(disk, k)
				b, err := netdb.Open(path, opts)
				if struck = mend(); err != nil {
					refused++
				} else if err := b.Close(); err != nil {
					t.Fatalf("operation %d: close: %v", k, err)
				}
				if err != nil && !struck {
					t.Fatalf("operation %d: without any trouble: %v", k, err)
				}
				b = OpenAt(t, path, opts)
				Pool(t, b, "default", "10.8.64.0/24")
				Reserve(t, b, "a")
				Close(t, b)
				for _, part := range []string{"", "-wal", "-journal", ".lock"} {
					if err := os.Remove(path + part); err != nil && !errors.Is(err, os.ErrNotExist) {
						t.Fatal(err)
					}
				}
			}
			t.Logf("%d refusals", refused)
		})
	}
}

// What the disk garbles is refused as damage, each time that it is tried, and
// reads know what they knew. Once the disk brings what was written, so does
// the book, without another opening.
func TestL13ADiskThatGarblesWhatItReads(t *testing.T) {
	l := newLife(t, "full")
	Pool(t, l.book, "default", "10.8.64.0/24")
	a := Reserve(t, l.book, "a")
	known := told(l.book)
	l.disk.Inject(func(op faultfs.Op) faultfs.Fault { return faultfs.Fault{Garbled: op.Kind == faultfs.Read} })
	_, err := l.book.History(ctx, netdb.Query{})
	wantErr(t, err, netdb.ErrDamaged)
	wantErr(t, err, netdb.ErrReadOnly)
	since := l.book.Info().ReadOnlySince
	for range 3 {
		wantErr(t, l.book.Retry(ctx), netdb.ErrDamaged)
	}
	if again := l.book.Info().ReadOnlySince; since.IsZero() || !again.Equal(since) {
		t.Errorf("the book cannot be written since %v, and was not since %v", again, since)
	}
	if now := told(l.book); now != known || l.book.Info().ReadOnly == nil {
		t.Errorf("known is\n%s, and was\n%s", now, known)
	}
	l.disk.Inject(nil)
	l.wantWell(t)
	if since := l.book.Info().ReadOnlySince; !since.IsZero() {
		t.Errorf("a book that is well was not since %v", since)
	}
	if _, err := l.book.Release(ctx, client, a.ID, ""); err != nil {
		t.Error(err)
	}
}
