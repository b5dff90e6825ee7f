package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/changelog"
	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/doctest"
	"github.com/ipamd/ipamd/internal/ownertest"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
)

// Every metric is moved on a real world, and equals a recount: of the book's
// file, of the kernel, of the board, of the answers that a client got, and of
// the log.
func TestMetricsEqualARecount(t *testing.T) {
	t.Parallel()
	moved := make(map[string]bool)
	life, trouble := false, false // what was chosen to run
	t.Run("a life", func(t *testing.T) {
		var mu sync.Mutex // of what both versions write
		ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
			own := make(map[string]bool)
			aLife(t, d, own)
			mu.Lock()
			defer mu.Unlock()
			life = true
			maps.Copy(moved, own)
		})
	})
	t.Run("in trouble", func(t *testing.T) {
		trouble = true
		aLifeInTrouble(t, moved)
		aLogThatGrows(t, moved)
		aPoolThatChanges(t, moved)
		rulesThatRefuse(t, moved)
		sleepersThatWake(t, moved)
		slotsThatAreMade(t, moved)
	})
	if t.Failed() || !life || !trouble {
		return
	}
	for _, row := range doctest.Rows(t, "docs/METRICS.md", "| metric | labels | meaning |") {
		if name := strings.Split(row, "`")[1]; !moved[name] {
			t.Errorf("%s was 0 all the time", name)
		}
	}
}

// A teller keeps account of what a client was answered.
type teller struct {
	*world
	calls tally
}

func (s *teller) allocate(r api.AllocateRequest) *api.AllocateReply {
	s.t.Helper()
	reply, err := s.client.Allocate(ctx, r)
	s.calls["allocate_seconds_count"]++
	switch {
	case err != nil:
		s.calls.add("allocations_total", `result="refused"`)
		return nil
	case reply.Existing:
		s.calls.add("allocations_total", `result="existing"`)
	default:
		s.calls.add("allocations_total", `result="new"`)
	}
	for _, skipped := range reply.Skipped {
		s.calls.add("conflicts_total", fmt.Sprintf("witness=%q", skipped.Evidence[0].Witness))
	}
	if reply.EarlyReuse {
		s.calls["early_reuse_total"]++
	}
	return reply
}

// recounted waits until all that can be counted another way is the same.
func (s *teller) recounted(moved map[string]bool) {
	s.t.Helper()
	var wrong []string
	defer func() {
		for _, w := range wrong {
			s.t.Error(w)
		}
	}()
	realtest.Eventually(s.t, wait, "metrics to equal a recount", func() bool {
		got := s.scrapeOf()
		got.note(moved)
		file := s.byFile()
		for name, n := range s.calls { // a conflict is met by a call, or noted
			if strings.HasPrefix(name, "conflicts_total") {
				file[name] += n
			}
		}
		wrong = append(agree(got, file, "addresses", "changes_total", "quarantined_total", "releases_total", "repairs_total", "reaped_total", "conflicts_total"),
			agree(got, s.calls, "allocations_total", "early_reuse_total")...)
		wrong = append(wrong, agree(got, s.byKernel(), "witness_silent")...)
		if sent, seen := s.calls["allocate_seconds_count"], got.sum("request_seconds_count", `verb="allocate"`); sent != seen {
			wrong = append(wrong, fmt.Sprintf("%v allocations were asked for, and %v are counted", sent, seen))
		}
		if a, b := got["book_commit_seconds_count"], got["book_batch_size_count"]; a != b || a == 0 {
			wrong = append(wrong, fmt.Sprintf("%v commits have a time, and %v a size", a, b))
		}
		return len(wrong) == 0
	})
}

// byFile counts in the book's file. The history is as old as the daemon.
func (s *teller) byFile() tally {
	states, changes := s.ofFile()
	out := make(tally)
	taken := 0.0
	for state, n := range states {
		out[fmt.Sprintf(`addresses{family="v4",pool="default",state=%q}`, state)] = n
		taken += n
	}
	// Not the network's own address, nor the broadcast, nor the gateway.
	size := float64(int(1)<<(32-s.program.book.Pools()[0].Prefix.Bits())) - 3
	out[`addresses{family="v4",pool="default",state="free"}`] = size - taken
	out[`pool_size{family="v4",pool="default"}`] = size
	out[`quarantine_cap{family="v4",pool="default"}`] = max(1, float64(int(size*s.cfg.Allocation.QuarantineShare)))
	for _, c := range changes {
		out["revision"] = float64(c.rev)
		out.add("changes_total", fmt.Sprintf("from=%q", c.from), fmt.Sprintf("to=%q", c.to))
		reason := fmt.Sprintf("reason=%q", c.reason)
		switch {
		case c.reason == ipam.ConflictSeen:
			out.add("conflicts_total", `witness="runtime"`) // the only ones here
		case c.to == ipam.Quarantined:
			out.add("quarantined_total", reason)
		case c.to == ipam.Releasing, c.from == ipam.Reserved && c.to == ipam.Free:
			out.add("releases_total", reason)
		case c.from == ipam.Releasing && c.to == ipam.Cooling:
			out["release_seconds_count"]++
		}
		if kind := stepOf(c); kind == "reap" || kind == "expire" {
			out.add("reaped_total", fmt.Sprintf("reason=%q", kind))
		} else if kind != "" {
			out.add("repairs_total", fmt.Sprintf("kind=%q", kind))
		}
	}
	return out
}

// stepOf says by which step of a pass a change came, if by one.
func stepOf(c bookRow) string {
	switch {
	case c.actor == ipam.ByWatchdog && c.from == ipam.Reserved && c.reason == "expired":
		return "expire"
	case c.actor != ipam.ByReconciler:
		return ""
	case c.to == ipam.Quarantined:
		return "quarantine"
	case c.from == ipam.Quarantined && c.to == ipam.Cooling:
		return "clear"
	case c.from == ipam.Reserved && c.to == ipam.Bound, c.from == ipam.Bound && c.to == ipam.Bound && (c.reason == "seen_plugged" || c.reason == "seen_running"):
		return "bind"
	case c.from == ipam.Paused && c.to == ipam.Bound:
		return "resume"
	case c.from != ipam.Bound && c.to == ipam.Bound:
		return "adopt"
	case c.to == ipam.Paused:
		return "pause"
	case c.from == ipam.Bound && c.to == ipam.Releasing:
		return "reap"
	}
	return ""
}

// byKernel counts the ports of the bridge, and who is silent on the board.
func (s *teller) byKernel() tally {
	s.t.Helper()
	links, err := s.ns.Netlink().LinkList()
	if err != nil {
		s.t.Fatal(err)
	}
	out, bridge := tally{"bridge_ports": 0}, 0
	for _, l := range links {
		if l.Attrs().Name == "rt0" {
			bridge = l.Attrs().Index
		}
	}
	for _, l := range links {
		if l.Attrs().MasterIndex == bridge {
			out["bridge_ports"]++
		}
	}
	for _, silent := range s.program.board.Silent() {
		out.add("witness_silent", fmt.Sprintf("witness=%q", silent.Witness))
	}
	return out
}

var logged = regexp.MustCompile(`\brev=(\d+)`)

// agrees waits until the log says what the file does: of every change that ipamd
// or an operator decided there is one line, with its revision, and of no other.
func (s *teller) agrees() {
	s.t.Helper()
	var wrong []string
	defer func() {
		for _, w := range wrong {
			s.t.Error(w)
		}
	}()
	realtest.Eventually(s.t, wait, "the log to agree with the book", func() bool {
		wrong = s.differences()
		return len(wrong) == 0
	})
}

// differences is in what the log differs from the file.
func (s *teller) differences() (wrong []string) {
	s.t.Helper()
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	_, changes := s.ofFile()
	lines := make(map[string]int)
	for line := range strings.Lines(s.log.String()) {
		if rev := logged.FindStringSubmatch(line); rev != nil && strings.Contains(line, " addr=") {
			lines[rev[1]]++
			if !strings.Contains(line, " lease=") || !strings.Contains(line, " reason=") {
				say("a decision without its keys: %s", line)
			}
			if strings.Contains(line, "is quarantined") && !strings.Contains(line, " witness=") {
				say("a quarantine without its witness: %s", line)
			}
		}
	}
	for _, c := range changes {
		rev := fmt.Sprint(c.rev)
		want := 0
		if changelog.Level(ipam.Change{Addr: anyPrefix.Addr(), From: c.from, To: c.to, Who: ipam.Who{Actor: c.actor, Reason: c.reason}}) >= slog.LevelInfo {
			want = 1
		}
		if lines[rev] != want {
			say("revision %s, %s to %s by %s, has %d lines, want %d", rev, c.from, c.to, c.actor, lines[rev], want)
		}
		delete(lines, rev)
	}
	if len(lines) > 0 {
		say("lines of changes that there were not: %v", lines)
	}
	return wrong
}

func aLife(t *testing.T, d *ctrdtest.Daemon, moved map[string]bool) {
	o := ownertest.Start(t)
	w := newWorld(t, withContainerd(d), hasty, owned(o.Socket), pool("10.8.64.0/27"), func(c *config.Config) {
		c.Watchdog.RemoveOrphans = false
		c.Reconcile.LeastReleases, c.Reconcile.MaxReleases = 1, 0.01
		c.Allocation.Quarantine = config.Duration(time.Millisecond)
	})
	s := &teller{world: w, calls: make(tally)}
	for i := range 4 {
		s.allocate(api.AllocateRequest{Sandbox: fmt.Sprint("s", i)})
	}
	s.allocate(api.AllocateRequest{Sandbox: "s0"})
	s.allocate(api.AllocateRequest{Sandbox: "s0", Pool: "no-such"})
	s.recounted(moved)

	// A stranger uses what is next, and no pass has quarantined it before.
	goOn := w.holdPasses()
	stranger := w.ns.Port("rt0", addr(6)+"/27")
	realtest.Eventually(t, wait, "the stranger to be seen", func() bool { return seenBy(w, addr(6), "netns") })
	next := s.allocate(api.AllocateRequest{Sandbox: "s4"})
	goOn()
	if len(next.Skipped) != 1 {
		t.Fatalf("it was given past %+v", next.Skipped)
	}
	s.recounted(moved)

	// One that runs is released while it does.
	o.Set("gone", "s0", "s1", "s2", "s3", "s4", "live", "late")
	live := &box{name: "live", held: s.allocate(api.AllocateRequest{Sandbox: "live"}).Leases[0]}
	live.port = w.ns.Port("rt0", live.held.Address+"/27")
	live.run(w, d)
	w.bind(live.held, "live")
	if _, err := w.client.Release(ctx, live.held.ID, api.ReleaseRequest{}); err != nil {
		t.Fatal(err)
	}
	realtest.Eventually(t, wait, "its blocker to be counted", func() bool {
		got := w.scrapeOf()
		got.note(moved)
		return got[`release_blocked{blocker="container"}`] == 1 && got["release_oldest_seconds"] > 0
	})
	d.Delete(t, "default", "live")
	live.port.Close()
	w.becomes(live.held.Address, api.Cooling)
	realtest.Eventually(t, wait, "nothing to be counted as being released", func() bool {
		got := w.scrapeOf()
		return got.sum("release_blocked") == 0 && got["release_oldest_seconds"] == 0
	})
	s.recounted(moved)

	// One never comes.
	late := s.allocate(api.AllocateRequest{Sandbox: "late", BindWithin: "1ms"}).Leases[0]
	w.passesUntil(late.Address, api.Free)
	s.recounted(moved)

	// A container lives without a lease, and then another one on its address.
	home := w.ns.Port("rt0", addr(20)+"/27")
	d.Run(t, ctrdtest.Spec{ID: "lost", Labels: labels("lost", addr(20)), Netns: home.NS.Path()})
	w.passesUntil(addr(20), api.Bound)
	d.Run(t, ctrdtest.Spec{ID: "twin", Labels: labels("twin", addr(20))})
	realtest.Eventually(t, wait, "a pass to report both", func() bool {
		w.pass()
		got := w.scrapeOf()
		got.note(moved)
		return got[`findings{kind="two_claimants"}`] == 1
	})
	d.Delete(t, "default", "twin")
	stranger.Close()
	w.passesUntil(addr(6), api.Cooling)
	s.recounted(moved)

	// The runtime cannot be read, and passes say so.
	w.loseHomes()
	d.Run(t, ctrdtest.Spec{ID: "odd", Labels: labels("odd", "no address")})
	realtest.Eventually(t, wait, "the runtime to be silent", func() bool { return w.scrapeOf()[`witness_silent{witness="runtime"}`] == 1 })
	before := w.scrapeOf()
	for range 3 {
		w.pass()
	}
	after := w.scrapeOf()
	after.note(moved)
	if n := after[`reconcile_incomplete_total{witness="runtime"}`] - before[`reconcile_incomplete_total{witness="runtime"}`]; n < 3 {
		t.Errorf("of three passes without the runtime %v are counted", n)
	}
	if n := after["reconcile_seconds_count"] - before["reconcile_seconds_count"]; n < 3 {
		t.Errorf("of three passes %v are timed", n)
	}
	s.recounted(moved)
	d.Delete(t, "default", "odd")
	realtest.Eventually(t, wait, "the runtime to answer", func() bool { return w.scrapeOf()[`witness_silent{witness="runtime"}`] == 0 })

	// Three that no witness shows are more than a pass may release; one by one they
	// would go, as the brake allows.
	goOn = w.holdPasses()
	for i := range 3 {
		held, port := s.allocate(api.AllocateRequest{Sandbox: fmt.Sprint("s", i)}).Leases[0], w.ns.Port("rt0")
		if _, err := w.client.Bind(ctx, held.ID, api.BindRequest{HostInterface: port.HostName}); err != nil {
			t.Fatal(err)
		}
		port.Close()
	}
	goOn()
	realtest.Eventually(t, wait, "a pass to hold them, and the metrics to say so", func() bool {
		r, err := w.client.Reconcile(ctx, api.ReconcileRequest{})
		got := w.scrapeOf()
		got.note(moved)
		return err == nil && r.Report.Held != nil && r.Report.Held.Releases == 3 && got["reap_held_total"] > 0 &&
			got["reap_held_releases"] == float64(r.Report.Held.Releases) && got["reap_candidates"] == float64(r.Report.Absent)
	})
	for i := range 3 {
		w.passesUntil(addr(2+i), api.Cooling)
	}
	s.recounted(moved)
	realtest.Eventually(t, wait, "the questions to the owner to be counted, which go on", func() bool {
		before := o.Looks()
		counted := w.scrapeOf().sum("owner_lookups_total", `result="gone"`)
		return float64(before) <= counted && counted <= float64(o.Looks())
	})
	s.agrees()
}

func aLifeInTrouble(t *testing.T, moved map[string]bool) {
	dir, fill, empty := smallDisk(t)
	w := newWorld(t, slow, pool("10.8.64.0/30"), func(c *config.Config) {
		c.Book.Path = filepath.Join(dir, "book.db")
		c.Allocation.Cooldown, c.Allocation.CooldownMin = config.Duration(time.Hour), config.Duration(time.Millisecond)
		c.Probe.Window = config.Duration(time.Hour) // no probe is ever old enough
	})
	s := &teller{world: w, calls: make(tally)}
	if got := w.scrapeOf(); got["ready"] != 1 || got.sum("pool_exhausted") != 0 {
		t.Errorf("a new book, and the metrics say: ready %v, exhausted %v", got["ready"], got.sum("pool_exhausted"))
	}
	bindAndRelease(w, s.allocate(api.AllocateRequest{Sandbox: "a"}).Leases[0])
	realtest.Eventually(t, wait, "cooldown_min", func() bool { return s.allocate(api.AllocateRequest{Sandbox: "b"}) != nil })
	s.recounted(moved)
	if got := w.scrapeOf(); got["unprobed_total"] != got[`allocations_total{result="new"}`] || got["identity_state{state=\"own\"}"] != 1 {
		t.Errorf("none was probed, the book is its own, and the metrics say %v, %v", got["unprobed_total"], got["identity_state{state=\"own\"}"])
	}

	fill()
	realtest.Eventually(t, wait, "the book to be read-only", func() bool {
		_, err := w.client.Cancel(ctx, api.CancelRequest{UID: fmt.Sprint("u", time.Now().UnixNano()), Attempt: 1})
		return errors.Is(err, client.ErrBookReadonly)
	})
	full := w.scrapeOf()
	full.note(moved)
	if full["book_readonly"] != 1 || full["ready"] != 0 {
		t.Errorf("the disk is full: read-only %v, ready %v", full["book_readonly"], full["ready"])
	}
	empty()
	realtest.Eventually(t, wait, "the book to be written again", func() bool { return w.scrapeOf()["book_readonly"] == 0 })

	w.stopDaemon()
	w.edit(`PRAGMA ignore_check_constraints = 1; UPDATE leases SET state = 'dreaming'`)
	w.edited = append(w.edited, netdb.RowsAreReadable, netdb.RowsHaveTheirLast)
	w.cfg.Book.RunnerUID = "somebody-else"
	w.start()
	foreign := w.scrapeOf()
	foreign.note(moved)
	if foreign["unreadable_rows"] != 1 || foreign[`identity_state{state="foreign"}`] != 1 || foreign[`identity_state{state="own"}`] != 0 || foreign["ready"] != 0 {
		t.Errorf("one row is unreadable and the book is another's: %v, %v, ready %v",
			foreign["unreadable_rows"], foreign[`identity_state{state="foreign"}`], foreign["ready"])
	}
	w.stopDaemon() // while its row may be what it is
}

// A pool that is watched leaves a lease outside, and drains.
func aPoolThatChanges(t *testing.T, moved map[string]bool) {
	w := newWorld(t, slow)
	w.give("outside", "10.8.64.2")
	watching, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range w.client.Watch(watching, client.WatchFilter{}) {
		}
	}()
	defer func() { stop(); <-done }()
	made, err := w.client.ApplyPool(ctx, "default", api.PoolRequest{Prefix: "10.8.64.0/24", Exclude: []string{"10.8.64.2"}, Drain: true})
	if err != nil {
		t.Fatal(err)
	}
	gone, err := w.client.ApplyPool(ctx, "gone", api.PoolRequest{Prefix: "10.9.0.0/24", Gateway: "none"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "gone", Pool: "gone"}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.RemovePool(ctx, "gone", client.Removal{UID: gone.Pool.UID, Mode: api.RemoveForce, Reason: "it is not needed"}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.DrainPool(ctx, "default", api.DrainRequest{UID: made.Pool.UID}); err != nil {
		t.Fatal(err)
	}
	realtest.Eventually(t, wait, "the metrics to say so", func() bool {
		got := w.scrapeOf()
		got.note(moved)
		return got.sum("pool_outside") == 1 && got.sum("pool_draining") == 1 && got.sum("pool_generation") == 3 && got["watch_clients"] == 1 && got["withheld_addresses"] == 1
	})
}
