package netdb_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// raw runs SQL on a closed book, as a person with a shell would.
func raw(t *testing.T, path, script string) {
	t.Helper()
	if err := tryRaw(path, script); err != nil {
		t.Fatal(err)
	}
}

func tryRaw(path, script string) error {
	db, err := sql.Open("sqlite", path)
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.Exec(script)
	return err
}

// What was acknowledged is there after a restart, field by field.
func TestBookSurvivesARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.db")
	b := OpenAt(t, path, Options())
	Pool(t, b, "default", "10.8.64.0/24")
	l := Reserve(t, b, "a")
	bound, err := b.Bind(ctx, client, l.ID, 0, ipam.Binding{Containers: []ipam.Container{{Namespace: "n", ID: "c"}}, MAC: "02:00:00:00:00:01"})
	if err != nil {
		t.Fatal(err)
	}
	epoch, rev := b.Epoch(), b.Rev()
	Close(t, b)
	if left, err := filepath.Glob(path + "-[sw]*"); err != nil || len(left) > 0 {
		t.Errorf("a closed book left its log: %v, %v", left, err)
	}
	b = OpenAt(t, path, Options())
	got, err := b.Lease(l.ID)
	if err != nil || b.Epoch() != epoch || b.Rev() != rev {
		t.Fatal(got, err, b.Epoch(), b.Rev())
	}
	if got.Addr != bound.Addr || got.State != ipam.Bound || got.Rev != bound.Rev || got.MAC != bound.MAC ||
		len(got.Containers) != 1 || !got.Created.Wall.Equal(bound.Created.Wall) || got.Since.Boottime != bound.Since.Boottime {
		t.Errorf("got %+v, want %+v", got, bound)
	}
	changes, err := b.History(ctx, ipam.Query{LeaseID: l.ID})
	if err != nil || len(changes) != 2 || changes[0].To != ipam.Bound || changes[1].To != ipam.Reserved || changes[1].Who.Actor != ipam.ByAllocator {
		t.Errorf("history is %+v, %v", changes, err)
	}
}

// L10: rows that cannot be read are reported, keep their address from being
// given, block nothing else, and are not dropped.
func TestL10UnreadableRowsAreReportedAndKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.db")
	b := OpenAt(t, path, Options())
	Pool(t, b, "default", "10.8.64.0/29")
	for _, s := range []string{"a", "b", "c", "d"} {
		Reserve(t, b, s)
	}
	Close(t, b)
	raw(t, path, `PRAGMA ignore_check_constraints = 1;
		UPDATE leases SET address = '10.8.64.999' WHERE sandbox = 'a';
		UPDATE leases SET address = '' WHERE sandbox = 'b';
		UPDATE leases SET state = 'dreaming' WHERE sandbox = 'c';`)
	allow := []string{netdb.RowsAreReadable, netdb.RowsHaveTheirLast}
	b = OpenAt(t, path, Options(), allow...)
	bad := b.Info().Unreadable
	if len(bad) != 3 {
		t.Fatalf("unreadable rows: %+v", bad)
	}
	for row, reason := range map[string]string{"10.8.64.999": "no address", "": "no address", "10.8.64.4": "dreaming"} {
		found := false
		for _, u := range bad {
			found = found || u.Row == row && strings.Contains(u.Reason, reason)
		}
		if !found {
			t.Errorf("row %q is not reported with %q: %+v", row, reason, bad)
		}
	}
	// .2 and .3 have no readable row any more, .4 has one that names it.
	four := netip.MustParseAddr("10.8.64.4")
	if slices.Contains(b.Upcoming(b.Pools()[0].UID, 8, Policy), four) {
		t.Error("10.8.64.4 is offered next")
	}
	_, err := b.PickAddr(ipam.Owner{PoolUID: b.Pools()[0].UID, UID: "wish", Interface: "eth0"}, four, Policy)
	wantErr(t, err, ipam.ErrTaken)
	if place := b.Place(four); place.Usable || !strings.Contains(place.Note, "cannot be read") {
		t.Errorf("10.8.64.4 is %+v", place)
	}
	got := make(map[string]bool)
	for i := range 3 {
		if l, err := TryReserve(b, b.Pools()[0], fmt.Sprint("new", i), Policy); err == nil {
			got[l.Addr.String()] = true
		}
	}
	if got["10.8.64.4"] || !got["10.8.64.6"] {
		t.Errorf("handed out %v", got)
	}
	Close(t, b, allow...)
	db, _ := sql.Open("sqlite", path)
	defer db.Close()
	var n int
	if err := db.QueryRow(`SELECT count(*) FROM leases WHERE address IN ('10.8.64.999', '') OR state = 'dreaming'`).Scan(&n); err != nil || n != 3 {
		t.Errorf("%d broken rows are left, %v", n, err)
	}
}

// L10: a row that names its address in another spelling, or two addresses at
// once, keeps each of them from being given; one that cools under a good row
// of its own, too.
func TestL10RowsThatContradictThemselves(t *testing.T) {
	set := func(ip string, key byte) string {
		return unguarded(fmt.Sprintf(`UPDATE leases SET address = '%s', ip = x'00000000000000000000ffff0a0840%02x' WHERE sandbox = 'a'`, ip, key))
	}
	for name, tt := range map[string]struct{ spoil, given string }{
		"an IPv4 address written as IPv6": {set("::ffff:10.8.64.2", 2), "10.8.64.4 10.8.64.5 10.8.64.6 10.8.64.3"},
		"a leading zero":                  {set("10.8.64.02", 2), "10.8.64.4 10.8.64.5 10.8.64.6 10.8.64.3"},
		"the key of a free address":       {set("10.8.64.2", 5), "10.8.64.4 10.8.64.6 10.8.64.3"},
		"the text of one that cools":      {set("::ffff:10.8.64.3", 2), "10.8.64.4 10.8.64.5 10.8.64.6"},
	} {
		t.Run(name, func(t *testing.T) {
			path, c := filepath.Join(t.TempDir(), "book.db"), NewClock()
			opts := Options()
			opts.Now = c.Now
			b := OpenAt(t, path, opts)
			p := Pool(t, b, "default", "10.8.64.0/29")
			Reserve(t, b, "a")
			cools := Cool(t, b, Reserve(t, b, "b"))
			Close(t, b)
			raw(t, path, tt.spoil)
			c.Pass(time.Hour)
			allow := []string{netdb.RowsAreReadable, netdb.RowsHaveTheirLast}
			b = OpenAt(t, path, opts, allow...)
			if bad := b.Info().Unreadable; len(bad) != 1 {
				t.Fatalf("unreadable rows: %+v", bad)
			}
			wish := ipam.Owner{PoolUID: p.UID, UID: "wish", Interface: "eth0"}
			for a := netip.MustParseAddr("10.8.64.2"); a != netip.MustParseAddr("10.8.64.7"); a = a.Next() {
				good := strings.Contains(tt.given, a.String())
				if b.Place(a).Usable != good {
					t.Errorf("%s is %+v", a, b.Place(a))
				}
				if slices.Contains(b.Upcoming(p.UID, 8, Policy), a) && !good {
					t.Errorf("%s is offered next", a)
				}
				if cand, err := b.PickAddr(wish, a, Policy); good != (err == nil) || !good && !errors.Is(err, ipam.ErrTaken) {
					t.Errorf("a wish for %s: %v", a, err)
				} else if good {
					b.Drop(cand)
				}
			}
			own, ok := b.PickOwn(cools.Owner(), 0)
			if ok != strings.Contains(tt.given, cools.Addr.String()) {
				t.Errorf("its former owner is offered %s: %v", cools.Addr, ok)
			}
			if ok {
				b.Drop(own)
			}
			var given []string
			for i := range 5 {
				if l, err := TryReserve(b, p, fmt.Sprint("new", i), Policy); err == nil {
					given = append(given, l.Addr.String())
				}
			}
			if got := strings.Join(given, " "); got != tt.given {
				t.Errorf("handed out %s, want %s", got, tt.given)
			}
			Close(t, b, allow...)
		})
	}
}

// L15: a second opener of the same book is refused and learns which process has it; a
// lock file left behind blocks no start.
func TestL15SecondOpenerIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.db")
	if err := os.WriteFile(path+".lock", []byte("99999\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := OpenAt(t, path, Options())
	_, err := netdb.Open(path, Options())
	if !errors.Is(err, netdb.ErrLocked) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("second open: %v", err)
	}
	Close(t, b)
	OpenAt(t, path, Options())
}

// files lists a folder.
func files(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// A file beside a foreign one that is named like a lock is another's, too.
func TestAForeignLockIsLeftAsItIs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "passwd")
	for name, text := range map[string]string{path: "root:x:0:0\n", path + ".lock": "4711 and more"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, err := netdb.Open(path, Options())
	wantErr(t, err, netdb.ErrNotABook)
	if text, err := os.ReadFile(path + ".lock"); err != nil || string(text) != "4711 and more" {
		t.Errorf("the file beside it is %q, %v", text, err)
	}
}

// A reader is refused while another process has the book open, and learns which; it writes
// nothing and makes nothing, no index of a log either.
func TestL15ReaderMakesNoLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.db")
	b := OpenAt(t, path, Options())
	opts := Options()
	opts.ReadOnly = true
	_, err := netdb.Open(path, opts)
	if !errors.Is(err, netdb.ErrLocked) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("a reader beside the owner: %v", err)
	}
	Close(t, b)
	before := contents(t, filepath.Dir(path))
	Close(t, OpenAt(t, path, opts))
	if after := contents(t, filepath.Dir(path)); !maps.Equal(after, before) {
		t.Errorf("the reader made %v of %v", slices.Collect(maps.Keys(after)), slices.Collect(maps.Keys(before)))
	}
}

// Files that are no book of ours, or newer than this build, are refused by
// name and left as they are.
func TestOpenRefusesWhatIsNotItsOwn(t *testing.T) {
	dir := t.TempDir()
	text, other, newer, cut := filepath.Join(dir, "text"), filepath.Join(dir, "other.db"), filepath.Join(dir, "newer.db"), filepath.Join(dir, "cut.db")
	unmarked := filepath.Join(dir, "unmarked.db")
	if err := os.WriteFile(text, []byte("dear diary, this is a text of more than one hundred bytes, which is what a header of SQLite would take"), 0o600); err != nil {
		t.Fatal(err)
	}
	raw(t, other, `CREATE TABLE t (x); PRAGMA user_version = 3; PRAGMA application_id = 77`)
	raw(t, unmarked, `CREATE TABLE t (x)`)
	for _, path := range []string{newer, cut} {
		b := OpenAt(t, path, Options())
		Pool(t, b, "default", "10.8.64.0/24")
		Reserve(t, b, "a")
		Close(t, b)
	}
	raw(t, newer, `PRAGMA user_version = 1000`)
	whole, err := os.ReadFile(cut)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(cut, whole[:len(whole)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{text: netdb.ErrNotABook, other: netdb.ErrNotABook,
		unmarked: netdb.ErrNotABook, newer: netdb.ErrNewerSchema, cut: netdb.ErrDamaged} {
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		beside := files(t, dir)
		for _, readOnly := range []bool{false, true} {
			opts := Options()
			opts.ReadOnly = readOnly
			_, err = netdb.Open(path, opts)
			if !errors.Is(err, want) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: %v, want %v", path, err, want)
			}
			if after, _ := os.ReadFile(path); string(after) != string(before) {
				t.Errorf("%s was changed by the refusal", path)
			}
			if after := files(t, dir); !slices.Equal(after, beside) {
				t.Errorf("%s: the refusal, read-only %v, left %v of %v", path, readOnly, after, beside)
			}
		}
	}
	for field, spoil := range map[string]func(*netdb.Options){
		"synchronous":      func(o *netdb.Options) { o.Synchronous = "off" },
		"quarantine share": func(o *netdb.Options) { o.QuarantineShare = 0 },
		"tombstone":        func(o *netdb.Options) { o.Tombstone = 0 },
		"changes kept":     func(o *netdb.Options) { o.KeepChanges = 0 },
	} {
		opts := Options()
		spoil(&opts)
		_, err := netdb.Open(filepath.Join(dir, "never.db"), opts)
		var fe *ipam.FieldError
		if !errors.As(err, &fe) || fe.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// Scenario P1: a book of another runner or machine opens, and says so.
func TestIdentity(t *testing.T) {
	for name, tt := range map[string]struct {
		runner, machine       string // of the book
		runnerNow, machineNow string
		reported              []string // nothing: it is ours
	}{
		"the same":                {"r1", "m1", "r1", "m1", nil},
		"another runner":          {"r1", "m1", "r2", "m1", []string{"r1", "r2"}},
		"another machine":         {"r1", "m1", "r1", "m2", []string{"m1", "m2"}},
		"a runner without a name": {"r1", "m1", "", "m1", nil},
		"and on another machine":  {"r1", "m1", "", "m2", []string{"m1", "m2"}},
		"a generated name":        {"", "m1", "", "m1", nil},
		"a name that came later":  {"", "m1", "r1", "m1", []string{"r1"}},
	} {
		t.Run(name, func(t *testing.T) {
			path, opts := filepath.Join(t.TempDir(), "book.db"), Options()
			opts.RunnerUID, opts.MachineID = tt.runner, tt.machine
			b := OpenAt(t, path, opts)
			if err := b.CheckIdentity(); err != nil {
				t.Errorf("a new book: %v", err)
			}
			Close(t, b)
			opts.RunnerUID, opts.MachineID = tt.runnerNow, tt.machineNow
			err := OpenAt(t, path, opts).CheckIdentity()
			if errors.Is(err, netdb.ErrIdentity) != (tt.reported != nil) || tt.reported == nil && err != nil {
				t.Fatalf("reported %v", err)
			}
			for _, word := range tt.reported {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%v does not name %s", err, word)
				}
			}
		})
	}
	path, opts := filepath.Join(t.TempDir(), "book.db"), Options()
	opts.MachineID = "m1"
	Close(t, OpenAt(t, path, opts))
	raw(t, path, `UPDATE book SET machine_id = ''`)
	if err := OpenAt(t, path, opts).CheckIdentity(); err != nil {
		t.Errorf("a book made where no machine id was: %v", err)
	}
}

// While another process holds the write lock, a request waits for its own
// deadline, answers that the book is busy, and has done nothing.
func TestBusyBookAnswersAfterTheDeadline(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.db")
	b := OpenAt(t, path, Options())
	p := Pool(t, b, "default", "10.8.64.0/24")
	unlock := lockOut(t, path)
	rev := b.Rev()
	c, err := b.Pick(p.UID, Policy)
	if err != nil {
		t.Fatal(err)
	}
	// A deadline that passes before the lock was asked for says nothing of it.
	for patience := 50 * time.Millisecond; patience < wait; patience *= 4 {
		short, cancel := context.WithTimeout(ctx, patience)
		_, err = b.Reserve(short, allocator, netdb.Reservation{Candidate: c, Sandbox: "a", UID: "a", Interface: "eth0", Attempt: 1, BindWithin: time.Minute})
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("while locked: %v", err)
		}
		if errors.Is(err, netdb.ErrBusy) {
			break
		}
	}
	if !errors.Is(err, netdb.ErrBusy) {
		t.Errorf("while locked: %v", err)
	}
	b.Drop(c)
	unlock()
	if l := Reserve(t, b, "b"); l.Rev != rev+1 {
		t.Errorf("the request that was refused left something: revision %d after %d", l.Rev, rev)
	}
}

// Many callers share commits; one that fails does not fail its neighbours,
// and no address is given twice.
func TestGroupCommitKeepsNeighboursApart(t *testing.T) {
	opts := Options()
	var mu sync.Mutex
	largest := 0
	opts.OnCommit = func(_ time.Duration, batch int) {
		mu.Lock()
		largest = max(largest, batch)
		mu.Unlock()
	}
	path := filepath.Join(t.TempDir(), "book.db")
	b := OpenAt(t, path, opts)
	p := Pool(t, b, "default", "10.8.0.0/16")
	const callers, each = 32, 20
	refused := errors.New("seen on the wire after all")
	unlock := lockOut(t, path) // until all of them wait: the first commit is theirs together
	var wg sync.WaitGroup
	var taken sync.Map
	for i := range callers {
		wg.Go(func() {
			for j := range each {
				c, err := b.Pick(p.UID, Policy)
				if err != nil {
					t.Error(err)
					return
				}
				name := fmt.Sprintf("s-%d-%d", i, j)
				r := netdb.Reservation{Candidate: c, Sandbox: name, UID: name, Interface: "eth0", Attempt: 1, BindWithin: time.Minute}
				rs := []netdb.Reservation{r}
				if j%4 == 3 { // the first is staged before the second is refused
					second, err := b.Pick(p.UID, Policy)
					if err != nil {
						t.Error(err)
						return
					}
					defer b.Drop(second)
					r.Candidate, r.Interface, r.Unseen = second, "eth1", func() error { return refused }
					rs = append(rs, r)
				}
				ls, err := b.Reserve(ctx, allocator, rs...)
				b.Drop(c)
				if j%4 == 3 {
					if !errors.Is(err, refused) {
						t.Errorf("%s: %v", name, err)
					}
					continue
				}
				if err != nil {
					t.Errorf("%s: %v", name, err)
					continue
				}
				if other, twice := taken.LoadOrStore(ls[0].Addr, name); twice {
					t.Errorf("%s was given to %s and %s", ls[0].Addr, other, name)
				}
			}
		})
	}
	realtest.Eventually(t, wait, "all callers to wait", func() bool { return b.Waiting() == callers })
	unlock()
	wg.Wait()
	if u, _ := b.Usage(); u[0].ByState[ipam.Reserved] != callers*each*3/4 || u[0].Free != u[0].Size-uint64(callers*each*3/4) {
		t.Errorf("usage %+v", u[0])
	}
	if largest < callers {
		t.Errorf("largest batch is %d: %d callers shared no commit", largest, callers)
	}
}

// A row that another program changed behind the daemon's back fails its own request
// only, in the same batch as good ones; memory then follows the table.
func TestARowChangedOutsideFailsAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.db")
	b := OpenAt(t, path, Options(), netdb.RowsHaveTheirLast)
	Pool(t, b, "default", "10.8.64.0/24")
	l := Reserve(t, b, "a")
	raw(t, path, fmt.Sprintf(`DELETE FROM leases WHERE address = '%s'`, l.Addr))
	if _, err := b.Bind(ctx, client, l.ID, 0, ipam.Binding{Netns: "/x"}); !errors.Is(err, ipam.ErrStale) {
		t.Errorf("bind of a row that is gone: %v", err)
	}
	if _, ok := b.At(l.Addr); ok {
		t.Error("memory still has the row")
	}
}

// The plan of every statement on a request path uses an index.
func TestNoRequestScans(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.db")
	b := OpenAt(t, path, Options())
	Close(t, b)
	db, _ := sql.Open("sqlite", path)
	defer db.Close()
	for _, q := range []string{
		`UPDATE leases SET state = 'bound' WHERE ip = x'00000000000000000000ffff0a084002' AND id = 'x' AND rev = 1`,
		`DELETE FROM leases WHERE ip = x'00000000000000000000ffff0a084002' AND id = 'x' AND rev = 1`,
		`SELECT rev FROM changes WHERE lease_id = 'x' AND to_state IN ('cooling', 'free') ORDER BY rev DESC LIMIT 1`,
	} {
		rows, err := db.Query(`EXPLAIN QUERY PLAN ` + q)
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			var id, parent, x int
			var detail string
			if err := rows.Scan(&id, &parent, &x, &detail); err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(detail, "SCAN") {
				t.Errorf("%s: %s", q, detail)
			}
		}
		rows.Close()
	}
}

// One batch is one sync, counted by strace on a process that allocates: first
// one caller's batches of one, then a crowd's, all of whom wait when the next
// commit begins.
func TestOneSyncPerCommit(t *testing.T) {
	const alone, callers, rounds = 20, 64, 4
	if os.Getenv("IPAMD_TEST_SYNC_CHILD") != "" {
		opts := Options()
		commits := 0
		opts.OnCommit = func(time.Duration, int) { commits++ }
		b, err := netdb.Open(os.Getenv("IPAMD_TEST_SYNC_CHILD"), opts)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		p := b.Pools()[0]
		// The first commit after opening syncs the log's header as well.
		if _, err := TryReserve(b, p, "warm", Policy); err != nil {
			t.Fatal(err)
		}
		commits = 0
		fmt.Fprintln(os.Stderr, "MARK begin")
		for i := range alone {
			if _, err := TryReserve(b, p, fmt.Sprint("s", i), Policy); err != nil {
				t.Fatal(err)
			}
		}
		fmt.Fprintf(os.Stderr, "MARK alone %d.\n", commits)
		commits = 0
		for round := range rounds {
			unlock := lockOut(t, os.Getenv("IPAMD_TEST_SYNC_CHILD"))
			var crowd errgroup.Group
			for i := range callers {
				crowd.Go(func() error {
					_, err := TryReserve(b, p, fmt.Sprintf("c%d-%d", i, round), Policy)
					return err
				})
			}
			realtest.Eventually(t, wait, "the whole crowd to wait", func() bool { return b.Waiting() == callers })
			unlock()
			if err := crowd.Wait(); err != nil {
				t.Fatal(err)
			}
		}
		fmt.Fprintf(os.Stderr, "MARK crowd %d.\n", commits)
		return
	}
	realtest.Need(t, "strace")
	path := filepath.Join(t.TempDir(), "book.db")
	b := OpenAt(t, path, Options())
	Pool(t, b, "default", "10.8.64.0/20")
	Reserve(t, b, "first")
	Close(t, b)
	trace := filepath.Join(t.TempDir(), "trace")
	cmd := exec.Command("strace", "-f", "-o", trace, "-e", "trace=fsync,fdatasync,write", os.Args[0], "-test.run=^TestOneSyncPerCommit$")
	cmd.Env = append(os.Environ(), "IPAMD_TEST_SYNC_CHILD="+path)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(out), "MARK begin")
	for _, part := range []struct {
		mark string
		want int // commits
	}{
		{"alone", alone},
		{"crowd", rounds},
	} {
		during, after, ok := strings.Cut(rest, "MARK "+part.mark+" ")
		if !ok {
			t.Fatalf("no mark %q in the trace: %.400s", part.mark, out)
		}
		rest = after
		var commits, syncs int
		if _, err := fmt.Sscanf(after, "%d.", &commits); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(during) {
			if (strings.Contains(line, "fsync(") || strings.Contains(line, "fdatasync(")) && !strings.Contains(line, "resumed") {
				syncs++
			}
		}
		if syncs != commits || commits != part.want {
			t.Errorf("%s: %d commits (wanted: %d) made %d syncs:\n%s", part.mark, commits, part.want, syncs, during)
		}
	}
}

// A book opened to look at it answers reads and refuses changes.
func TestReadOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.db")
	b := OpenAt(t, path, Options())
	Pool(t, b, "default", "10.8.64.0/24")
	l := Reserve(t, b, "a")
	Close(t, b)
	opts := Options()
	opts.ReadOnly = true
	b = OpenAt(t, path, opts)
	if _, ok := b.At(netip.MustParseAddr("10.8.64.2")); !ok {
		t.Error("the lease is not there")
	}
	_, err := b.Release(ctx, client, l.ID, "", 0)
	wantErr(t, err, netdb.ErrReadOnly)
	if _, err := netdb.Open(filepath.Join(t.TempDir(), "none.db"), opts); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a book that is not there: %v", err)
	}
}
