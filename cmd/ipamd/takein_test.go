package main

import (
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/rebuild"
)

// takeIn restores a backup, or imports the predecessor's file.
func (w *world) takeIn(file string, confirm bool, change ...func(*rebuild.TakeIn)) (*rebuild.Report, error) {
	k := rebuild.TakeIn{Config: w.cfg, Open: partsOf(slog.New(slog.NewTextHandler(w.log, nil)), w.ns.Path()), File: file, Confirm: confirm}
	for _, c := range change {
		c(&k)
	}
	return k.Run(ctx)
}

func predecessors(k *rebuild.TakeIn) { k.Import = true }

// became lists what a report says of each lease.
func became(r *rebuild.Report) (out []string) {
	for _, o := range r.Became {
		out = append(out, strings.Join(strings.Fields(o.Address+" "+o.Sandbox+" "+o.From+" "+o.Outcome), " "))
	}
	return out
}

func (w *world) backup() string {
	w.t.Helper()
	path := filepath.Join(w.t.TempDir(), "backup.db")
	if _, err := w.client.Backup(ctx, api.BackupRequest{Path: path}); err != nil {
		w.t.Fatal(err)
	}
	return path
}

func runnerOne(c *config.Config) { c.Book.RunnerUID = "runner-one" }

// A backup is gone back to while the present book is whole: who lives stays as it is, what
// ended since does not come back, and what only the present book has is kept. A look
// changes nothing, and says the same.
func TestARestoreBesideThePresentBook(t *testing.T) {
	t.Parallel()
	w := newWorld(t, slow, runnerOne)
	stays, ends := w.wired("stays"), w.wired("ends") // .2, .3
	file := w.backup()
	ends.port.Close()
	if _, err := w.client.Release(ctx, ends.held.ID, api.ReleaseRequest{}); err != nil {
		t.Fatal(err)
	}
	w.becomes(ends.held.Address, api.Cooling)
	later := w.wired("later")   // .4
	asleep := w.wired("asleep") // .5
	policy := &api.WakePolicy{Ports: []string{"8080"}, Protocols: []string{"tcp"}}
	if _, err := w.client.Pause(ctx, asleep.held.ID, api.PauseRequest{Mode: "freeze", Wake: policy}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.Cancel(ctx, api.CancelRequest{UID: "late", Attempt: 3}); err != nil {
		t.Fatal(err)
	}
	w.ns.Bridge("br9", "10.9.0.1/24")
	if _, err := w.client.ApplyPool(ctx, "lab", api.PoolRequest{Prefix: "10.9.0.0/24", Bridge: "br9", Generation: 7}); err != nil {
		t.Fatal(err)
	}
	named, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "named", Pool: "lab", HostInterfaceName: "lab-of-named"})
	if err != nil {
		t.Fatal(err)
	}
	r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "beside", Pool: "lab"})
	if err != nil {
		t.Fatal(err)
	}
	beside := w.wiredOn("br9", r.Leases[0]) // 10.9.0.3
	_, err = w.takeIn(file, true)
	w.refuses("a restore beside a running daemon", err, "in use by process", w.cfg.Book.Path)
	epoch := w.program.book.Epoch()
	w.stopDaemon()
	before := w.folder()
	would, err := w.takeIn(file, false)
	must(t, err)
	w.unchanged(before)
	done, err := w.takeIn(file, true)
	must(t, err)
	want := []string{"10.8.64.2 stays book kept", "10.8.64.3 ends book cooling", "10.8.64.4 later book kept",
		"10.8.64.5 asleep book kept", "10.9.0.2 named book quarantined", "10.9.0.3 beside book kept"}
	for _, r := range []*rebuild.Report{would, done} {
		if got := became(r); !slices.Equal(got, want) {
			t.Errorf("preview %v: it says %q, want %q", r.Preview, got, want)
		}
	}
	if moved, err := os.ReadFile(done.Aside); err != nil || string(moved) != string(before["book.db"]) {
		t.Errorf("the book of before is not %s: %v", done.Aside, err)
	}
	w.start()
	if w.program.book.Epoch() == epoch || done.Epoch != w.program.book.Epoch() {
		t.Errorf("it was epoch %s, is %s, and was to be %s", epoch, w.program.book.Epoch(), done.Epoch)
	}
	for _, b := range []*box{stays, later, beside} {
		if now := w.whois(b.held.Address); now.State != api.Bound || now.Lease.ID != b.held.ID {
			t.Errorf("%s had lease %s and has %s, %+v", b.name, b.held.ID, now.State, now.Lease)
		}
	}
	if now, err := w.client.Lease(ctx, asleep.held.ID); err != nil || now.Lease.State != api.Paused || now.Lease.Sleep == nil || !reflect.DeepEqual(now.Lease.Sleep.Wake, policy) {
		t.Errorf("who sleeps: %+v, %v", now, err)
	}
	if fresh := w.allocate("fresh").Leases[0]; fresh.Address != addr(6) {
		t.Errorf("a new sandbox got %s", fresh.Address)
	}
	var stale *api.Error
	if r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "late", Attempt: 3}); !errors.As(err, &stale) || stale.Code != api.AttemptCancelled {
		t.Errorf("L5: an attempt that was cancelled before the restore: %+v, %v", r, err)
	}
	pools, err := w.client.Pool(ctx, "lab")
	if err != nil || pools.Pools[0].Generation != 7 || pools.Pools[0].Bridge != "br9" {
		t.Errorf("the pool that the configuration does not name: %+v, %v", pools, err)
	}
	if got := w.program.book.HostName("named", named.Leases[0].Interface); got != "lab-of-named" {
		t.Errorf("its interface name is %q", got)
	}
	if other, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "other", Pool: "lab", HostInterfaceName: "lab-of-named"}); err == nil {
		t.Errorf("a name that %s has was given to %+v", named.Leases[0].Sandbox, other)
	}
}

// The book is lost, and with it who sleeps; the daemon went on with an empty one, in which
// who lives is a stranger. The backup says whose each address is, and who is not there has
// its address quarantined.
func TestARestoreOfALostBook(t *testing.T) {
	t.Parallel()
	w := newWorld(t, slow, runnerOne)
	lives := w.wired("lives")   // .2
	asleep := w.wired("asleep") // .3
	if _, err := w.client.Pause(ctx, asleep.held.ID, api.PauseRequest{}); err != nil {
		t.Fatal(err)
	}
	held := w.give("waits", addr(4)).Leases[0]
	file := w.backup()
	w.stopDaemon()
	w.loseBook()
	asleep.port.Close()
	w.start() // .2 is quarantined: it is not known whose it is
	if got := w.state(addr(2)); got != api.Quarantined {
		t.Fatalf("it is %s", got)
	}
	taken := w.give("new", addr(3)).Leases[0] // of a sandbox that sleeps, which the empty book does not know
	w.stopDaemon()
	done, err := w.takeIn(file, true)
	must(t, err)
	want := []string{"10.8.64.2 lives backup back", "10.8.64.3 asleep backup left_out", "10.8.64.3 new book quarantined", "10.8.64.4 waits backup quarantined"}
	if got := became(done); !slices.Equal(got, want) {
		t.Errorf("it says %q, want %q", got, want)
	}
	w.start()
	if now := w.whois(addr(2)); now.State != api.Bound || now.Lease.ID != lives.held.ID {
		t.Errorf("who lives had %s and has %s, %+v", lives.held.ID, now.State, now.Lease)
	}
	for _, l := range []api.Lease{taken, held} { // never bound: nothing says where it lives, and no other gets it
		if now := w.whois(l.Address); now.State != api.Quarantined || now.Lease.ID != l.ID || now.Lease.Sandbox != l.Sandbox {
			t.Errorf("%s had %s (%s) and it is %s, %+v", l.Sandbox, l.Address, l.ID, now.State, now.Lease)
		}
	}
	w.give("fresh", addr(5))
}

// A backup that cannot be read, or is another's, changes nothing: neither it nor the book.
func TestARestoreThatIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, slow, runnerOne)
	w.wired("lives")
	file := w.backup()
	w.stopDaemon()
	dir := t.TempDir()
	whole, err := os.ReadFile(file)
	must(t, err)
	made := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, b, 0o600))
		return path
	}
	edited := made("edited.db", whole)
	w.editOf(edited, `UPDATE leases SET mac = '02:00:00:00:00:09'`)
	foreign := made("foreign.db", whole)
	w.editOf(foreign, `UPDATE book SET runner_uid = 'runner-two'`)
	link := filepath.Join(dir, "same.db")
	must(t, os.Symlink(w.cfg.Book.Path, link))
	before := w.folder()
	for name, c := range map[string]struct {
		file string
		says []string
	}{
		"not there":      {filepath.Join(dir, "none.db"), []string{"none.db"}},
		"a folder":       {dir, []string{dir}},
		"empty":          {made("empty.db", nil), []string{"empty.db"}},
		"text":           {made("text.db", []byte("a backup")), []string{"text.db"}},
		"half of it":     {made("half.db", whole[:len(whole)/2]), []string{"half.db"}},
		"edited":         {edited, []string{netdb.RowsAreAsRecorded, "ipamd check " + edited}},
		"another's":      {foreign, []string{"runner-two", "ipamctl book adopt"}},
		"the book":       {w.cfg.Book.Path, []string{"the present book itself"}},
		"the book again": {link, []string{"the present book itself"}},
	} {
		was, _ := os.ReadFile(c.file)
		for _, confirm := range []bool{false, true} {
			_, err := w.takeIn(c.file, confirm)
			w.refuses(name, err, c.says...)
			w.unchanged(before)
		}
		if is, _ := os.ReadFile(c.file); string(is) != string(was) {
			t.Errorf("%s: the file was changed", name)
		}
	}
}

// editOf changes a book's rows behind its back.
func (w *world) editOf(path, script string) {
	w.t.Helper()
	db, err := sql.Open("sqlite", path)
	if err == nil {
		_, err = db.Exec(script)
	}
	if err = errors.Join(err, db.Close()); err != nil {
		w.t.Fatal(err)
	}
	for _, end := range []string{"-wal", "-shm"} {
		_ = os.Remove(path + end) // the last to close has folded it
	}
}

// The predecessor's file has no owners: they come from labels. What is not explained is
// quarantined, what cooled goes on cooling, and a bad row is named.
func TestAnImportOfThePredecessorsFile(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := prepare(t, withContainerd(d), slow)
		w.ns.Bridge("rt0", "10.8.64.1/24")
		port := w.ns.Port("rt0", addr(2)+"/24")
		d.Run(t, ctrdtest.Spec{ID: "labelled", Labels: labels("labelled", addr(2)), Netns: port.NS.Path()})
		w.ns.Port("rt0", addr(3)+"/24") // a sandbox without a label
		file := filepath.Join(t.TempDir(), "net.db")
		w.editOf(file, `CREATE TABLE ips (ip TEXT PRIMARY KEY, subnet TEXT, reserved INTEGER DEFAULT 1, released_at INTEGER DEFAULT NULL);
			CREATE TABLE subnets (cidr TEXT PRIMARY KEY, parent TEXT, identifier TEXT, reserved INTEGER DEFAULT 1, UNIQUE(parent, identifier));
			CREATE TABLE interfaces (name TEXT PRIMARY KEY, reserved INTEGER DEFAULT 1);
			INSERT INTO ips VALUES ('10.8.64.2', '10.8.64.0/24', 1, NULL), ('10.8.64.3', '10.8.64.0/24', 1, NULL), ('10.8.64.4', '10.8.64.0/24', 1, NULL),
				('10.8.64.5', '10.8.64.0/24', 0, 1700000000), ('10.8.64.6', '10.8.64.0/24', 'odd', NULL), ('10.8.64.20/24', '10.8.64.0/24', 0, 1700000000), ('somewhere', '10.8.64.0/24', 1, NULL), ('10.99.0.7', '10.99.0.0/24', 1, NULL);
			INSERT INTO subnets VALUES ('10.8.64.0/24', '10.8.0.0/16', 'runner', 1), ('10.8.64.32/28', '10.8.64.0/24', 'build', 1);
			INSERT INTO interfaces VALUES ('`+port.HostName+`', 1), ('veth-of-nobody', 1);`)
		_, err := w.takeIn(file, true, predecessors)
		w.refuses("a prefix that was given away inside of a pool", err, `table subnets, row "10.8.64.32/28"`, "exclude", "pool default")
		if len(w.folder()) > 0 {
			t.Errorf("there are %v", w.folder())
		}
		w.cfg.Pools[0].Exclude = append(w.cfg.Pools[0].Exclude, "10.8.64.32-10.8.64.47")
		before, err := os.ReadFile(file)
		must(t, err)
		would, err := w.takeIn(file, false, predecessors)
		must(t, err)
		if len(w.folder()) > 0 {
			t.Errorf("a look leaves %v", w.folder())
		}
		done, err := w.takeIn(file, true, predecessors)
		must(t, err)
		want := []string{"10.8.64.2 labelled file back", "10.8.64.3 file quarantined", "10.8.64.4 file quarantined", "10.8.64.5 file cooling",
			"10.8.64.6 file quarantined", "10.8.64.20 file quarantined", "10.99.0.7 file withheld"}
		for _, r := range []*rebuild.Report{would, done} {
			if got := became(r); !slices.Equal(got, want) {
				t.Errorf("preview %v: it says %q, want %q", r.Preview, got, want)
			}
			wants(t, "what is not explained", strings.Join(r.Unexplained, "\n"), `table ips, row "10.8.64.6", field reserved: "odd"`, `row "somewhere", field ip: no address can be read`, "veth-of-nobody")
		}
		if after, err := os.ReadFile(file); err != nil || string(after) != string(before) {
			t.Errorf("the file was changed, or %v", err)
		}
		w.start()
		if now := w.whois(addr(2)); now.State != api.Bound || now.Lease.Sandbox != "labelled" {
			t.Errorf("it is %s, %+v", now.State, now.Lease)
		}
		if got := w.program.book.HostName("labelled", w.whois(addr(2)).Lease.Interface); got != port.HostName {
			t.Errorf("its interface name is %q, want %q", got, port.HostName)
		}
		for i, fresh := range []string{"a", "b"} {
			w.give(fresh, addr(7+i)) // none that the file held
		}
		if l, ok := w.program.book.At(netip.MustParseAddr(addr(4))); !ok || l.Hold != "" {
			t.Errorf("what is not explained and not used is to be given again some day: %+v", l)
		}
		if _, err := w.takeIn(file, true, predecessors); err == nil {
			t.Error(fmt.Errorf("an import beside a running daemon"))
		}
	})
}
