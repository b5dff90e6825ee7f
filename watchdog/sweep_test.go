package watchdog_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/ownertest"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/netdb/netdbtest"
	"github.com/ipamd/ipamd/watchdog"
	"github.com/ipamd/ipamd/watchdog/ctrd"
	"github.com/ipamd/ipamd/watchdog/owner"
)

// A notebook is the real runtime with a note of each step that changes
// something, in the order in which it ended, and a chance to interfere before
// one.
type notebook struct {
	watchdog.Runtime
	mu     sync.Mutex
	notes  []string
	before func(step string)
}

func (n *notebook) note(step string, do func() error) error {
	n.mu.Lock()
	before := n.before
	n.mu.Unlock()
	if before != nil {
		before(step)
	}
	err := do()
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		step += " failed"
	}
	n.notes = append(n.notes, step)
	return err
}

func (n *notebook) Signal(ctx context.Context, c watchdog.Container, s syscall.Signal) error {
	return n.note(fmt.Sprintf("%v %s", s, c.ID), func() error { return n.Runtime.Signal(ctx, c, s) })
}

func (n *notebook) DeleteTask(ctx context.Context, c watchdog.Container) error {
	return n.note("task "+c.ID, func() error { return n.Runtime.DeleteTask(ctx, c) })
}

func (n *notebook) Delete(ctx context.Context, c watchdog.Container) error {
	return n.note("record "+c.ID, func() error { return n.Runtime.Delete(ctx, c) })
}

// A noted book is the real book with its releases in the same notebook.
type notedBook struct {
	*netdb.Book
	notes *notebook
}

func (b notedBook) ReleaseAt(ctx context.Context, who netdb.Who, id string, rev int64, unseen func() error) (l *netdb.Lease, err error) {
	of := id
	if l, err := b.Lease(id); err == nil {
		of = l.Sandbox
	}
	err = b.notes.note(fmt.Sprintf("lease of %s (%s, %s)", of, who.Actor, who.Reason), func() error {
		l, err = b.Book.ReleaseAt(ctx, who, id, rev, unseen)
		return err
	})
	return l, err
}

// read returns what was noted since the last call.
func (n *notebook) read() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := n.notes
	n.notes = nil
	return out
}

func (n *notebook) interfere(before func(step string)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.before = before
}

// A broom is a sweeper on a real containerd, a real book, and a real owner in
// a process of its own. Nothing confirms in it: what is let go is releasing.
type broom struct {
	*testing.T
	d     *ctrdtest.Daemon
	o     *ownertest.Owner
	owner *owner.Client
	log   *lines
	cfg   watchdog.SweepConfig
	book  *netdb.Book
	*notebook
	*watchdog.Sweeper
}

// lines counts what is logged.
type lines struct {
	to   io.Writer
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(b)
	return l.to.Write(b)
}

func (l *lines) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), what)
}

func newBroom(t *testing.T, d *ctrdtest.Daemon, o *ownertest.Owner, change ...func(*watchdog.SweepConfig)) *broom {
	t.Helper()
	b := &broom{T: t, d: d, o: o, log: &lines{to: t.Output()}}
	b.o.Set("valid", "somebody") // so that the list is not empty
	var err error
	b.owner, err = owner.New(owner.Config{Socket: b.o.Socket, Timeout: soon})
	b.check(err)
	t.Cleanup(func() { b.owner.Close() })
	board := census.NewBoard(census.Runtime)
	log := slog.New(slog.NewTextHandler(b.log, nil))
	runtime, err := ctrd.New(ctrd.Config{
		Address: d.Address, Namespaces: []string{space}, Timeout: 5 * time.Second, Board: board, Every: time.Hour, Log: log,
		OwnerLabel: "runtime.computer/entity-id", AddressLabel: "runtime.computer/ip", LeaseLabel: "ipamd.dev/lease-id",
	})
	b.check(err)
	t.Cleanup(func() { b.check(runtime.Close()) })
	b.notebook, b.book = &notebook{Runtime: runtime}, netdbtest.Open(t)
	b.cfg = watchdog.SweepConfig{
		Owner: b.owner, Runtime: b.notebook, Book: notedBook{b.book, b.notebook}, Board: board,
		Every: time.Hour, Grace: time.Nanosecond, Parallel: 4,
		Remove: true, KillWait: soon, Timeout: 5 * time.Second, Now: netdb.Now, Log: log,
	}
	for _, c := range change {
		c(&b.cfg)
	}
	b.Sweeper, err = watchdog.NewSweeper(b.cfg)
	b.check(err)
	loop(t, runtime.Run)
	realtest.Eventually(t, soon, "the runtime answers", func() bool { return len(board.Silent()) == 0 })
	return b
}

// loop runs a loop until the test ends, and sees that it ends then.
func loop(t *testing.T, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("asked to stop, a loop returned %v", err)
		}
	})
}

func (b *broom) check(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// lease makes a bound lease of a sandbox with these containers.
func (b *broom) lease(name string, containers ...string) *netdb.Lease {
	b.Helper()
	n := netdb.Binding{HostInterface: "veth-" + name}
	for _, id := range containers {
		n.Containers = append(n.Containers, netdb.Container{Namespace: space, ID: id})
	}
	l, err := b.book.Bind(ctx, client, netdbtest.Reserve(b, b.book, name).ID, n)
	b.check(err)
	return l
}

func labelled(sandbox string) map[string]string {
	return map[string]string{"runtime.computer/entity-id": sandbox}
}

// record makes a container without a task.
func (b *broom) record(sandbox, id string) {
	b.Helper()
	b.d.Create(b, ctrdtest.Spec{Namespace: space, ID: id, Labels: labelled(sandbox)})
}

// trap is a shell that writes down every signal it gets. Then it does what
// afterQuit says, and goes on.
func trap(afterQuit string) []string {
	script := "for s in HUP INT QUIT USR1 USR2 ALRM TERM CONT; do trap \"echo $s >> /dev/signals\" $s; done; " +
		"trap 'echo QUIT >> /dev/signals; " + afterQuit + "' QUIT; : > /dev/signals; while :; do sleep 1; done"
	return []string{"/bin/sh", "-c", script}
}

// run runs a container. signals is what a trap in it has written down; it can
// be read after its end, too.
func (b *broom) run(sandbox, id string, args []string) (pid int, signals func() string) {
	b.Helper()
	pid = b.d.Run(b, ctrdtest.Spec{Namespace: space, ID: id, Labels: labelled(sandbox), Args: args})
	if args == nil {
		return pid, nil
	}
	var f *os.File
	realtest.Eventually(b, soon, "the trap of "+id+" is set", func() (ok bool) {
		var err error
		f, err = os.Open(fmt.Sprintf("/proc/%d/root/dev/signals", pid))
		return err == nil
	})
	b.Cleanup(func() { f.Close() })
	return pid, func() string {
		text, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<20))
		b.check(err)
		return strings.Join(strings.Fields(string(text)), " ")
	}
}

// sweep sweeps twice: the first time everybody is missed for no time yet.
func (b *broom) sweep() *watchdog.Swept {
	b.Helper()
	var swept *watchdog.Swept
	for range 2 {
		var err error
		swept, err = b.Sweep(ctx)
		b.check(err)
	}
	return swept
}

func (b *broom) state(l *netdb.Lease) netdb.State {
	b.Helper()
	l, err := b.book.Lease(l.ID)
	b.check(err)
	return l.State
}

func (b *broom) containers() (ids []string) {
	b.Helper()
	list, err := b.Runtime.List(ctx)
	b.check(err)
	for _, w := range list {
		ids = append(ids, w.ID)
	}
	slices.Sort(ids)
	return ids
}

func (b *broom) wantNotes(want ...string) {
	b.Helper()
	if got := b.read(); !slices.Equal(got, want) {
		b.Errorf("done was\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// W1, the incident: the owner's list omits a sandbox for 100 sweeps while it
// runs, and its look-up says that it is valid. It keeps its lease, and its
// process gets no signal.
func TestW1ListOmitsARunningSandbox(t *testing.T) {
	ctrdtest.Each(t, func(t *testing.T, d *ctrdtest.Daemon) {
		o := ownertest.Start(t, "--lag", "1h")
		b := newBroom(t, d, o)
		_, err := b.owner.List(ctx) // from now on it is the list
		b.check(err)
		o.Set("valid", "a")
		pid, signals := b.run("a", "c1", trap(""))
		l := b.lease("a", "c1")
		asked, kept := 0, 0
		for range 100 {
			swept, err := b.Sweep(ctx)
			b.check(err)
			if len(swept.Orphans) > 0 {
				t.Fatalf("orphans: %+v", swept.Orphans)
			}
			asked, kept = asked+swept.Asked, kept+swept.Kept
		}
		// The answer "valid" begins its grace anew, so every second sweep asks.
		if asked != 50 || kept != 50 || o.Looks() != 50 || o.Lists() != 101 {
			t.Errorf("asked %d times, kept %d times; the owner answered %d look-ups and %d lists", asked, kept, o.Looks(), o.Lists())
		}
		b.wantNotes()
		if now, err := b.book.Lease(l.ID); err != nil || now.Rev != l.Rev || now.State != netdb.Bound {
			t.Errorf("its lease is %+v, %v", now, err)
		}
		// The process lives and writes signals down: it gets this one, and got
		// none before.
		b.check(syscall.Kill(pid, syscall.SIGUSR1))
		realtest.Eventually(t, soon, "the trap works", func() bool { return signals() != "" })
		if got := signals(); got != "USR1" {
			t.Errorf("the process got the signals %s", got)
		}
	})
}

// W5: 500 sandboxes that the list itself calls gone cost no look-up, three
// that it lacks cost three.
func TestW5LookupsAreCounted(t *testing.T) {
	ctrdtest.Each(t, func(t *testing.T, d *ctrdtest.Daemon) {
		o := ownertest.Start(t)
		b := newBroom(t, d, o, func(c *watchdog.SweepConfig) { c.Remove = false })
		var dead []string
		for i := range 500 {
			dead = append(dead, fmt.Sprintf("dead-%d", i))
		}
		for _, name := range append([]string{"u1", "u2", "u3", "somebody"}, dead...) {
			b.record(name, name)
		}
		o.Set("gone", dead...)
		swept := b.sweep()
		listed := 0
		for _, one := range swept.Orphans {
			if one.Listed {
				listed++
			}
		}
		if len(swept.Orphans) != 503 || listed != 500 || swept.Asked != 3 || swept.Sandboxes != 504 || swept.Listed != 501 {
			t.Errorf("%d orphans, %d of them listed, in %d sandboxes and %d rows; asked about %d",
				len(swept.Orphans), listed, swept.Sandboxes, swept.Listed, swept.Asked)
		}
		if o.Looks() != 3 || o.Lists() != 2 {
			t.Errorf("the owner answered %d look-ups and %d lists", o.Looks(), o.Lists())
		}
		b.wantNotes()
	})
}

// W5: an owner that cannot tell keeps its sandboxes; that is told once.
func TestW5UnknownKeeps(t *testing.T) {
	d := ctrdtest.Start(t, ctrdtest.V2)
	o := ownertest.Start(t, "--lag", "1h")
	b := newBroom(t, d, o)
	_, err := b.owner.List(ctx)
	b.check(err)
	b.record("a", "c1")
	l := b.lease("a", "c1")
	o.Set("limbo", "a")
	for range 3 {
		if swept := b.sweep(); swept.Kept != 1 || len(swept.Orphans) != 0 {
			t.Errorf("swept: %+v", swept)
		}
	}
	o.Break()
	for range 3 {
		if swept := b.sweep(); swept.Kept != 1 || len(swept.Orphans) != 0 {
			t.Errorf("swept: %+v", swept)
		}
	}
	if n := b.log.count("no clear word"); n != 2 {
		t.Errorf("two reasons were logged %d times", n)
	}
	b.wantNotes()
	o.Set("gone", "a") // by look-up: the list still lacks it
	if swept := b.sweep(); len(swept.Orphans) != 0 {
		t.Errorf("after the removal there are %+v", swept.Orphans)
	}
	b.wantNotes("task c1", "record c1", "lease of a (watchdog, orphaned)")
	if b.state(l) != netdb.Releasing || len(b.containers()) != 0 {
		t.Errorf("its lease is %s, containers %v", b.state(l), b.containers())
	}
}

// An owner that lists nobody at all has lost its memory; one that cannot list
// is not asked about anybody.
func TestAnEmptyListIsAnAlarm(t *testing.T) {
	d := ctrdtest.Start(t, ctrdtest.V2)
	o := ownertest.Start(t)
	b := newBroom(t, d, o)
	o.Forget("somebody")
	if swept, err := b.Sweep(ctx); err != nil || len(swept.Orphans) != 0 {
		t.Fatalf("nobody lists nobody: %+v, %v", swept, err)
	}
	b.record("a", "c1")
	o.Set("gone", "a")
	b.sweep() // removed
	b.read()
	b.record("a", "c2")
	b.record("b", "c3")
	o.Forget("a")
	for range 3 {
		if swept, err := b.Sweep(ctx); !errors.Is(err, watchdog.ErrEmptyList) || swept != nil {
			t.Errorf("swept %+v, %v", swept, err)
		}
	}
	if left, err := b.Orphans(); len(left) != 0 || !errors.Is(err, watchdog.ErrEmptyList) {
		t.Errorf("orphans %+v, %v", left, err)
	}
	if n := b.log.count("not looked for"); n != 1 {
		t.Errorf("it was logged %d times", n)
	}
	o.Break()
	for range 3 {
		if _, err := b.Sweep(ctx); err == nil || errors.Is(err, watchdog.ErrEmptyList) {
			t.Errorf("a broken owner: %v", err)
		}
	}
	if n := b.log.count("not looked for"); n != 2 || o.Looks() != 0 {
		t.Errorf("logged %d times; %d look-ups", n, o.Looks())
	}
	b.wantNotes()
	o.Set("valid", "a", "b")
	b.sweep()
	if left, err := b.Orphans(); len(left) != 0 || err != nil {
		t.Errorf("orphans %+v, %v", left, err)
	}
}

// Without Remove an orphan is told, with what it has and since when, and
// nothing moves.
func TestOrphansAreOnlyTold(t *testing.T) {
	d := ctrdtest.Start(t, ctrdtest.V2)
	o := ownertest.Start(t)
	b := newBroom(t, d, o, func(c *watchdog.SweepConfig) { c.Remove = false })
	began := time.Now()
	_, signals := b.run("a", "c2", trap(""))
	b.record("a", "c1")
	l := b.lease("a", "c1", "c2")
	for range 3 {
		b.sweep()
	}
	left, err := b.Orphans()
	b.check(err)
	if len(left) != 1 || left[0].Sandbox != "a" || fmt.Sprint(left[0].Containers) != "["+space+"/c1 "+space+"/c2]" ||
		!slices.Equal(left[0].Leases, []string{l.ID}) || left[0].Removed || left[0].Err != nil || left[0].Since.Before(began) {
		t.Errorf("orphans %+v", left)
	}
	if says := left[0].Detail(); !strings.Contains(says, space+"/c2") {
		t.Errorf("it says %q", says)
	}
	b.wantNotes()
	if n := b.log.count("orphan found"); n != 1 || b.state(l) != netdb.Bound || signals() != "" {
		t.Errorf("logged %d times, lease %s, signals %q", n, b.state(l), signals())
	}
	o.Set("valid", "a")
	b.sweep()
	if left, err := b.Orphans(); len(left) != 0 || err != nil {
		t.Errorf("after a mistake was mended: %+v, %v", left, err)
	}
}
