package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/namespaces"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/ownertest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// owned gives the daemon an owner, asks it all the time, and lets it remove
// orphans.
func owned(socket string) func(*config.Config) {
	return func(c *config.Config) {
		c.Owner.Socket = socket
		c.Owner.Every, c.Owner.Grace, c.Owner.Timeout = config.Duration(5*time.Millisecond), config.Duration(time.Millisecond), config.Duration(wait)
		c.Watchdog.RemoveOrphans = true
	}
}

// family makes a sandbox of several containers, which share its port. What a
// container says of itself is its own labels; the lease records them all. pid
// is the last one's.
func (w *world) family(d *ctrdtest.Daemon, name string, members ...ctrdtest.Spec) (b *box, pid int) {
	w.t.Helper()
	b = &box{name: name, held: w.allocate(name).Leases[0]}
	b.port = w.ns.Port("rt0", fmt.Sprintf("%s/%d", b.held.Address, b.held.PrefixLen))
	bind := api.BindRequest{Netns: b.port.NS.Path(), HostInterface: b.port.HostName, MAC: b.port.MAC.String()}
	for _, m := range members {
		m.Netns = b.port.NS.Path()
		if m.Labels["runtime.computer/ip"] != "" {
			m.Labels["runtime.computer/ip"] = b.held.Address
		}
		pid = d.Run(w.t, m)
		bind.Containers = append(bind.Containers, api.Container{Namespace: "default", ID: m.ID})
	}
	if _, err := w.client.Bind(ctx, b.held.ID, bind); err != nil {
		w.t.Fatal(err)
	}
	return b, pid
}

// listener is a shell that writes down every signal it gets, and ends at
// SIGQUIT alone.
func listener() []string {
	return []string{"/bin/sh", "-c", "for s in HUP INT USR1 USR2 ALRM TERM CONT; do trap \"echo $s >> /dev/signals\" $s; done; " +
		"trap 'echo QUIT >> /dev/signals; exit 0' QUIT; : > /dev/signals; while :; do sleep 1; done"}
}

// signals returns what a listener has written down; it can be read after its
// end, too.
func signals(t *testing.T, pid int) (got func() string) {
	t.Helper()
	var f *os.File
	realtest.Eventually(t, wait, "the trap is set", func() bool {
		var err error
		f, err = os.Open(fmt.Sprintf("/proc/%d/root/dev/signals", pid))
		return err == nil
	})
	t.Cleanup(func() { f.Close() })
	return func() string {
		text, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<20))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(strings.Fields(string(text)), " ")
	}
}

// W1, the incident: for 100 readings and more the owner's list omits a sandbox
// that runs. Its owner's word about it alone is "valid", then one that is not
// known, then an error: it keeps lease, address and process, and no signal
// reaches it. Only when that word is "gone" does the same daemon end it, in
// order.
func TestW1ListOmitsARunningSandbox(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		o := ownertest.Start(t, "--lag", "1h")
		o.Set("valid", "bystander")
		w := newWorld(t, withContainerd(d), quick, owned(o.Socket), func(c *config.Config) { c.Watchdog.KillWait = config.Duration(wait) })
		realtest.Eventually(t, wait, "the owner's list to be read", func() bool { return o.Lists() > 0 })
		o.Set("valid", "a") // the list that is answered stays the one without it
		a, pid := w.family(d, "a", ctrdtest.Spec{ID: "a", Labels: labels("a", "its own"), Args: listener()})
		got := signals(t, pid)
		began := started(t, pid)
		bound := w.whois(a.held.Address).Lease.Revision
		for _, word := range []struct{ is, result string }{
			{"valid", "valid"}, {"limbo", "unknown"}, {"", "unknown"},
		} {
			if word.is == "" {
				o.Break()
			} else {
				o.Set(word.is, "a")
			}
			lists, looks := o.Lists(), o.Looks()
			realtest.Eventually(t, 3*wait, "100 readings of the list", func() bool { return o.Lists() >= lists+100 })
			if asked := o.Looks() - looks; asked < 10 {
				t.Errorf("%q: 100 readings without it led to %d questions", word.is, asked)
			}
			if w.metric(`owner_lookups_total{result="`+word.result+`"}`) == "0" {
				t.Errorf("%q: no answer counts as %s", word.is, word.result)
			}
			if who := w.whois(a.held.Address); who.State != api.Bound || who.Lease.ID != a.held.ID || who.Lease.Revision != bound {
				t.Errorf("%q: its lease is %+v, and was bound at revision %d", word.is, who.Lease, bound)
			}
			if started(t, pid) != began || got() != "" {
				t.Errorf("%q: its process began at %s, not at %s, and got the signals %q", word.is, started(t, pid), began, got())
			}
		}
		// What would have been seen: the process writes signals down, and the
		// daemon acts on "gone".
		if err := syscall.Kill(pid, syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		realtest.Eventually(t, wait, "the trap to work", func() bool { return got() == "USR1" })
		o.Set("gone", "a")
		w.becomes(a.held.Address, api.Releasing)
		if got() != "USR1 QUIT" {
			t.Errorf("it was released with the signals %q; witnesses: %+v", got(), w.whois(a.held.Address).Witnesses)
		}
		realtest.Eventually(t, wait, "its container to be gone", func() bool { return !seenBy(w, a.held.Address, "runtime") })
		a.port.Close()
		realtest.Eventually(t, wait, "its lease to end", func() bool { return ends(w, a) == "orphaned, removal_confirmed" })
	})
}

// started is when a process began, in ticks since boot: a pid that is used
// again begins later.
func started(t *testing.T, pid int) string {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.Fields(rest)[19]
}

// W3: no change that makes an address reusable precedes the removal of any
// container of its sandbox. Removals go one after another, each after one that
// fails; some sandboxes are released first, of others only the containers go.
// What is known of a container: all that labels can say, its owner alone, or
// nothing but the lease's record.
func TestW3NothingCoolsBeforeTheLastRemoval(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, seed))
		w := newWorld(t, withContainerd(d), quick, func(c *config.Config) { c.Allocation.Cooldown = config.Duration(time.Hour) })
		var boxes []*box
		ofBox := func(b *box) []string { return []string{b.name + "-reported", b.name + "-owned", b.name + "-silent"} }
		for i := range 8 {
			name := fmt.Sprint("s", i)
			ids := ofBox(&box{name: name})
			b, _ := w.family(d, name,
				ctrdtest.Spec{ID: ids[0], Labels: labels(name, "its own")},
				ctrdtest.Spec{ID: ids[1], Labels: map[string]string{"runtime.computer/entity-id": name}},
				ctrdtest.Spec{ID: ids[2]})
			boxes = append(boxes, b)
		}
		w.watched()
		for i, b := range boxes {
			ids := ofBox(b)
			for _, id := range ids {
				realtest.Eventually(t, wait, id+" to be seen", func() bool { return w.listed(id) })
			}
			released := i%2 == 0
			if released {
				if _, err := w.client.Release(ctx, b.held.ID, api.ReleaseRequest{}); err != nil {
					t.Fatal(err)
				}
			}
			b.port.Close()
			random.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
			gone := ""
			for n, id := range ids {
				w.removalFails(d, id)
				w.stillHeld(b, released, gone, ids[n:])
				if n < len(ids)-1 {
					d.Delete(t, "default", id)
					gone = id
				}
			}
			removed := time.Now() // the last one, at the earliest: what confirms it may be faster than its reply
			d.Delete(t, "default", ids[2])
			w.becomes(b.held.Address, api.Cooling)
			history, err := w.client.History(ctx, client.HistoryFilter{LeaseID: b.held.ID})
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range history.Changes {
				if (c.To == api.Cooling || c.To == api.Free) && c.At.Before(removed) {
					t.Errorf("%s was reusable %v before the removal of %s, its last: %+v", b.held.Address, removed.Sub(c.At), ids[2], c)
				}
			}
		}
	})
}

// removalFails asks containerd for the removal of a record whose task runs,
// which it refuses.
func (w *world) removalFails(d *ctrdtest.Daemon, id string) {
	w.t.Helper()
	there, cancel := context.WithTimeout(namespaces.WithNamespace(ctx, "default"), wait)
	defer cancel()
	c, err := d.Client().LoadContainer(there, id)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := c.Delete(there); err == nil {
		w.t.Fatalf("%s was removed while it ran", id)
	}
}

// listed says whether the daemon knows of a container.
func (w *world) listed(id string) bool {
	for _, s := range w.program.board.By(census.Runtime) {
		if s.Container == id {
			return true
		}
	}
	return false
}

// stillHeld gives the daemon every reason to end a lease too early: it has
// seen the last removal, and it has looked again. The containers that are left
// keep the lease: bound or, when it was released, with one of them named.
func (w *world) stillHeld(b *box, released bool, gone string, left []string) {
	w.t.Helper()
	if gone != "" {
		realtest.Eventually(w.t, wait, gone+" to be missed", func() bool { return !w.listed(gone) })
	}
	if _, err := w.client.Reconcile(ctx, api.ReconcileRequest{}); err != nil {
		w.t.Fatal(err)
	}
	held := func(want api.State) {
		w.t.Helper()
		if who := w.whois(b.held.Address); who.State != want || who.Lease.ID != b.held.ID {
			w.t.Fatalf("with %v there its address is %s: %+v", left, who.State, who.History)
		}
	}
	if !released {
		held(api.Bound)
		return
	}
	realtest.Eventually(w.t, wait, "what is left to be named, and no other", func() bool {
		held(api.Releasing)
		now, err := w.client.Lease(ctx, b.held.ID)
		return err == nil && len(now.Blockers) > 0 && !slices.ContainsFunc(now.Blockers, func(k api.Blocker) bool {
			return !slices.ContainsFunc(left, func(id string) bool { return strings.Contains(k.Detail, id) })
		})
	})
}

// W5 and F8, what keeps and what does not: a look-up that hangs, errs, breaks off,
// is empty or a bare 404, or cannot be understood keeps its sandbox; only a body
// that names it and says that it is gone ends it.
func TestW5F8WhatTheOwnersAnswersMean(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		var hang atomic.Bool  // from now on
		var hung atomic.Int64 // questions without an answer
		keep := map[string]http.HandlerFunc{
			"hangs": func(w http.ResponseWriter, r *http.Request) {
				if !hang.Load() {
					http.Error(w, "not yet", http.StatusInternalServerError)
					return
				}
				hung.Add(1)
				<-r.Context().Done()
			},
			"errs":   func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusInternalServerError) },
			"breaks": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"id":"breaks","sta`) },
			"strange": func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, `{"id":"strange","state":"tired"}`)
			},
			"other":   func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"id":"gone","state":"gone"}`) },
			"missing": http.NotFound,
			"nothing": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
			"empty":   func(http.ResponseWriter, *http.Request) {},
			"null":    func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "null") },
			"object":  func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") },
			"proxy": func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/html")
				_, _ = io.WriteString(w, "<html>gone</html>")
			},
		}
		let := map[string]http.HandlerFunc{
			"gone": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"id":"gone","state":"gone"}`) },
			"ended": func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusNotFound)
				_, _ = io.WriteString(w, `{"id":"ended","state":"gone"}`)
			},
		}
		var lists, valid, gone atomic.Int64 // that were answered
		owner := http.NewServeMux()
		owner.HandleFunc("GET /sandboxes", func(w http.ResponseWriter, _ *http.Request) {
			lists.Add(1)
			_, _ = io.WriteString(w, `[{"id":"bystander","state":"valid"}]`)
		})
		reply := func(answers map[string]http.HandlerFunc, count *atomic.Int64) {
			for name, answer := range answers {
				owner.HandleFunc("GET /sandboxes/"+name, func(w http.ResponseWriter, r *http.Request) {
					count.Add(1)
					answer(w, r)
				})
			}
		}
		reply(keep, &valid)
		reply(let, &gone)
		socket := listen(t, owner)

		w := newWorld(t, withContainerd(d), slow)
		of := make(map[string]*box)
		for _, answers := range []map[string]http.HandlerFunc{keep, let} {
			for name := range answers {
				b := &box{name: name, held: w.allocate(name).Leases[0]}
				d.Create(t, ctrdtest.Spec{ID: name, Labels: labels(name, b.held.Address)})
				if _, err := w.client.Bind(ctx, b.held.ID, api.BindRequest{Containers: []api.Container{{Namespace: "default", ID: name}}}); err != nil {
					t.Fatal(err)
				}
				of[name] = b
			}
		}
		w.stopDaemon()
		owned(socket)(&w.cfg)
		w.start()
		for name := range let {
			w.becomes(of[name].held.Address, api.Cooling)
			// Its container is deleted before its lease is released, and the part that
			// sees that first does so.
			if got := ends(w, of[name]); got != "orphaned, removal_confirmed" && got != "removed, removal_confirmed" {
				t.Errorf("%s ended by: %s", name, got)
			}
		}
		count := func(result string) string { return w.metric(`owner_lookups_total{result="` + result + `"}`) }
		realtest.Eventually(t, wait, "every word that said gone to be counted", func() bool { return count("gone") == fmt.Sprint(gone.Load()) })
		if gone.Load() < int64(len(let)) || count("valid") != "0" || count("unknown") == "0" {
			t.Errorf("%d were answered so; %s said valid, %s nothing", gone.Load(), count("valid"), count("unknown"))
		}
		// One answer that does not come lets the owner rest for a while, so the
		// others come before it.
		w.stopDaemon()
		hang.Store(true)
		w.cfg.Owner.Timeout = config.Duration(50 * time.Millisecond)
		w.start()
		realtest.Eventually(t, wait, "a question that hangs", func() bool { return hung.Load() > 0 })
		before := lists.Load()
		realtest.Eventually(t, wait, "20 more readings", func() bool { return lists.Load() >= before+20 })
		for name := range keep {
			if got := w.state(of[name].held.Address); got != api.Bound || !w.listed(name) {
				t.Errorf("%s is %s", name, got)
			}
		}
		if count("gone") != "0" || count("valid") != "0" || count("unknown") == "0" || valid.Load() < int64(len(keep)) {
			t.Errorf("%s look-ups said gone, %s valid, %s nothing, %d were answered so", count("gone"), count("valid"), count("unknown"), valid.Load())
		}
	})
}

// listen serves on a unix socket until the test ends.
func listen(t *testing.T, h http.Handler) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "owner-") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket = filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return socket
}

// G11: orphans that are too many for an hour are ended on the word of a person who
// names the set that doctor shows, and of no other; and the metric counts as many
// look-ups as the owner was asked.
func TestG11AHeldSetIsConfirmed(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		o := ownertest.Start(t)
		w := newWorld(t, withContainerd(d), slow)
		w.stopDaemon()
		dead := make([]string, 20)
		for i := range dead {
			dead[i] = fmt.Sprint("dead-", i)
		}
		o.Set("gone", dead...)
		o.Set("valid", "bystander")
		for _, name := range append([]string{"u1", "u2", "u3", "bystander"}, dead...) {
			d.Create(t, ctrdtest.Spec{ID: name, Labels: map[string]string{"runtime.computer/entity-id": name}})
		}
		owned(o.Socket)(&w.cfg)
		w.start()
		held := w.finding("orphans_held")
		if held.Count != 23 || len(w.program.board.By(census.Runtime)) != 24 {
			t.Errorf("held: %+v, %d are left", held, len(w.program.board.By(census.Runtime)))
		}
		_, set, _ := strings.Cut(held.Repair, "--confirm-orphans ")
		if _, err := w.client.Reconcile(ctx, api.ReconcileRequest{ConfirmOrphans: set + "0"}); err == nil {
			t.Error("another set was confirmed")
		}
		if _, err := w.client.Reconcile(ctx, api.ReconcileRequest{ConfirmOrphans: set}); err != nil {
			t.Fatal(err)
		}
		realtest.Eventually(t, 6*wait, "all but one to be removed", func() bool {
			return len(w.program.board.By(census.Runtime)) == 1
		})
		if !w.listed("bystander") {
			t.Error("the one that is left is not the valid one")
		}
		lists := o.Lists()
		realtest.Eventually(t, wait, "more readings", func() bool { return o.Lists() >= lists+3 })
		if got := w.metric(`owner_lookups_total{result="gone"}`); got != fmt.Sprint(o.Looks()) || o.Looks()%3 != 0 || o.Looks() > 3*lists {
			t.Errorf("the metric counts %s look-ups, the owner %d in %d lists", got, o.Looks(), lists)
		}
		for _, result := range []string{"valid", "unknown"} {
			if got := w.metric(`owner_lookups_total{result="` + result + `"}`); got != "0" {
				t.Errorf("%s look-ups said %s", got, result)
			}
		}
	})
}

// W10: creates fail at each step, 600 times, and 1 000 times in a soak: at the allocation, at the bind,
// at the container, at its task; the client gives its lease back, or is never
// seen again. What is open, what the loops keep and the file of the book
// return to where they were, and who lives on keeps what it has.
func TestW10FailedCreates(t *testing.T) {
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		const most = 200 // changes in the history
		w := newWorld(t, withContainerd(d), quick, pool("10.8.64.0/25"), func(c *config.Config) {
			c.Book.ChangesKept = most
			c.Reconcile.Age = config.Duration(50 * time.Millisecond)
			c.Reconcile.MaxReleases, c.Probe.Ahead = 1, 4
		})
		keeper := w.box(d, "keeper")
		var goroutines, bytes [2]float64 // the test's own goroutines are among them
		creates := [2]int{400, 200}      // the first fill the history, and have some of it leave
		if hasMinutes() {
			creates = [2]int{500, 500}
		}
		for half := range 2 {
			for n := range creates[half] {
				w.failedCreate(d, fmt.Sprintf("s%d-%d", half, n), n)
			}
			realtest.Eventually(t, 3*wait, "every lease but one to end", func() bool {
				return w.metric(`addresses{family="v4",pool="default",state="reserved"}`) == "0" &&
					w.metric(`addresses{family="v4",pool="default",state="bound"}`) == "1" &&
					w.metric(`addresses{family="v4",pool="default",state="releasing"}`) == "0" &&
					w.metric(`addresses{family="v4",pool="default",state="quarantined"}`) == "0"
			})
			for _, loop := range []string{"reap_candidates", `release_blocked{blocker="container"}`, `release_blocked{blocker="unconfirmed"}`} {
				realtest.Eventually(t, wait, loop+" to be 0", func() bool { return w.metric(loop) == "0" })
			}
			status, err := w.client.Status(ctx)
			if err != nil {
				t.Fatal(err)
			}
			bytes[half] = float64(status.Book.Bytes)
			goroutines[half] = float64(runtime.NumGoroutine())
		}
		t.Logf("the book has %.0f and %.0f bytes, the daemon %.0f and %.0f goroutines", bytes[0], bytes[1], goroutines[0], goroutines[1])
		if bytes[1] > 1.5*bytes[0] {
			t.Errorf("after %d failures the book has %.0f bytes, after %d more %.0f", creates[0], bytes[0], creates[1], bytes[1])
		}
		// Old changes leave a thousand at a time.
		past, err := w.client.History(ctx, client.HistoryFilter{Limit: 10_000})
		if err != nil {
			t.Fatal(err)
		}
		if len(past.Changes) > most+1000 {
			t.Errorf("%d changes are kept", len(past.Changes))
		}
		realtest.Eventually(t, wait, "no goroutine to be left", func() bool {
			return float64(runtime.NumGoroutine()) <= goroutines[0]+20
		})
		if who := w.whois(keeper.held.Address); who.State != api.Bound || who.Lease.ID != keeper.held.ID {
			t.Errorf("who lives on has %+v", who.Lease)
		}
		// The whole pool can be given again, once it has cooled.
		list, err := w.client.Leases(ctx, client.LeaseFilter{})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range list.Leases {
			if l.State != api.Cooling && l.ID != keeper.held.ID {
				t.Errorf("left is %+v", l)
			}
		}
		for n := range 124 {
			realtest.Eventually(t, wait, "an address for every sandbox", func() bool {
				_, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: fmt.Sprint("after-", n)})
				return err == nil
			})
		}
	})
}

// failedCreate makes a sandbox up to a step that fails, another one each time.
// Starting processes is dear, so few get that far.
func (w *world) failedCreate(d *ctrdtest.Daemon, name string, n int) {
	w.t.Helper()
	if n%5 == 0 {
		// The client does not wait for its answer: there is a lease, or none.
		short, cancel := context.WithTimeout(ctx, time.Duration(n)*4*time.Microsecond)
		defer cancel()
		_, _ = w.client.Allocate(short, api.AllocateRequest{Sandbox: name, BindWithin: "50ms"})
		return
	}
	var l api.Lease
	realtest.Eventually(w.t, wait, "an address", func() bool {
		r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: name, BindWithin: "50ms"})
		if err == nil {
			l = r.Leases[0]
		}
		return err == nil
	})
	switch {
	case n%5 == 1: // nothing more comes of it
	case n%5 == 2: // its bind is wrong, and it gives up
		if _, err := w.client.Bind(ctx, l.ID, api.BindRequest{MAC: "none"}); err == nil {
			w.t.Fatal("a wrong bind is taken")
		}
		w.giveBack(l)
	case n%5 == 3: // its container is there under that name already
		d.Create(w.t, ctrdtest.Spec{ID: name, Labels: labels(name, l.Address)})
		there, cancel := context.WithTimeout(namespaces.WithNamespace(ctx, "default"), wait)
		defer cancel()
		if _, err := d.Client().NewContainer(there, name); err == nil {
			w.t.Fatal("a second container of one name is made")
		}
		d.Delete(w.t, "default", name)
		if n%2 == 0 {
			w.giveBack(l)
		}
	default: // its task does not start
		d.Create(w.t, ctrdtest.Spec{ID: name, Labels: labels(name, l.Address), Args: []string{"/bin/missing"}})
		_, _ = w.client.Bind(ctx, l.ID, api.BindRequest{Containers: []api.Container{{Namespace: "default", ID: name}}}) // it may have been bound by a pass
		if n%100 == 4 {
			w.startFails(d, name)
		}
		d.Delete(w.t, "default", name)
		if n%2 == 0 {
			w.giveBack(l)
		}
	}
}

// giveBack releases a lease, which may have ended by itself.
func (w *world) giveBack(l api.Lease) {
	w.t.Helper()
	if _, err := w.client.Release(ctx, l.ID, api.ReleaseRequest{}); err != nil && !errors.Is(err, client.ErrLeaseGone) {
		w.t.Fatal(err)
	}
}

// startFails starts a task whose program is missing.
func (w *world) startFails(d *ctrdtest.Daemon, id string) {
	w.t.Helper()
	there, cancel := context.WithTimeout(namespaces.WithNamespace(ctx, "default"), wait)
	defer cancel()
	c, err := d.Client().LoadContainer(there, id)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := c.NewTask(there, cio.NullIO); err == nil {
		w.t.Fatalf("%s started without a program", id)
	}
}
