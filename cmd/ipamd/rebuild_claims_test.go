package main

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/netdb/netdbtest"
	"github.com/ipamd/ipamd/rebuild"
)

// explains reports whether something that was not explained has all the words.
func explains(b *rebuild.Report, words ...string) bool {
	for _, u := range b.Unexplained {
		all := true
		for _, w := range words {
			all = all && strings.Contains(u, w)
		}
		if all {
			return true
		}
	}
	return false
}

// Where the old book and a record without a task contradict each other, no sandbox gets
// the address; it is reported; and a lease id that ended in the old book stays ended.
func TestRebuildWhereTheOldBookIsContradicted(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), slow)
		cooled, asleep, bare := w.box(d, "rested"), w.box(d, "asleep"), w.plug(d, "bare", nil)
		w.watched()
		if _, err := w.client.Pause(ctx, asleep.held.ID, api.PauseRequest{}); err != nil {
			t.Fatal(err)
		}
		for _, b := range []*box{cooled, asleep} {
			b.port.Close()
			d.Delete(t, "default", b.name)
		}
		w.becomes(cooled.held.Address, api.Cooling)
		w.stopDaemon()
		again := labels("rested", cooled.held.Address)
		again["ipamd.dev/lease-id"] = cooled.held.ID
		d.Create(t, ctrdtest.Spec{ID: "rested", Labels: again})
		d.Create(t, ctrdtest.Spec{ID: "other", Labels: labels("other", asleep.held.Address)})
		d.Create(t, ctrdtest.Spec{ID: "impostor", Labels: labels("impostor", bare.held.Address)})
		w.spoil("changes")
		r, err := w.rebuild()
		if err != nil {
			t.Fatal(err)
		}
		if !explains(r, asleep.held.Address, `"other"`, "no task of it lives") || !explains(r, bare.held.Address, `"bare"`, "under another one") {
			t.Errorf("it reported %q", r.Unexplained)
		}
		w.start()
		if who := w.whois(cooled.held.Address); who.State != api.Quarantined || who.Lease.ID == cooled.held.ID {
			t.Errorf("made again after its lease had ended, and not started: %+v", who.Lease)
		}
		if who := w.whois(asleep.held.Address); who.State != api.Quarantined || who.Lease.Sandbox != "asleep" {
			t.Errorf("a record without a task has it: %+v", who.Lease)
		}
		if who := w.whois(bare.held.Address); who.State != api.Quarantined {
			t.Errorf("two live with it: %+v", who.Lease)
		}
	})
}

// Without a runtime the wire alone shows who lives: a port and a MAC as the
// lease records them. Another MAC with its address is no workload of the book's.
func TestRebuildByTheWire(t *testing.T) {
	t.Parallel()
	w := newWorld(t, slow)
	lives, replaced, twice := w.wired("lives"), w.wired("replaced"), w.wired("twice")
	w.stopDaemon()
	replaced.port.Close()
	w.ns.Port("rt0", replaced.held.Address+"/24")
	w.ns.Port("rt0", twice.held.Address+"/24")
	w.spoil("changes")
	r, err := w.rebuild()
	if err != nil {
		t.Fatal(err)
	}
	if !explains(r, twice.held.Address, `"twice"`, "under another one") {
		t.Errorf("it reported %q", r.Unexplained)
	}
	w.start()
	if who := w.whois(lives.held.Address); who.State != api.Bound || who.Lease.ID != lives.held.ID || who.Lease.HostInterface != lives.port.HostName {
		t.Errorf("who lives has %+v, %s", who.Lease, who.State)
	}
	for _, b := range []*box{replaced, twice} {
		if got := w.state(b.held.Address); got != api.Quarantined {
			t.Errorf("%s's address is %s", b.name, got)
		}
	}
	w.give("new", addr(5))
}

// wired is a box that no runtime knows.
func (w *world) wired(name string) *box {
	w.t.Helper()
	return w.wiredOn("rt0", w.allocate(name).Leases[0])
}

// wiredOn gives a lease's sandbox a port on a bridge.
func (w *world) wiredOn(bridge string, l api.Lease) *box {
	w.t.Helper()
	b := &box{name: l.Sandbox, held: l}
	b.port = w.ns.Port(bridge, b.held.Address+"/24")
	if _, err := w.client.Bind(ctx, b.held.ID, api.BindRequest{Netns: b.port.NS.Path(), HostInterface: b.port.HostName,
		MAC: b.port.MAC.String()}); err != nil {
		w.t.Fatal(err)
	}
	return b
}

// A book of the last build before 0.1.0 is refused with the verb that takes it over. The
// rebuilt book has its leases.
func TestRebuildOfABookFromBeforeTheRelease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, slow)
	lives, left := w.wired("lives"), w.wired("left")
	if _, err := w.client.Quarantine(ctx, addr(9), "by hand"); err != nil {
		t.Fatal(err)
	}
	w.stopDaemon()
	left.port.Close()
	netdbtest.BeforeRelease(t, w.cfg.Book.Path)
	w.refuses("a book from before the release", w.newProgram().open(ctx), w.cfg.Book.Path, `run "ipamd rebuild"`)
	if code, out, stderr := ipamd(t, "check", w.cfg.Book.Path); code != exitUsage || out != "" || !strings.Contains(stderr, `run "ipamd rebuild"`) {
		t.Errorf("check: %d, %q, %q", code, out, stderr)
	}
	r, err := w.rebuild()
	if err != nil || r.Broken != netdb.ErrOldBuild.Error() {
		t.Fatalf("%+v, %v", r, err)
	}
	w.start()
	if who := w.whois(lives.held.Address); who.State != api.Bound || who.Lease.ID != lives.held.ID || who.Lease.HostInterface != lives.port.HostName {
		t.Errorf("who lives has %+v, %s", who.Lease, who.State)
	}
	for _, a := range []string{left.held.Address, addr(9)} {
		if who := w.whois(a); who.State != api.Quarantined {
			t.Errorf("%s is %s", a, who.State)
		}
	}
}

// After a reboot there is no rt0. One that ipamd manages is made by the
// rebuild, as by the daemon, which does not start without its book; a preview
// makes none.
func TestRebuildMakesTheBridgeItManages(t *testing.T) {
	w := prepare(t, slow, func(c *config.Config) { c.Bridge.Manage = true })
	w.start()
	w.allocate("a")
	w.stopDaemon()
	w.ns.Exec("ip", "link", "del", "rt0")
	w.spoil("leases")
	_, err := w.rebuild(preview)
	w.refuses("a preview without a bridge", err, "rt0 is missing")
	if got := w.ns.Exec("ip", "-o", "link"); strings.Contains(got, "rt0") {
		t.Errorf("the preview made %s", got)
	}
	if _, err := w.rebuild(); err != nil {
		t.Fatal(err)
	}
	w.start()
	w.give("b", addr(3))
}

// An address that the configuration excludes by now is held outside of its pool. A row of which only the address can be read is an
// operator's to clear: it may be anybody's.
func TestRebuildOfOddRows(t *testing.T) {
	t.Parallel()
	w := newWorld(t, slow)
	for range 4 {
		w.allocate(string(rune('a' + len(w.program.book.InState(ipam.Reserved)))))
	}
	w.stopDaemon()
	w.edit(`PRAGMA ignore_check_constraints = 1; UPDATE leases SET state = 'dreaming' WHERE address = '10.8.64.2';
		DELETE FROM changes WHERE address = '10.8.64.2'`)
	w.cfg.Pools[0].Exclude = []string{addr(3)}
	r, err := w.rebuild()
	if err != nil {
		t.Fatal(err)
	}
	if !explains(r, "dreaming") {
		t.Errorf("it reported %q", r.Unexplained)
	}
	w.start()
	l, _ := w.program.book.At(netip.MustParseAddr(addr(2)))
	if l == nil || l.State != ipam.Quarantined || l.Hold == "" {
		t.Errorf("the row that could not be read is %+v", l)
	}
	if l, _ := w.program.book.At(netip.MustParseAddr(addr(3))); l == nil || l.State != ipam.Quarantined || w.program.book.Outside(l) == "" {
		t.Errorf("what is excluded by now is %+v", l)
	}
	w.give("new", addr(6))
}
