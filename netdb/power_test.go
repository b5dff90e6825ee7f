package netdb_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/internal/faultfs"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// A memo is what a book said at some moment of its life: whatever is
// acknowledged from there on holds at least that.
type memo struct {
	at     int // operations of the disk by then
	rev    int64
	leases string
}

// A life is the record of a book on a disk that remembers each operation.
type life struct {
	disk   *faultfs.Disk
	book   *netdb.Book
	opts   netdb.Options
	epoch  string
	memos  []memo
	stones []string         // uids of attempts that were cancelled, or nearly
	under  map[string]*life // one for each trouble

	changes []ipam.Change              // of leases, as memory showed them behind each commit, the oldest first
	rows    map[netip.Addr]*ipam.Lease // behind the last commit
}

func newLife(t *testing.T, synchronous string) *life {
	l := unborn(t, synchronous)
	l.open(t)
	return l
}

// unborn is a life whose book is not made yet. A test that goes on beside others has all
// its disks before that: Mount starts processes, and a fork beside a book that is open on
// another disk of this process may wait for an answer that it keeps from being given.
func unborn(t *testing.T, synchronous string) *life {
	l := &life{disk: faultfs.Mount(t, "book.db-shm"), opts: Options()}
	l.opts.Synchronous = synchronous
	return l
}

func (l *life) path() string { return filepath.Join(l.disk.Dir(), "book.db") }

func (l *life) open(t *testing.T) {
	t.Helper()
	opts := l.opts
	opts.OnCommit = func(took time.Duration, batch int) {
		if l.opts.OnCommit != nil {
			l.opts.OnCommit(took, batch)
		}
		l.compare()
	}
	l.book = OpenAt(t, l.path(), opts)
	l.epoch = l.book.Epoch()
	l.note()
}

// compare notes what a commit changed in memory. A row that goes is the only
// change of its commit.
func (l *life) compare() {
	was, made := l.rows, []ipam.Change(nil)
	l.rows = make(map[netip.Addr]*ipam.Lease)
	leases, rev := l.book.Leases()
	for _, now := range leases {
		l.rows[now.Addr] = now
		if old := was[now.Addr]; old == nil {
			made = append(made, ipam.Change{Rev: now.Rev, Addr: now.Addr, LeaseID: now.ID, From: ipam.Free, To: now.State})
		} else if old.Rev != now.Rev {
			made = append(made, ipam.Change{Rev: now.Rev, Addr: now.Addr, LeaseID: now.ID, From: old.State, To: now.State})
		}
	}
	for a, old := range was {
		if l.rows[a] == nil {
			made = append(made, ipam.Change{Rev: rev, Addr: a, LeaseID: old.ID, From: old.State, To: ipam.Free})
		}
	}
	slices.SortFunc(made, func(a, b ipam.Change) int { return cmp.Compare(a.Rev, b.Rev) })
	l.changes = append(l.changes, made...)
}

func (l *life) note() {
	l.memos = append(l.memos, memo{l.disk.Len(), l.book.Rev(), l.rowsOf(l.book)})
}

// rowsOf is all that a book says of its leases, and of attempts that this life
// has cancelled.
func (l *life) rowsOf(b *netdb.Book) string {
	leases, _ := b.Leases()
	var s strings.Builder
	for _, l := range leases {
		fmt.Fprintf(&s, "%s %s %s %s %d %d containers, %d labels\n", l.Addr, l.ID, l.Sandbox, l.State, l.Rev, len(l.Containers), len(l.Labels))
	}
	for _, uid := range l.stones {
		if b.Cancelled(uid, 1) {
			fmt.Fprintf(&s, "%s is cancelled\n", uid)
		}
	}
	return s.String()
}

// cancel leaves a tombstone.
func (l *life) cancel(uid string) error {
	if !slices.Contains(l.stones, uid) {
		l.stones = append(l.stones, uid)
	}
	_, err := l.book.Cancel(ctx, client, uid, 1)
	return err
}

// work does every kind of change once, and more than once, in both lives of
// the book: the log is folded into the file by a close in between. It does the
// same each time.
func (l *life) work(t *testing.T) {
	t.Helper()
	Pool(t, l.book, "default", "10.8.64.0/24")
	l.note()
	for round := range 2 {
		a, b := Reserve(t, l.book, fmt.Sprint("a", round)), (*ipam.Lease)(nil)
		l.note()
		b = Reserve(t, l.book, fmt.Sprint("b", round))
		l.note()
		bound, err := l.book.Bind(ctx, client, a.ID, 0, ipam.Binding{Containers: []ipam.Container{{Namespace: "n", ID: a.ID}}})
		l.done(t, err)
		r, err := l.book.Release(ctx, client, bound.ID, "", 0)
		l.done(t, err)
		_, err = l.book.Confirm(ctx, Who(ipam.ByWatchdog, "removal_confirmed"), r.ID, r.Rev, nil)
		l.done(t, err)
		_, err = l.book.Release(ctx, client, b.ID, "", 0)
		l.done(t, err)
		free, err := l.book.Pick(l.book.Pools()[0].UID, Policy)
		l.done(t, err)
		_, err = l.book.Quarantine(ctx, Who(ipam.ByReconciler, "foreign"), free.Addr, json.RawMessage(`[{"witness":"probe","mac":"02:00:00:00:00:09"}]`))
		l.done(t, err)
		l.book.Drop(free)
		if round == 0 {
			l.done(t, l.cancel("cancelled"))
			Close(t, l.book)
			l.open(t)
		}
	}
}

func (l *life) done(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	l.note()
}

// A verdict is what was found wrong with a book after a power loss. lost
// counts cuts that took something acknowledged, and nothing else was wrong.
type verdict struct {
	cuts, images, lost int
	random             int // of the cuts, where some of the rest was left
}

// memory is a folder in memory, for as long as the test lasts.
func memory(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64m,mode=700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// A judge looks in a folder at what a power loss left, when the first acked
// memos had been acknowledged, and says whether it took some of that. An error
// is any other fault.
type judge func(in string, image faultfs.Image, acked int) (lost bool, err error)

// leastRandom is how many cuts leave something to chance at least, however
// slow the machine.
const leastRandom = 100

// spent is for how long more of them do, on a machine that is quick.
const spent = 500 * time.Millisecond

// cutAt cuts the power behind each operation that wanted names, and opens the
// book on what is sure to be left; and then, for as long as spend lasts, and
// for leastRandom cuts if it is more than 0, on that and some selection of the rest.
func (l *life) cutAt(t *testing.T, spend time.Duration, wanted func(int, faultfs.Op) bool, judge judge) (v verdict) {
	t.Helper()
	dir := memory(t)
	judged := make(map[string]int) // how much had been acknowledged when an image was
	end := time.Now().Add(spend)
	goOn := func() bool {
		return spend > 0 && !t.Failed() && (v.random < leastRandom || time.Now().Before(end))
	}
	for seed := uint64(0); seed == 0 || goOn(); seed++ {
		l.pass(t, &v, seed, func() bool { return seed == 0 || goOn() }, func(image faultfs.Image, acked int) error {
			sum := image.Sum()
			if before, ok := judged[sum]; ok && before == acked {
				return nil
			}
			judged[sum] = acked
			v.images++
			lost, err := judge(dir, image, acked)
			if lost {
				v.lost++
			}
			return err
		}, wanted)
	}
	return v
}

// pass goes once through the life of the disk. Seed 0 leaves nothing to chance.
func (l *life) pass(t *testing.T, v *verdict, seed uint64, goOn func() bool,
	judge func(image faultfs.Image, acked int) error, wanted func(int, faultfs.Op) bool) {
	t.Helper()
	replay, acked := l.disk.Replay(), 0
	for goOn() {
		op, more := replay.Step()
		if !more {
			return
		}
		n := replay.Done()
		for acked < len(l.memos) && l.memos[acked].at <= n {
			acked++
		}
		if !wanted(n, op) {
			continue
		}
		var chance *rand.Rand
		if seed > 0 {
			chance = rand.New(rand.NewPCG(uint64(n), seed))
			v.random++
		}
		v.cuts++
		if err := judge(replay.Cut(chance), acked); err != nil {
			t.Errorf("power cut behind operation %d (%s), seed %d: %v", n, op, seed, err)
			return
		}
	}
}

// openOn opens the book on what a power loss left; done closes it and removes that.
func (l *life) openOn(in string, image faultfs.Image) (b *netdb.Book, done func() error, err error) {
	dir := filepath.Join(in, "disk")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, nil, err
	}
	if err = lay(image, dir); err == nil {
		b, err = netdb.Open(filepath.Join(dir, "book.db"), l.opts)
	}
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	return b, func() error { return errors.Join(b.Close(), os.RemoveAll(dir)) }, nil
}

// judge opens the book on what a power loss left, when the first acked memos had
// been acknowledged. It must open, be consistent, be
// just as it was at some moment, and go on working. lost reports that the
// moment is older than what was acknowledged.
func (l *life) judge(in string, image faultfs.Image, acked int) (lost bool, err error) {
	b, done, err := l.openOn(in, image)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, done()) }()
	if found, err := b.Check(ctx); err != nil || len(found) > 0 {
		return false, fmt.Errorf("%v, %w", found, err)
	}
	if acked > 0 && b.Epoch() != l.epoch {
		return true, nil // not even the file's name, or what was in it first, was sure
	}
	rev, now, was := b.Rev(), l.rowsOf(b), -1
	for i, m := range l.memos {
		if m.rev == rev && m.leases == now {
			was = i
		}
	}
	if rev > 0 && was < 0 {
		return false, fmt.Errorf("at revision %d it has what it never had:\n%s", rev, now)
	}
	lost = was < acked-1
	if len(b.Pools()) > 0 {
		if _, err := TryReserve(b, b.Pools()[0], "next", Policy); err != nil {
			return lost, err
		}
	}
	return lost, nil
}

func always(int, faultfs.Op) bool { return true }

// L14, L16: the power goes behind every single operation of a book that is
// made, migrated, changed, folded and opened again. Every acknowledged change
// is there, and nothing that never was.
func TestL16PowerLossAtEveryWrite(t *testing.T) {
	l := unborn(t, "full")
	t.Parallel()
	l.open(t)
	l.work(t)
	v := l.cutAt(t, spent, always, l.judge)
	t.Logf("%d cuts, %d of them with some chance, %d different disks", v.cuts, v.random, v.images)
	if v.lost > 0 || v.cuts-v.random < 100 || v.random < leastRandom {
		t.Errorf("%d of %d disks lost what was acknowledged", v.lost, v.images)
	}
}

// L16: with synchronous = "normal" the same cuts lose acknowledged changes,
// and nothing worse: the book is whole, and as it was at an earlier moment.
// This is also what shows that the test can fail.
func TestL16SynchronousNormalLosesTheLast(t *testing.T) {
	l := newLife(t, "normal")
	l.work(t)
	v := l.cutAt(t, 0, always, l.judge)
	t.Logf("%d cuts, %d different disks, %d with a loss", v.cuts, v.images, v.lost)
	if v.lost == 0 {
		t.Error("no cut lost anything: the disk does not forget")
	}
}

// L16: the same where the log is folded into the file between two changes, at
// a thousand pages, and where the next change then begins the log anew over
// the old one. Of the operations that only make the log long, one in 128 is cut.
func TestL16PowerLossInACheckpoint(t *testing.T) {
	realtest.Long(t)
	l := unborn(t, "full")
	t.Parallel()
	l.open(t)
	Pool(t, l.book, "default", "10.8.64.0/24")
	l.note()
	a := Reserve(t, l.book, "a")
	l.note()
	size := func() int64 {
		st, err := os.Stat(l.path())
		if err != nil {
			t.Fatal(err)
		}
		return st.Size()
	}
	unfolded, changes := size(), 0
	for more := 3; more > 0; changes++ {
		_, err := l.book.Bind(ctx, client, a.ID, 0, ipam.Binding{MAC: fmt.Sprintf("02:00:00:00:%02x:%02x", changes>>8, changes&0xff)})
		l.done(t, err)
		if size() > unfolded {
			more--
		}
		if changes > 1000 {
			t.Fatal("the log was never folded")
		}
	}
	file, last := make(map[int]bool), 0
	v := l.cutAt(t, spent, func(n int, op faultfs.Op) bool {
		if op.Name == "book.db" {
			last = n
			file[n] = true
		}
		return n < last+40 || n%128 == 0
	}, l.judge)
	t.Logf("%d changes, %d operations on the file, %d cuts, %d of them with some chance, %d different disks",
		changes, len(file), v.cuts, v.random, v.images)
	if v.lost > 0 || len(file) < 10 || v.random < leastRandom {
		t.Errorf("%d of %d disks lost what was acknowledged", v.lost, v.images)
	}
}
