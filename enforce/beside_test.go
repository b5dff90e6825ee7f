package enforce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/nft"
)

// A slow one can have its next reader of the ports wait with what it read, and its book may
// take a while to be read.
type slow struct {
	mu sync.Mutex
	one
	takes   time.Duration
	reached chan struct{} // nil: no reader waits
	goOn    chan struct{}
	changed chan struct{}
}

func (w *slow) Ports() []Port {
	w.mu.Lock()
	out, reached := slices.Clone(w.ports), w.reached
	w.reached = nil
	w.mu.Unlock()
	if reached != nil {
		close(reached)
		<-w.goOn
	}
	return out
}

func (w *slow) Leases() ([]*ipam.Lease, int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	time.Sleep(w.takes)
	return slices.Clone(w.leases), w.Rev()
}

func (w *slow) Changed() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changed
}

func (w *slow) plug(p Port) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ports = append(w.ports, p)
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *slow) keeper(t *testing.T) (k *Keeper, other *nft.Conn) {
	t.Helper()
	w.changed = make(chan struct{})
	var err, otherErr error
	nstest.New(t).Do(func() {
		k, err = Open(t.Context(), Config{Policy: Policy{Mode: Enforce}, Book: w, Kernel: w, Boot: "boot", Every: time.Hour, Log: slog.New(slog.DiscardHandler)})
		other, otherErr = nft.Open()
	})
	if err != nil || otherErr != nil {
		t.Fatal(err, otherErr)
	}
	t.Cleanup(func() { _ = k.Close(); _ = other.Close() })
	if err := k.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return k, other
}

// TestE3AnEarlierReadingUndoesNoBind: a comparison that read the ports before a bind was
// answered, and ends after it, takes none of its rules away; and of a port that is gone by
// a later reading none come back.
func TestE3AnEarlierReadingUndoesNoBind(t *testing.T) {
	t.Parallel()
	w := &slow{goOn: make(chan struct{})}
	k, _ := w.keeper(t)
	w.bind("a")
	port := w.ports[0]
	w.ports = nil
	reached := make(chan struct{})
	w.reached = reached
	compared := make(chan error)
	go func() { compared <- k.follow(t.Context()) }()
	<-reached // the comparison has the lease, and the ports of before
	w.plug(port)
	if err := k.Ensure(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	close(w.goOn)
	if err := <-compared; err != nil {
		t.Fatal(err)
	}
	if at := k.grants["a"]; len(at) != 1 || at[0].Port != port.Index {
		t.Errorf("the bind is answered, and the lease has the rules %+v", at)
	}
	if differ, err := k.differences(t.Context()); err != nil || len(differ) > 0 {
		t.Errorf("%v %v", differ, err)
	}
	w.leases[0].Rev++ // as a comparison that began before a later one ends behind it
	early := k.readings.Add(1)
	w.ports = nil
	if err := k.follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	k.mu.Lock()
	_ = k.change(t.Context(), func() { k.set(w.leases[0], place{ports: []int{port.Index}}, early) })
	k.mu.Unlock()
	if at := k.grants["a"]; len(at) != 1 || at[0].Port != 0 {
		t.Errorf("the port is gone, and the lease has the rules %+v", at)
	}
}

// TestE3AnEarlierReadingGivesNoPortBack: a lease that is bound by its namespace alone had a port, and by a later reading none leads
// there. A comparison that read the ports before that, and ends after it, does not give it the port again; one that begins then does.
func TestE3AnEarlierReadingGivesNoPortBack(t *testing.T) {
	t.Parallel()
	d := newDesired(Policy{Mode: Enforce})
	l := &ipam.Lease{ID: "a", Addr: netip.MustParseAddr("10.8.0.2"), State: ipam.Bound, Rev: 7, Netns: "/ns", Plug: ipam.Plug{Boot: "boot", Inode: 7}}
	all, led, none := []*ipam.Lease{l}, map[string]place{"a": {ports: []int{70_000}}}, map[string]place{}
	step := func(what string, do func(), want int) {
		t.Helper()
		if do(); len(portsOf(d.grants["a"])) != want {
			t.Errorf("%s: it has the rules %+v", what, d.grants["a"])
		}
	}
	d.takePorts([]Port{{Index: 70_000, Name: "veth", Bridge: "rt0"}})
	step("a port leads there", func() { d.compare(all, 7, led, 1) }, 1)
	step("a bind's later reading finds none", func() { d.set(l, place{}, 3) }, 0)
	step("the earlier comparison ends", func() { d.compare(all, 7, led, 2) }, 0)
	step("a comparison does not learn it", func() { d.compare(all, 7, map[string]place{"a": {err: context.DeadlineExceeded}}, 5) }, 0)
	step("one that began before it does", func() { d.compare(all, 7, led, 4) }, 1)
	step("the next one finds none", func() { d.compare(all, 7, none, 6) }, 0)
	renewed := *l
	renewed.Rev = 8
	step("an earlier reading, of the lease as it is since", func() { d.set(&renewed, led["a"], 5) }, 1)
	step("it has ended", func() { d.compare(nil, 9, none, 7) }, 0)
	if len(d.revs) > 0 || len(d.read) > 0 {
		t.Errorf("nothing is left but %v and %v", d.revs, d.read)
	}
	step("one that had none ends, too", func() { d.compare(all, 7, none, 8); d.compare(nil, 9, none, 9) }, 0)
	if len(d.revs) > 0 || len(d.read) > 0 {
		t.Errorf("nothing is left but %v and %v", d.revs, d.read)
	}
}

// TestE4NewsEndThePause: where a comparison takes long, so that the next waits nine times as
// long, a new port is judged, and what another program did is undone, all the same at once.
func TestE4NewsEndThePause(t *testing.T) {
	t.Parallel()
	const comparison = 4 * time.Second // 36 s of pause
	w := &slow{}
	k, other := w.keeper(t)
	w.takes = comparison
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = k.Run(ctx) })
	running.Go(func() { _ = k.Listen(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	within := func(what string, done func() bool) {
		t.Helper()
		began := time.Now()
		for ; !done(); time.Sleep(5 * time.Millisecond) {
			if time.Since(began) > 3*comparison {
				t.Fatalf("%s: not within %v", what, 3*comparison)
			}
		}
		t.Logf("%s: after %v", what, time.Since(began))
	}
	there := func() *nft.Table {
		have, err := other.Read(t.Context(), frame(k.cfg.Policy))
		if err != nil {
			t.Fatal(err)
		}
		return have
	}
	time.Sleep(comparison + 500*time.Millisecond) // it is over
	for i := range 3 {
		if err := other.Remove(t.Context(), nft.Bridge, TableName); err != nil {
			t.Fatal(err)
		}
		within("the table is made again", func() bool { return there() != nil })
		w.plug(Port{Index: 4711 + i, Name: fmt.Sprint("new", i), Bridge: "rt0"})
		within("the new port is judged", func() bool {
			have := there()
			return have != nil && len(have.Set(setUnleased).Elements) == i+1
		})
	}
	if s := k.Status(); s.Repairs != 3 || s.Foreign != 3 {
		t.Errorf("%d changes and %d repairs are counted", s.Foreign, s.Repairs)
	}
}

// A blocked one has a reader of the kernel's news wait, or fail.
type blocked struct {
	slow
	rev     int64
	reached chan struct{} // nil: none waits
	goOn    chan struct{}
	unread  error
	there   bool  // the port of any lease, to the kernel
	into    error // of looking which ports lead into a namespace
	behind  []int // these do
	beside  []int // and these, of a bridge that is not open
	silent  int   // so many looks take too long
}

func (w *blocked) PortsInto(_ context.Context, of ...RecordedNetns) []Into {
	out := make([]Into, len(of))
	for i := range of {
		out[i] = Into{Ports: w.behind, Unopened: w.beside, Err: w.into}
		if w.silent > 0 {
			out[i] = Into{Err: context.DeadlineExceeded}
		}
	}
	w.silent = max(0, w.silent-1)
	return out
}

func (w *blocked) IsPort(context.Context, string, int) (bool, error) { return w.there, nil }

func (w *blocked) Rev() int64                     { return w.rev }
func (w *blocked) Leases() ([]*ipam.Lease, int64) { return slices.Clone(w.leases), w.rev }

func (w *blocked) Settle(context.Context, ...netip.Addr) error {
	if w.reached != nil {
		close(w.reached)
		w.reached = nil
		<-w.goOn
	}
	return w.unread
}

func (w *blocked) keeper(t *testing.T) *Keeper {
	k, _ := w.slow.keeper(t)
	k.cfg.Book, k.cfg.Kernel = w, w
	return k
}

// TestE3NoBindIsBehindTheEnd: a bind that is asked for again, for its answer was lost, waits for
// the kernel's news while the lease is released and confirmed. What it read of the book before
// that gives the port nothing back.
func TestE3NoBindIsBehindTheEnd(t *testing.T) {
	t.Parallel()
	w := &blocked{rev: 1, goOn: make(chan struct{})}
	k := w.keeper(t)
	w.bind("a")
	if err := k.follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	reached := make(chan struct{})
	w.reached = reached
	answered := make(chan error)
	go func() { answered <- k.Ensure(t.Context(), "a") }()
	<-reached
	released := *w.leases[0]
	released.State, released.Rev = ipam.Releasing, 2
	w.leases[0], w.rev = &released, 2
	if err := k.Withdraw(t.Context(), "a", 2); err != nil {
		t.Fatal(err)
	}
	cools := released
	cools.State, cools.Rev = ipam.Cooling, 3
	w.leases[0], w.rev = &cools, 3
	if err := k.Ensure(t.Context(), "a"); !errors.Is(err, ipam.ErrState) {
		t.Errorf("its address cools, and it is bound: %v", err)
	}
	w.leases = nil
	if err := k.follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(w.goOn)
	if err := <-answered; !errors.Is(err, ipam.ErrNotFound) {
		t.Errorf("the bind is answered by %v", err)
	}
	if at := k.grants["a"]; len(at) > 0 {
		t.Errorf("the address cools, and has the rules %+v", at)
	}
	if differ, err := k.differences(t.Context()); err != nil || len(differ) > 0 {
		t.Errorf("%v %v", differ, err)
	}
}

// TestE3ABindWhosePortCouldNotBeLookedFor: the port is there, and was not read yet, and the
// kernel's news cannot be: the bind is not answered as if its rules held. A bind to a port that does not
// exist yet is, whatever else could not be read.
func TestE3ABindWhosePortCouldNotBeLookedFor(t *testing.T) {
	t.Parallel()
	w := &blocked{rev: 1, unread: errors.New("too many open files")}
	k := w.keeper(t)
	w.bind("a")
	port := w.ports
	w.ports = nil
	if err := k.Ensure(t.Context(), "a"); err != nil {
		t.Errorf("there is no port: %v", err)
	}
	w.there = true
	if err := k.Ensure(t.Context(), "a"); !errors.Is(err, ErrNotHeld) || !errors.Is(err, w.unread) {
		t.Errorf("the bind is answered by %v, with the rules %+v", err, k.grants["a"])
	}
	w.ports = port
	if err := k.Ensure(t.Context(), "a"); err != nil {
		t.Errorf("its port is known: %v", err)
	}
	inside := *w.leases[0]
	inside.Rev, inside.HostInterface, inside.Netns, inside.Plug = 2, "", "/ns", ipam.Plug{Boot: "boot", Inode: 7}
	w.leases[0], w.unread, w.into = &inside, nil, errors.New("it takes too long")
	if err := k.Ensure(t.Context(), "a"); !errors.Is(err, ErrNotHeld) || !errors.Is(err, w.into) {
		t.Errorf("its namespace could not be looked at: %v", err)
	}
	w.into = nil
	if err := k.Ensure(t.Context(), "a"); err != nil || len(k.grants["a"]) != 0 {
		t.Errorf("no port leads into its namespace: %v, with the rules %+v", err, k.grants["a"])
	}
	w.beside = []int{99} // the sandbox has an interface on a bridge that another process has too
	if err := k.Ensure(t.Context(), "a"); err != nil || len(k.grants["a"]) != 0 {
		t.Errorf("a port of another pool's bridge leads there: %v, with the rules %+v", err, k.grants["a"])
	}
	w.unread = errors.New("another process has its bridge")
	if err := k.Ensure(t.Context(), "a"); !errors.Is(err, ErrNotHeld) || !errors.Is(err, w.unread) {
		t.Errorf("the port of its own bridge cannot be looked after: %v", err)
	}
}

// TestE3ABusyKernelTakesNoRules: a lease is bound by its namespace alone, and the kernel does not say in time which port
// leads there. Its sandbox keeps the rules that it has, also those of an earlier process, until the kernel says that no port does.
func TestE3ABusyKernelTakesNoRules(t *testing.T) {
	t.Parallel()
	w := &blocked{rev: 1, silent: firstTries - 1}
	k := w.keeper(t)
	w.bind("a")
	inside := *w.leases[0]
	inside.HostInterface, inside.Netns, inside.Plug = "", "/ns", ipam.Plug{Boot: "boot", Inode: 7}
	w.leases[0], w.behind = &inside, []int{w.ports[0].Index}
	has := func(what string, want int) {
		t.Helper()
		if len(k.grants["a"]) != want {
			t.Fatalf("%s it has the rules %+v", what, k.grants["a"])
		}
	}
	k.made, k.held = false, false // the table that there is was made by another process
	if err := k.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	has("after the start", 1)
	for range 2 {
		w.silent = 1
		if err := k.follow(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("that the kernel did not say where it is: %v", err)
		}
		has("while the kernel is busy", 1)
		renewed := *w.leases[0]
		renewed.Rev++
		w.leases[0] = &renewed
	}
	w.silent = 1
	if err := k.Ensure(t.Context(), "a"); err != nil {
		t.Log(err) // the second look may say it
	}
	has("after a bind while the kernel is busy", 1)
	w.behind = nil
	if err := k.follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	has("when no port leads there", 0)
	w.behind = []int{w.ports[0].Index}
	if err := k.follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.ports, w.silent = nil, 1
	_ = k.follow(t.Context())
	has("when its port is gone", 0)
}

// TestE3ABindWhosePortIsAnothersIsRefused: a lease is bound to a name, and the link that has it is
// recorded by another sandbox's lease alone, which is releasing. The bind is not answered as if its
// rules held, and is once that lease has ended.
func TestE3ABindWhosePortIsAnothersIsRefused(t *testing.T) {
	t.Parallel()
	w := &blocked{rev: 1}
	k := w.keeper(t)
	w.bind("a")
	l := *w.leases[0]
	l.ID, l.UID, l.Sandbox, l.Addr = "b", "b-1", "b", netip.MustParseAddr("10.8.0.9")
	of := w.leases[0]
	of.State, of.UID, of.Sandbox, of.Plug = ipam.Releasing, "a-1", "a", ipam.Plug{Boot: "boot", Index: w.ports[0].Index}
	w.leases = append(w.leases, &l)
	if err := k.Ensure(t.Context(), "b"); !errors.Is(err, ErrNotHeld) || !strings.Contains(err.Error(), "port a is that of sandbox a, lease a, which is releasing") {
		t.Errorf("the bind is answered by %v, with the rules %+v", err, k.grants["b"])
	}
	w.leases, w.rev = w.leases[1:], 2
	if err := k.Ensure(t.Context(), "b"); err != nil || len(k.grants["b"]) != 1 || k.grants["b"][0].Port != w.ports[0].Index {
		t.Errorf("the other has ended: %v, with the rules %+v", err, k.grants["b"])
	}
}

// TestE8ABindTakesAPortOver: a lease records a link, and so does that of another sandbox since. Once the bind
// is answered the port is the later one's alone; the earlier has it again when the later has ended, and a
// bind of it before that is not answered as if its rules held.
func TestE8ABindTakesAPortOver(t *testing.T) {
	t.Parallel()
	w := &blocked{rev: 1}
	k := w.keeper(t)
	w.bind("a")
	early := w.leases[0]
	early.UID, early.Sandbox, early.Plug = "a-1", "a", ipam.Plug{Boot: "boot", Index: w.ports[0].Index, At: 1}
	late := *early
	late.ID, late.UID, late.Sandbox, late.Addr, late.Plug.At = "b", "b-1", "b", netip.MustParseAddr("10.8.0.9"), 2
	port := func(id string) int { return k.grants[id][0].Port }
	ensure := func(id string) {
		t.Helper()
		if err := k.Ensure(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if differ, err := k.differences(t.Context()); err != nil || len(differ) > 0 {
			t.Errorf("%v %v", differ, err)
		}
	}
	ensure("a")
	w.leases = append(w.leases, &late)
	ensure("b")
	if port("b") != w.ports[0].Index || port("a") != 0 {
		t.Errorf("the bind is answered, and a has port %d, b %d", port("a"), port("b"))
	}
	if err := k.Ensure(t.Context(), "a"); !errors.Is(err, ErrNotHeld) || !strings.Contains(err.Error(), "port a is that of sandbox b, lease b, which is bound") {
		t.Errorf("the earlier one's bind is answered by %v", err)
	}
	if port("b") != w.ports[0].Index || port("a") != 0 {
		t.Errorf("the earlier one is bound again, and a has port %d, b %d", port("a"), port("b"))
	}
	w.leases, w.rev = w.leases[:1], 2
	if err := k.follow(t.Context()); err != nil || port("a") != w.ports[0].Index {
		t.Errorf("the later has ended: %v, and a has port %d", err, port("a"))
	}
}
