package netdb_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/faultfs"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// L12, L13: at each operation of a lease's life the disk fails once, and at some begins to
// fail in each other way, while SQLite has what it needs in memory and while it has nothing.
// What cannot be stored is refused as that, what cannot be read is no answer, and
// nothing else is different: reads know what they knew, a lease that has ended is
// gone and was there, and once the disk is well the same change succeeds, without
// another opening. With an empty memory and a book of many pages a disk fails in
// the middle of what is read, too, and no part of it passes for the whole.
//
// L16: where memory is warm, the power goes behind each operation that failed, and
// behind the change that then succeeds: what was acknowledged by then is on the
// disk, whatever a failed sync made the kernel forget, and before a fold heals it.
// Elsewhere it goes once, at the end.
func TestL12TheDiskFailsAtEachOperation(t *testing.T) {
	realtest.Long(t)
	all := maps.Clone(troubles)
	all[oneRead] = trouble{kinds: []faultfs.Kind{faultfs.Read}, fault: faultfs.Fault{Err: syscall.EIO}, meanwhile: changing}
	wanted := map[string][]string{
		once: {"read book.db", "write book.db", "stat book.db",
			"read book.db-wal", "write book.db-wal", "sync book.db-wal", "stat book.db-wal", "open book.db-wal"},
		"one sync": {"sync book.db", "sync book.db-wal"},
		oneRead:    {"read book.db", "write book.db-wal"},
	}
	type start struct {
		trouble string
		cold    bool
	}
	lives, images := make(map[start]*life), make(map[start]string)
	for name, tr := range all {
		reads := slices.Contains(tr.kinds, faultfs.Read) // are what an empty memory is for
		for _, cold := range []bool{false, true} {
			if s := (start{name, cold}); name == once || cold == reads {
				lives[s], images[s] = unborn(t, "full"), memory(t)
			}
		}
	}
	t.Parallel()
	var mu sync.Mutex
	failed := make(map[string]tally)
	t.Run("troubles", func(t *testing.T) {
		for s, l := range lives {
			name, cold, tr := s.trouble, s.cold, all[s.trouble]
			t.Run(fmt.Sprintf("%s/cold=%t", name, cold), func(t *testing.T) {
				t.Parallel()
				l.open(t)
				Pool(t, l.book, "default", "10.8.64.0/20")
				many := cold && !tr.stays
				if many {
					l.fill(t)
				}
				u := under{life: l, tr: tr, failed: make(tally), ended: l.end(t), cold: cold, image: images[s]}
				missed, begun := make(map[string]int), make(map[string]tally)
				for k, struck := 0, true; struck; k++ {
					struck = false
					skips := tr.skips()
					for _, s := range u.cycle(fmt.Sprint("s", k)) {
						if many && missed[s.name] > 2 || name == oneRead && s.name != "bind" {
							u.done(t, s.do()) // it has fewer operations; or is one refusal like another
							continue
						}
						if begun[s.name] == nil {
							begun[s.name] = make(tally)
						}
						if hit := u.try(t, k, s, func() func() int { return tr.strike(u.disk, k, skips, begun[s.name], u.failed) }); hit {
							struck = true
						} else {
							missed[s.name]++
						}
					}
					k += skips
				}
				for _, o := range wanted[name] { // what a sample has passed over
					for _, s := range u.cycle("for " + o) {
						if u.failed[o] > 0 || name == oneRead && s.name != "bind" {
							u.done(t, s.do())
							continue
						}
						u.try(t, o, s, func() func() int { return tr.strikeFirst(u.disk, o, u.failed) })
					}
				}
				l.wantDurable(t)
				Check(t, l.book)
				if u.refused == 0 {
					t.Error("nothing was refused")
				}
				t.Logf("%d refusals, %d power losses", u.refused, u.cut)
				mu.Lock()
				defer mu.Unlock()
				if failed[name] == nil {
					failed[name] = make(tally)
				}
				for operation, n := range u.failed {
					failed[name][operation] += n
				}
			})
		}
	})
	for name, operations := range wanted {
		failed[name].want(t, operations...)
	}
}

// An under is a life under one trouble.
type under struct {
	*life
	tr           trouble
	failed       tally
	ended        ended
	cold         bool   // SQLite's memory is empty before each step
	image        string // a folder for what a power loss leaves
	refused, cut int
}

// try tries one step while the disk begins to fail at an operation of it, by its number or its
// name, and once more, when that was refused, on a disk that is well. struck reports
// whether it came to that operation.
func (u *under) try(t *testing.T, at any, s step, strike func() (restore func() int)) (struck bool) {
	t.Helper()
	if u.cold {
		u.done(t, u.book.DropCaches(ctx))
	}
	before := u.rowsOf(u.book)
	restore := strike()
	err := s.do()
	known, why := u.rowsOf(u.book), u.book.Info().ReadOnly
	if err != nil && !s.upkeep && (u.tr.meanwhile != nil || u.tr.stays && !slices.Contains(u.tr.kinds, faultfs.Read)) {
		if again := u.book.Retry(ctx); again == nil {
			t.Fatalf("operation %v of %s: tried again, the disk is called well", at, s.name)
		}
	}
	struck = restore() >= 0
	if err == nil {
		u.note()
	}
	if struck {
		u.wantDurableNow(t)
	}
	if err == nil {
		return struck
	}
	if !struck && u.tr.meanwhile == nil {
		t.Fatalf("operation %v of %s: without any trouble: %v", at, s.name, err)
	}
	if s.upkeep {
		if why != nil {
			t.Fatalf("operation %v of %s: the book cannot be written because of %v", at, s.name, why)
		}
	} else if !errors.Is(err, netdb.ErrReadOnly) || why == nil {
		t.Fatalf("operation %v of %s: the refusal is %v, the book %v", at, s.name, err, why)
	}
	if now := u.rowsOf(u.book); known != before || now != before {
		t.Fatalf("operation %v of %s: refused with %v, and yet there is\n%s\n%s, and was\n%s", at, s.name, err, known, now, before)
	}
	u.wantWell(t)
	if now := u.rowsOf(u.book); now != before {
		t.Fatalf("operation %v of %s: refused with %v, and well again there is\n%s, and was\n%s", at, s.name, err, now, before)
	}
	if u.tr.kinds[0] == faultfs.Sync {
		u.wantAfterKill(t, before)
	}
	u.done(t, s.do())
	if struck {
		u.wantDurableNow(t)
	}
	u.refused++
	return struck
}

// wantDurableNow cuts the power where memory is warm: there each kind of change
// fails, and a book of few pages is soon opened.
func (u *under) wantDurableNow(t *testing.T) {
	t.Helper()
	if !u.cold {
		u.cut++
		u.wantDurableIn(t, u.image)
	}
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
	if now := l.rowsOf(b); now != known {
		t.Fatalf("what was refused came back with a start:\n%s, and was\n%s", now, known)
	}
	Close(t, b)
}

// wantDurable cuts the power now and wants everything that was acknowledged.
func (l *life) wantDurable(t *testing.T) {
	t.Helper()
	l.wantDurableIn(t, t.TempDir())
}

// wantDurableIn uses a folder for what is left.
func (l *life) wantDurableIn(t *testing.T, in string) {
	t.Helper()
	if lost, err := l.judge(in, l.disk.Left(), len(l.memos)); err != nil || lost {
		t.Fatalf("after a power loss: lost %v, %v", lost, err)
	}
}

// What the disk garbles is refused as damage, each time that it is tried, and
// reads know what they knew. Once the disk brings what was written, so does
// the book, without another opening.
func TestL13ADiskThatGarblesWhatItReads(t *testing.T) {
	l := newLife(t, "full")
	Pool(t, l.book, "default", "10.8.64.0/24")
	a := Reserve(t, l.book, "a")
	known := l.rowsOf(l.book)
	l.disk.Inject(func(op faultfs.Op) faultfs.Fault { return faultfs.Fault{Garbled: op.Kind == faultfs.Read} })
	_, err := l.book.History(ctx, ipam.Query{})
	wantErr(t, err, netdb.ErrDamaged)
	wantErr(t, err, netdb.ErrReadOnly)
	since := l.book.Info().ReadOnlySince
	for range 3 {
		wantErr(t, l.book.Retry(ctx), netdb.ErrDamaged)
	}
	if again := l.book.Info().ReadOnlySince; since.IsZero() || !again.Equal(since) {
		t.Errorf("the book cannot be written since %v, and was not since %v", again, since)
	}
	if now := l.rowsOf(l.book); now != known || l.book.Info().ReadOnly == nil {
		t.Errorf("known is\n%s, and was\n%s", now, known)
	}
	l.disk.Inject(nil)
	l.wantWell(t)
	if since := l.book.Info().ReadOnlySince; !since.IsZero() {
		t.Errorf("a book that is well was not since %v", since)
	}
	if _, err := l.book.Release(ctx, client, a.ID, "", 0); err != nil {
		t.Error(err)
	}
}
