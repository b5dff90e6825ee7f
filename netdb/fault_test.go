package netdb_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

var (
	looking  = []faultfs.Kind{faultfs.Stat, faultfs.Open, faultfs.Read}
	changing = []faultfs.Kind{faultfs.Create, faultfs.Write, faultfs.Truncate, faultfs.Sync, faultfs.Unlink, faultfs.Rename, faultfs.SyncDir}
)

const once = "any operation, once"

var troubles = map[string]trouble{
	once:                     {kinds: slices.Concat(looking, changing), fault: faultfs.Fault{Err: syscall.EIO}},
	"every read":             {kinds: []faultfs.Kind{faultfs.Read}, fault: faultfs.Fault{Err: syscall.EIO}, stays: true},
	"every change":           {kinds: changing, fault: faultfs.Fault{Err: syscall.EIO}, stays: true},
	"every operation":        {kinds: slices.Concat(looking, changing), fault: faultfs.Fault{Err: syscall.EIO}, stays: true},
	"no room":                {kinds: []faultfs.Kind{faultfs.Create, faultfs.Write, faultfs.Room}, fault: faultfs.Fault{Err: syscall.ENOSPC}, stays: true},
	"no room behind a while": {kinds: []faultfs.Kind{faultfs.Write}, fault: faultfs.Fault{Short: 100}, stays: true, after: faultfs.Fault{Err: syscall.ENOSPC}},
	"read-only":              {kinds: slices.DeleteFunc(slices.Clone(changing), func(k faultfs.Kind) bool { return k == faultfs.Sync }), fault: faultfs.Fault{Err: syscall.EROFS}, stays: true},
	"one sync":               {kinds: []faultfs.Kind{faultfs.Sync}, fault: faultfs.Fault{Err: syscall.EIO}},
	"every sync":             {kinds: []faultfs.Kind{faultfs.Sync}, fault: faultfs.Fault{Err: syscall.EIO}, stays: true},
}

// A tally counts what failed, by the kind of operation and the file: a test
// that says "each operation" says with it which ones it met.
type tally map[string]int

func (c tally) want(t *testing.T, operations ...string) {
	t.Helper()
	t.Logf("failed: %v", c)
	for _, o := range operations {
		if c[o] == 0 {
			t.Errorf("it was never tried what becomes of a failed %s", o)
		}
	}
}

// strike makes the disk fail at the k-th operation from now that the trouble
// can strike, counted from 0, and adds what fails to the tally. mend ends that,
// and reports whether it came to it.
func (tr trouble) strike(d *faultfs.Disk, k int, failed tally) (mend func() (struck bool)) {
	n := 0
	d.Inject(func(op faultfs.Op) (f faultfs.Fault) {
		if !slices.Contains(tr.kinds, op.Kind) {
			return f
		}
		n++
		switch {
		case n == k+1 || n > k && tr.stays && tr.after.Err == 0:
			f = tr.fault
		case n > k && tr.stays:
			f = tr.after
		}
		if f != (faultfs.Fault{}) {
			failed[strings.TrimSpace(string(op.Kind)+" "+op.Name)]++
		}
		return f
	})
	return func() bool {
		d.Inject(nil) // and so nobody counts any more
		return n > k
	}
}

// L11-L13: at each operation of a lease's life the disk begins to fail, in
// each way, while SQLite has what it needs in memory and while it has nothing.
// What cannot be stored is refused as that, and nothing else is different:
// reads know what they knew, and once the disk is well the same change
// succeeds, without another opening. What was acknowledged by then is on the
// disk, whatever a failed sync made the kernel forget.
func TestL12TheDiskFailsAtEachOperation(t *testing.T) {
	failed := make(map[string]tally)
	for name, tr := range troubles {
		failed[name] = make(tally)
		for memory, cold := range map[string]bool{"warm": false, "cold": true} {
			if name != once && cold != slices.Contains(tr.kinds, faultfs.Read) {
				continue // reads are what an empty memory is for
			}
			t.Run(name+"/"+memory, func(t *testing.T) {
				l := newLife(t, "full")
				Pool(t, l.book, "default", "10.8.64.0/24")
				l.note()
				refused := 0
				for k, struck := 0, true; struck; k++ {
					struck = false
					for _, step := range cycle(l, fmt.Sprint("s", k)) {
						if cold {
							l.done(t, l.book.LetGo(ctx))
						}
						hit, no := l.tryUnder(t, tr, k, failed[name], step)
						struck = struck || hit
						if no {
							refused++
						}
					}
				}
				l.wantDurable(t)
				Check(t, l.book)
				if refused == 0 {
					t.Error("nothing was refused")
				}
				t.Logf("%d refusals", refused)
			})
		}
	}
	failed[once].want(t, "read book.db", "write book.db", "sync book.db", "stat book.db",
		"read book.db-wal", "write book.db-wal", "sync book.db-wal", "stat book.db-wal", "open book.db-wal")
}

// tryUnder tries one step while the disk begins to fail at its k-th operation,
// and once more, when that was refused, on a disk that is well.
func (l *life) tryUnder(t *testing.T, tr trouble, k int, failed tally, s step) (struck, refused bool) {
	t.Helper()
	before := l.told(l.book)
	mend := tr.strike(l.disk, k, failed)
	err := s.do()
	known, why := l.told(l.book), l.book.Info().ReadOnly
	if err != nil && tr.stays && !s.upkeep {
		if again := l.book.Retry(ctx); again == nil && !slices.Contains(tr.kinds, faultfs.Read) {
			t.Fatalf("operation %d of %s: tried again, the disk is called well", k, s.name)
		}
	}
	struck = mend()
	if err == nil {
		l.note()
		return struck, false
	}
	if !struck {
		t.Fatalf("operation %d of %s: without any trouble: %v", k, s.name, err)
	}
	if s.upkeep {
		if why != nil {
			t.Fatalf("operation %d of %s: the book cannot be written because of %v", k, s.name, why)
		}
	} else if !errors.Is(err, netdb.ErrReadOnly) || why == nil {
		t.Fatalf("operation %d of %s: the refusal is %v, the book %v", k, s.name, err, why)
	}
	if now := l.told(l.book); known != before || now != before {
		t.Fatalf("operation %d of %s: refused with %v, and yet there is\n%s\n%s, and was\n%s", k, s.name, err, known, now, before)
	}
	l.wantWell(t)
	if tr.kinds[0] == faultfs.Sync {
		l.wantAfterKill(t, before)
	}
	l.done(t, s.do())
	return struck, true
}

// wait is how long anything may take that is waited for.
const wait = 3 * time.Minute

// wantWell wants the book to find by itself that its disk is well: it may rest
// for a minute after a look that found damage and took its time.
func (l *life) wantWell(t *testing.T) {
	t.Helper()
	var err error
	realtest.Eventually(t, wait, "the book to be written again", func() bool {
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
	if now := l.told(b); now != known {
		t.Fatalf("what was refused came back with a start:\n%s, and was\n%s", now, known)
	}
	Close(t, b)
}

// A step can be tried again. One of upkeep changes nothing and refuses nothing.
type step struct {
	name   string
	do     func() error
	upkeep bool
}

// cycle is a lease's life, and what happens beside it.
func cycle(l *life, sandbox string) []step {
	var lease *netdb.Lease
	try := func(got *netdb.Lease, err error) error {
		if err == nil {
			lease = got
		}
		return err
	}
	var strange netip.Addr
	return []step{
		{name: "reserve", do: func() error { return try(TryReserve(l.book, l.book.Pools()[0], sandbox, eager)) }},
		{name: "bind", do: func() error { return try(l.book.Bind(ctx, client, lease.ID, netdb.Binding{MAC: "02:00:00:00:00:01"})) }},
		{name: "history", do: func() error { _, err := l.book.History(ctx, netdb.Query{LeaseID: lease.ID}); return err }},
		{name: "cancel", do: func() error { return l.cancel("late " + sandbox) }},
		{name: "quarantine", do: func() error {
			free, err := l.book.Pick(l.book.Pools()[0].UID, eager)
			if err != nil {
				return err
			}
			defer l.book.Drop(free)
			_, err = l.book.Quarantine(ctx, Who(netdb.ByReconciler, "foreign"), free.Addr, evidence)
			strange = free.Addr
			return err
		}},
		{name: "fold", do: func() error { return l.book.Fold(ctx) }, upkeep: true},
		{name: "clear", do: func() error { _, err := l.book.Clear(ctx, Who(netdb.ByOperator, "cleared"), strange); return err }},
		{name: "release", do: func() error { return try(l.book.Release(ctx, client, lease.ID, "")) }},
		{name: "confirm", do: func() error { return try(l.book.Confirm(ctx, watchdog, lease.ID, lease.Rev, nil)) }},
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
	lost, err := l.judge(t.TempDir(), r.Cut(nil), len(l.memos))
	if err != nil || lost {
		t.Errorf("after a power loss: lost %v, %v", lost, err)
	}
}

// What the disk garbles is refused as damage, each time that it is tried, and
// reads know what they knew. Once the disk brings what was written, so does
// the book, without another opening.
func TestL13ADiskThatGarblesWhatItReads(t *testing.T) {
	l := newLife(t, "full")
	Pool(t, l.book, "default", "10.8.64.0/24")
	a := Reserve(t, l.book, "a")
	known := l.told(l.book)
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
	if now := l.told(l.book); now != known || l.book.Info().ReadOnly == nil {
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
