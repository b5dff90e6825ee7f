package main

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/netdb/bookfile"
	"github.com/ipamd/ipamd/netdb/salvage"
	"github.com/ipamd/ipamd/rebuild"
)

func (w *world) rebuild(change ...func(*rebuild.Rebuild)) (*rebuild.Report, error) {
	r := rebuild.Rebuild{Config: w.cfg, Open: partsOf(slog.New(slog.NewTextHandler(w.log, nil)), w.ns.Path())}
	for _, c := range change {
		c(&r)
	}
	return r.Run(ctx)
}

func preview(r *rebuild.Rebuild) { r.Preview = true }
func force(r *rebuild.Rebuild)   { r.Force = true }

// spoil zeroes the first page of a table in the book of a stopped daemon.
func (w *world) spoil(table string) {
	w.t.Helper()
	const page = 4096
	db, err := sql.Open("sqlite", w.cfg.Book.Path)
	if err != nil {
		w.t.Fatal(err)
	}
	var root int64
	err = db.QueryRow(`SELECT rootpage FROM sqlite_schema WHERE name = ?`, table).Scan(&root)
	if err := errors.Join(err, db.Close()); err != nil {
		w.t.Fatal(err)
	}
	f, err := os.OpenFile(w.cfg.Book.Path, os.O_WRONLY, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	_, err = f.WriteAt(make([]byte, page), (root-1)*page)
	if err := errors.Join(err, f.Close()); err != nil {
		w.t.Fatal(err)
	}
}

// folder is what lies in the book's, but for an empty log and its index.
func (w *world) folder() map[string][]byte {
	w.t.Helper()
	out := make(map[string][]byte)
	dir := filepath.Dir(w.cfg.Book.Path)
	names, err := os.ReadDir(dir)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, n := range names {
		if !n.Type().IsRegular() || strings.HasSuffix(n.Name(), "-shm") {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, n.Name()))
		if err != nil {
			w.t.Fatal(err)
		}
		if len(b) > 0 || !strings.HasSuffix(n.Name(), "-wal") {
			out[n.Name()] = b
		}
	}
	return out
}

// unchanged fails unless the folder is what it was.
func (w *world) unchanged(before map[string][]byte) {
	w.t.Helper()
	if after := w.folder(); !maps.EqualFunc(before, after, bytes.Equal) {
		w.t.Errorf("the folder had %v, and has %v, or their bytes differ",
			slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after)))
	}
}

func (w *world) refuses(what string, err error, parts ...string) {
	w.t.Helper()
	if err == nil {
		w.t.Fatalf("%s was not refused", what)
	}
	wants(w.t, what, err.Error(), parts...)
}

// rows lists a report's rows as "address state" by their lists.
func rowsOf(b *rebuild.Report) (lists [3][]string) {
	for i, rows := range [][]rebuild.Row{b.Leases, b.Foreign, b.SetAside} {
		for _, r := range rows {
			lists[i] = append(lists[i], r.Address+" "+string(r.State))
		}
	}
	return lists
}

// plug gives a box's lease a container with the labels given, and binds it.
func (w *world) plug(d *ctrdtest.Daemon, name string, named map[string]string) *box {
	w.t.Helper()
	b := &box{name: name, held: w.allocate(name).Leases[0]}
	b.port = w.ns.Port("rt0", b.held.Address+"/24")
	d.Run(w.t, ctrdtest.Spec{ID: name, Labels: named, Netns: b.port.NS.Path()})
	if _, err := w.client.Bind(ctx, b.held.ID, api.BindRequest{Containers: []api.Container{{Namespace: "default", ID: name}},
		Netns: b.port.NS.Path(), HostInterface: b.port.HostName, MAC: b.port.MAC.String()}); err != nil {
		w.t.Fatal(err)
	}
	return b
}

// L13: a page of the book is broken. The daemon refuses and names the verb.
// The verb gives every sandbox that lives its own lease back, quarantines what the
// book withheld, and leaves the old file as it was under the name that it says.
// No address of any of them is given; what cooled goes on cooling.
func TestL13Rebuild(t *testing.T) {
	t.Parallel()
	for _, table := range []string{"changes", "leases"} {
		t.Run("the page of "+table, func(t *testing.T) {
			ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) { rebuildsBroken(t, d, table) })
		})
	}
}

func rebuildsBroken(t *testing.T, d *ctrdtest.Daemon, table string) {
	w := newWorld(t, withContainerd(d), slow)
	labelled := w.box(d, "labelled")                                                       // .2
	owned := w.plug(d, "owned", labels("owned", addr(3)))                                  // .3: no lease label
	bare := w.plug(d, "bare", nil)                                                         // .4: recorded, and labelled by nothing
	asleep, cooled, leaving := w.box(d, "asleep"), w.box(d, "rested"), w.box(d, "leaving") // .5, .6, .7
	w.give("waiting", addr(8))
	if _, err := w.client.Quarantine(ctx, addr(9), "by hand"); err != nil {
		t.Fatal(err)
	}
	w.watched()
	if _, err := w.client.Pause(ctx, asleep.held.ID, api.PauseRequest{}); err != nil {
		t.Fatal(err)
	}
	for _, b := range []*box{asleep, cooled} {
		b.port.Close()
		d.Delete(t, "default", b.name)
	}
	w.becomes(cooled.held.Address, api.Cooling)
	if r, err := w.client.Release(ctx, leaving.held.ID, api.ReleaseRequest{}); err != nil || r.Lease.State != api.Releasing {
		t.Fatalf("release: %+v, %v", r, err)
	}
	epoch := w.program.book.Epoch()
	w.stopDaemon()
	w.ns.Port("rt0", addr(10)+"/24") // no pass has seen it
	w.spoil(table)
	before := w.folder()

	p := w.newProgram()
	err := p.open(ctx)
	w.refuses("the broken book", err, w.cfg.Book.Path, "ipamd rebuild")
	would, err := w.rebuild(preview)
	if err != nil {
		t.Fatal(err)
	}
	w.unchanged(before)
	report, err := w.rebuild()
	if err != nil {
		t.Fatal(err)
	}
	want := [3][]string{
		{addr(2) + " bound", addr(3) + " bound", addr(4) + " bound", addr(7) + " releasing"},
		{addr(10) + " quarantined"},
		{addr(5) + " quarantined", addr(6) + " cooling", addr(8) + " quarantined", addr(9) + " quarantined"},
	}
	if table == "leases" { // who recorded the container is not known any more, but that a sandbox had the address is
		want[0] = slices.Delete(want[0], 2, 3)
		want[2] = slices.Insert(want[2], 0, addr(4)+" quarantined")
	}
	for i, list := range rowsOf(report) {
		if !slices.Equal(list, want[i]) || !slices.Equal(list, rowsOf(would)[i]) {
			t.Errorf("it reports %v, the preview of %v, want %v", list, rowsOf(would)[i], want[i])
		}
	}
	if report.WasEpoch != epoch || report.Epoch == epoch || report.Epoch == "" || len(report.Unexplained) == 0 {
		t.Errorf("it was %s and is %+v", epoch, report)
	}
	if old, err := os.ReadFile(report.Aside); err != nil || !bytes.Equal(old, before["book.db"]) {
		t.Errorf("the old book, %s, is another one: %v", report.Aside, err)
	}
	if left := slices.Sorted(maps.Keys(w.folder())); !slices.Equal(left, []string{"book.db", "book.db-mark", filepath.Base(report.Aside), filepath.Base(report.Aside) + "-mark"}) {
		t.Errorf("there are %v", left)
	}

	w.start()
	live := map[*box]api.State{labelled: api.Bound, owned: api.Bound, leaving: api.Releasing}
	if table != "leases" {
		live[bare] = api.Bound
	}
	for b, state := range live {
		now := w.whois(b.held.Address)
		if now.State != state || now.Lease.ID != b.held.ID || now.Lease.Sandbox != b.name {
			t.Errorf("%s had lease %s and has: %s, %+v", b.name, b.held.ID, now.State, now.Lease)
		}
	}
	for at, state := range map[string]api.State{asleep.held.Address: api.Quarantined, cooled.held.Address: api.Cooling,
		addr(8): api.Quarantined, addr(9): api.Quarantined, addr(10): api.Quarantined} {
		if got := w.state(at); got != state {
			t.Errorf("%s is %s, want %s", at, got, state)
		}
	}
	for i := range 5 {
		w.give("new"+string(rune('a'+i)), addr(11+i))
	}
	// What sleeps is not cleared, however long its address is not seen; what only waited
	// is cleared, and what cooled has its time.
	for at, byHand := range map[string]bool{asleep.held.Address: true, addr(9): true, addr(8): false} {
		l, _ := w.program.book.At(netip.MustParseAddr(at))
		if got := l.Hold != ""; got != byHand {
			t.Errorf("%s is an operator's to clear: %v, by %q", at, got, l.Hold)
		}
	}
	// F30: whose container no label names and whose record is lost is given back by
	// hand, for nothing shows whose port has the address; asked, it is who it was.
	if table == "leases" {
		if _, err := w.client.Adopt(ctx, bare.held.Address, api.AdoptRequest{Reason: "its labels were lost"}); err != nil {
			t.Error(err)
		}
	}
	if again := w.allocate("bare").Leases[0]; again.ID != bare.held.ID || again.Address != bare.held.Address || again.State != api.Bound {
		t.Errorf("bare had %+v, and has %+v", bare.held, again)
	}
	// A release that names a lease of before is understood.
	for id, want := range map[string]api.State{asleep.held.ID: api.Quarantined, cooled.held.ID: api.Cooling} {
		if r, err := w.client.Release(ctx, id, api.ReleaseRequest{}); err != nil || r.Lease.State != want {
			t.Errorf("release of a lease of before: %+v, %v, want it %s", r, err, want)
		}
	}
	d.Delete(t, "default", "leaving")
	leaving.port.Close()
	w.becomes(leaving.held.Address, api.Cooling)
}

// The book that is rebuilt knows the runtime that the old one knew. Another one
// that answers, then or later, shows none of the containers, and all of them
// run: nothing is released on its word.
func TestL13RebuildKnowsTheRuntime(t *testing.T) {
	t.Parallel()
	for _, during := range []bool{false, true} {
		t.Run(map[bool]string{false: "another answers later", true: "another answers at the rebuild"}[during], func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "containerd")
			d, other := ctrdtest.Start(t, ctrdtest.V2), ctrdtest.Start(t, ctrdtest.V2)
			point(t, socket, d)
			w := newWorld(t, withContainerd(d), quick, func(c *config.Config) { c.Runtime.Address = socket })
			plugged := w.box(d, "plugged")
			unplugged := w.allocate("unplugged").Leases[0]
			unplugged = w.bind(unplugged, w.record(d, unplugged, "unplugged"))
			knew := w.program.book.Runtime()
			w.stopDaemon()
			w.spoil("changes")
			if during {
				point(t, socket, other)
			}
			r, err := w.rebuild()
			if err != nil {
				t.Fatal(err)
			}
			if named := strings.Contains(strings.Join(r.Unexplained, "\n"), "the old book's containers are in containerd "+knew); named != during {
				t.Errorf("it reports %q", r.Unexplained)
			}
			if i := slices.IndexFunc(r.Leases, func(l rebuild.Row) bool { return l.Address == plugged.held.Address }); i < 0 ||
				len(r.Leases[i].Containers) != 1 || r.Leases[i].LeaseID != plugged.held.ID {
				t.Errorf("it lives: %+v", r.Leases)
			}
			point(t, socket, other)
			w.start()
			if now := w.program.book.Runtime(); now != knew {
				t.Errorf("the book knows %q, and knew %q", now, knew)
			}
			realtest.Eventually(t, wait, "doctor to report it", func() bool { return slices.Contains(w.findings(), "runtime_changed") })
			for range 5 {
				if _, err := w.client.Reconcile(ctx, api.ReconcileRequest{}); err != nil {
					t.Fatal(err)
				}
			}
			want := api.Bound
			if during {
				want = api.Quarantined // no witness has shown it
			}
			if lives, waits := w.state(plugged.held.Address), w.state(unplugged.Address); lives != api.Bound || waits != want {
				t.Errorf("the one with a port is %s, and the one without is %s, want %s", lives, waits, want)
			}
			if !during {
				return
			}
			stranger := w.ns.Port("rt0", addr(99)+"/24")
			w.becomes(addr(99), api.Quarantined)
			stranger.Close()
			w.pass() // confirms the runtime, which shows no container at all while the book has a bound lease
			realtest.Eventually(t, wait, "doctor to report what is held for it", func() bool { return slices.Contains(w.findings(), "reap_held") })
			if now := w.state(addr(99)); now != api.Quarantined {
				t.Errorf("%s is %s before that is confirmed, too", addr(99), now)
			}
			realtest.Eventually(t, wait, addr(99)+" to be released", func() bool { w.pass(); return w.state(addr(99)) != api.Quarantined })
			if now := w.state(unplugged.Address); now != want {
				t.Errorf("what was not asked about is %s", now)
			}
		})
	}
}

// A rebuild of half a census would give away what could not be shown.
func TestL13RebuildRefusesHalfACensus(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), slow)
		w.box(d, "a")
		w.stopDaemon()
		w.spoil("leases")
		before := w.folder()
		d.Kill9()
		for _, how := range []func(*rebuild.Rebuild){preview, force} {
			_, err := w.rebuild(how)
			w.refuses("half a census", err, "the runtime witness cannot answer", "half a census")
			w.unchanged(before)
		}
		d.Restart()
		if r, err := w.rebuild(); err != nil || len(r.Leases) != 1 {
			t.Errorf("with the runtime: %+v, %v", r, err)
		}
	})
}

func TestL13RebuildRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(t *testing.T, w *world)
		how    func(*rebuild.Rebuild)
		want   []string
	}{
		{"a whole book", func(*testing.T, *world) {}, nil, []string{"it is whole", "--force"}},
		{"no book", func(t *testing.T, w *world) { remove(t, w.cfg.Book.Path) }, force, []string{"there is no book", "ipamd run"}},
		{"no folder", func(_ *testing.T, w *world) { w.cfg.Book.Path = "/nonexistent/book.db" }, force, []string{"there is no book", "ipamd run"}},
		{"an empty file", func(t *testing.T, w *world) {
			if err := os.Truncate(w.cfg.Book.Path, 0); err != nil {
				t.Fatal(err)
			}
		}, nil, []string{"there is no book", "ipamd run"}},
		{"another program's file", func(t *testing.T, w *world) {
			if err := os.WriteFile(w.cfg.Book.Path, []byte("dear diary"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, nil, []string{"another program's", "--force"}},
		{"a newer schema", func(_ *testing.T, w *world) { w.edit(`PRAGMA user_version = 1000`) }, force, []string{"newer ipamd"}},
		{"another machine's", func(_ *testing.T, w *world) {
			w.edit(`UPDATE book SET machine_id = 'elsewhere'`)
			w.spoil("leases")
		}, nil, []string{"another runner", "elsewhere"}},
		{"another runner's", func(_ *testing.T, w *world) {
			w.spoil("leases")
			w.cfg.Book.RunnerUID = "r2"
		}, nil, []string{"another runner", "r2"}},
		{"no bridge", func(_ *testing.T, w *world) {
			w.spoil("leases")
			w.ns.Exec("ip", "link", "del", "rt0")
		}, nil, []string{"rt0 is missing", "half a census"}},
		{"a bridge with a daemon of another book", func(t *testing.T, w *world) {
			w.spoil("leases")
			other := w.newProgram()
			other.cfg.Book.Path, other.cfg.Socket.Path = filepath.Join(t.TempDir(), "book.db"), filepath.Join(t.TempDir(), "s")
			if err := other.open(ctx); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := other.close(); err != nil {
					t.Error(err)
				}
			})
		}, nil, []string{"lock bridge rt0", "pid"}},
		{"another rebuild", func(t *testing.T, w *world) {
			w.spoil("leases")
			lock, err := rebuild.Swap{Path: w.cfg.Book.Path}.Lock(unix.LOCK_EX)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { lock.Close() })
			w.refuses("a daemon meanwhile", w.newProgram().open(ctx), "a rebuild works there")
		}, nil, []string{"a rebuild works there"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, slow)
			w.allocate("a")
			w.stopDaemon()
			dir := w.cfg
			c.change(t, w)
			now := w.cfg
			w.cfg.Book.Path = dir.Book.Path
			before := w.folder()
			w.cfg = now
			_, err := w.rebuild(func(r *rebuild.Rebuild) {
				if c.how != nil {
					c.how(r)
				}
			})
			w.refuses(c.name, err, c.want...)
			w.cfg.Book.Path = dir.Book.Path
			w.unchanged(before)
		})
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

// A daemon that has the book is named, also when its file broke under it.
func TestRebuildOfABookInUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, slow)
	w.allocate("a")
	_, err := w.rebuild(force)
	w.refuses("a book in use", err, "in use by process")
	if len(w.folder()) > 3 { // with its log and its mark
		t.Errorf("it left %v", slices.Sorted(maps.Keys(w.folder())))
	}
	w.give("b", addr(3))
}

// A rebuild is cut at each place where the names in the folder change. The
// daemon never begins an empty book, and running again finishes.
func TestL13RebuildIsCut(t *testing.T) {
	t.Parallel()
	for name, until := range map[string]func(t *testing.T, w *world, s rebuild.Swap, make func()){
		"while it makes a book": func(t *testing.T, _ *world, s rebuild.Swap, _ func()) {
			for _, part := range []string{"", "-wal", "-shm", "-mark"} {
				if err := os.WriteFile(s.Rebuilding()+part, []byte("half a book"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		},
		"when it has made it": func(t *testing.T, _ *world, s rebuild.Swap, make func()) { make() },
		"when it is sealed": func(t *testing.T, _ *world, s rebuild.Swap, make func()) {
			make()
			must(t, s.Seal())
		},
		"between the old book and its log": func(t *testing.T, w *world, s rebuild.Swap, make func()) {
			make()
			must(t, s.Seal())
			must(t, os.WriteFile(s.Path+"-wal", []byte("its log"), 0o600))
			must(t, os.Rename(s.Path, s.Path+".broken-20261121T120000Z"))
		},
		"when the old book is away": func(t *testing.T, w *world, s rebuild.Swap, make func()) {
			make()
			must(t, s.Seal())
			_, err := bookfile.MoveAside(s.Path, time.Now())
			must(t, err)
		},
		"when its mark is in": func(t *testing.T, w *world, s rebuild.Swap, make func()) {
			make()
			must(t, s.Seal())
			_, err := bookfile.MoveAside(s.Path, time.Now())
			must(t, err)
			must(t, os.Rename(s.Sealed()+"-mark", s.Path+"-mark"))
		},
		"when the new one is in": func(t *testing.T, w *world, s rebuild.Swap, make func()) {
			make()
			must(t, s.Seal())
			_, err := bookfile.MoveAside(s.Path, time.Now())
			must(t, err)
			must(t, errors.Join(os.Rename(s.Sealed()+"-mark", s.Path+"-mark"), os.Rename(s.Sealed(), s.Path)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, slow)
			l := w.allocate("asleep").Leases[0]
			if _, err := w.client.Bind(ctx, l.ID, api.BindRequest{MAC: "02:00:00:00:00:01"}); err != nil {
				t.Fatal(err)
			}
			if _, err := w.client.Pause(ctx, l.ID, api.PauseRequest{}); err != nil {
				t.Fatal(err)
			}
			w.stopDaemon()
			w.spoil("tombstones")
			old := w.folder()["book.db"]
			s := rebuild.Swap{Path: w.cfg.Book.Path}
			until(t, w, s, func() {
				r := rebuild.Rebuild{Config: w.cfg, Open: partsOf(slog.New(slog.NewTextHandler(w.log, nil)), w.ns.Path())}
				salvaged, err := salvage.Book(s.Path)
				must(t, err)
				_, err = r.Build(ctx, s.Rebuilding(), salvaged)
				must(t, err)
			})
			if done := name == "when the new one is in"; !done {
				before := w.folder()
				w.refuses("the daemon", w.newProgram().open(ctx), "ipamd rebuild")
				w.unchanged(before)
				if cut, err := s.Cut(); err != nil || cut {
					_, err = w.rebuild(preview)
					w.refuses("a preview", err, "cut short")
					w.unchanged(before)
				}
				r, err := w.rebuild()
				must(t, err)
				if moved, err := os.ReadFile(r.Aside); err != nil || !bytes.Equal(moved, old) {
					t.Errorf("the old book is not %s: %v", r.Aside, err)
				}
			}
			for n := range w.folder() {
				if n != "book.db" && n != "book.db-mark" && !strings.HasPrefix(n, "book.db.broken-") {
					t.Errorf("%s is left", n)
				}
			}
			w.start()
			if why := w.program.book.Info().Restored; why != "" {
				t.Errorf("it begins one epoch more: %s", why)
			}
			if got := w.state(l.Address); got != api.Quarantined {
				t.Errorf("who sleeps has an address that is %s", got)
			}
			w.give("new", addr(3))
		})
	}
}

// Its own log goes with the old book: what is in it was acknowledged.
func TestRebuildAfterAKill(t *testing.T) {
	t.Parallel()
	w := newWorld(t, slow)
	held := w.allocate("a").Leases[0]
	dir := t.TempDir()
	for name, b := range w.folder() {
		if !strings.HasSuffix(name, "-shm") {
			must(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
		}
	}
	w.stopDaemon()
	w.cfg.Book.Path = filepath.Join(dir, "book.db")
	before := w.folder()
	if len(before["book.db-wal"]) == 0 {
		t.Fatal("there is no log")
	}
	f, err := os.OpenFile(w.cfg.Book.Path, os.O_WRONLY|os.O_TRUNC, 0)
	must(t, err)
	_, err = f.Write(make([]byte, 3*4096))
	must(t, errors.Join(err, f.Close()))
	before = w.folder()
	r, err := w.rebuild(force)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"", "-wal"} {
		if moved, err := os.ReadFile(r.Aside + part); err != nil || !bytes.Equal(moved, before["book.db"+part]) {
			t.Errorf("%s is not what it was: %v", r.Aside+part, err)
		}
	}
	if len(r.SetAside) != 1 || r.SetAside[0].Address != held.Address {
		t.Errorf("the log had the lease, and the report does not: %+v", r)
	}
	w.start()
	w.give("b", addr(3))
}

// The verb as a person and as a program meet it.
func TestRebuildVerb(t *testing.T) {
	t.Parallel()
	w := newWorld(t, slow)
	l := w.allocate("waits").Leases[0]
	w.stopDaemon()
	w.ns.Port("rt0", addr(40)+"/24") // no pass has seen it
	conf := filepath.Join(t.TempDir(), "ipamd.toml")
	must(t, os.WriteFile(conf, confText(t, w.cfg), 0o600))
	self, err := os.Executable()
	must(t, err)
	verb := func(code int, args ...string) (out, stderr string) {
		t.Helper()
		p := start(t, t.TempDir(), append([]string{"ip", "netns", "exec", w.ns.Name(), self, "rebuild", "--config", conf}, args...))
		if got := p.code(); got != code {
			t.Errorf("%v: exit code %d, want %d: %s%s", args, got, code, p.out.String(), p.err.String())
		}
		return p.out.String(), p.err.String()
	}
	out, stderr := verb(exitError)
	if out != "" {
		t.Errorf("stdout is %q", out)
	}
	wants(t, "stderr", stderr, "ipamd: rebuild "+w.cfg.Book.Path+": it is whole")
	_, stderr = verb(exitUsage, "-o", "yaml")
	wants(t, "stderr", stderr, "see ipamd rebuild --help")
	w.spoil("changes")
	out, _ = verb(exitOK, "--preview")
	wants(t, "the preview", out, "would be rebuilt; nothing was changed", "next: ipamd rebuild")
	out, _ = verb(exitOK, "-o", "json")
	var report rebuild.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if report.Aside == "" || len(report.Foreign) != 1 || len(report.SetAside) != 1 || report.SetAside[0].Address != l.Address {
		t.Errorf("it reported %s", out)
	}
	w.spoil("changes")
	out, stderr = verb(exitOK)
	if stderr != "" {
		t.Errorf("stderr is %q", stderr)
	}
	wants(t, "the report", out, w.cfg.Book.Path+" is rebuilt\n", "epoch", "Seen, and no lease's: ", "Withheld, as by the old book: ", addr(40), l.Address,
		"Not explained", "next: systemctl start ipamd.socket ipamd.service; without the units: ipamd run")
	t.Logf("\n%s", out)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
