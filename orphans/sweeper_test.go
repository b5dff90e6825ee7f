package orphans_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/ownertest"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/netdb/netdbtest"
	"github.com/ipamd/ipamd/orphans"
	"github.com/ipamd/ipamd/watchdog"
	"github.com/ipamd/ipamd/watchdog/ctrd"
	"github.com/ipamd/ipamd/watchdog/owner"
)

const (
	space = "sandboxes" // the containerd namespace
	soon  = time.Minute // longer than anything takes on a machine that stands still now and then
)

var (
	ctx    = context.Background()
	client = netdbtest.Who(ipam.ByClient, "released")
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

func (b notedBook) ReleaseAt(ctx context.Context, who ipam.Who, id string, rev int64, unseen func() error) (l *ipam.Lease, err error) {
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

// A scene is a sweeper on a real containerd, a real book, and a real owner in
// a process of its own. Nothing confirms in it: what is released is releasing.
type scene struct {
	*testing.T
	d     *ctrdtest.Daemon
	o     *ownertest.Owner
	owner *owner.Client
	log   *lines
	cfg   orphans.Config
	book  *netdb.Book
	given atomic.Bool // its leases were answered to their owners, who have not bound them yet
	*notebook
	*orphans.Sweeper
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

func newScene(t *testing.T, d *ctrdtest.Daemon, o *ownertest.Owner, change ...func(*orphans.Config)) *scene {
	t.Helper()
	b := &scene{T: t, d: d, o: o, log: &lines{to: t.Output()}}
	b.o.Set("valid", "bystander") // so that the list is not empty
	var err error
	b.owner, err = owner.New(owner.Config{Socket: b.o.Socket, Timeout: soon})
	b.check(err)
	t.Cleanup(func() { b.owner.Close() })
	board := census.NewBoard(census.Runtime)
	log := slog.New(slog.NewTextHandler(b.log, nil))
	runtime, err := ctrd.New(ctrd.Config{
		Address: d.Address, Namespaces: []string{space}, Timeout: soon, Board: board, Every: time.Hour, Log: log,
		OwnerLabel: "runtime.computer/entity-id", AddressLabel: "runtime.computer/ip", LeaseLabel: "ipamd.dev/lease-id",
	})
	b.check(err)
	t.Cleanup(func() { b.check(runtime.Close()) })
	b.notebook, b.book = &notebook{Runtime: runtime}, netdbtest.Open(t)
	b.cfg = orphans.Config{
		Owner: b.owner, Runtime: b.notebook, Book: notedBook{b.book, b.notebook}, Board: board, Awaited: func(string) bool { return b.given.Load() },
		Every: time.Hour, Grace: time.Nanosecond, Parallel: 4,
		Remove: true, KillWait: soon, Timeout: soon, Now: ipam.Now, Log: log,
	}
	for _, c := range change {
		c(&b.cfg)
	}
	b.Sweeper, err = orphans.New(b.cfg)
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

func (b *scene) check(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// lease makes a bound lease of a sandbox with these containers.
func (b *scene) lease(name string, containers ...string) *ipam.Lease {
	b.Helper()
	n := ipam.Binding{HostInterface: ("veth-" + name)[:min(15, len("veth-"+name))]}
	for _, id := range containers {
		n.Containers = append(n.Containers, ipam.Container{Namespace: space, ID: id})
	}
	l, err := b.book.Bind(ctx, client, netdbtest.Reserve(b, b.book, name).ID, 0, n)
	b.check(err)
	return l
}

func labelled(sandbox string) map[string]string {
	return map[string]string{"runtime.computer/entity-id": sandbox}
}

// record makes a container without a task, and returns when the board shows it:
// whether a removal begins with signals depends on that.
func (b *scene) record(sandbox, id string) {
	b.Helper()
	b.d.Create(b, ctrdtest.Spec{Namespace: space, ID: id, Labels: labelled(sandbox)})
	b.shown(id, "")
}

// shown waits until the board shows a container with its task in a state.
func (b *scene) shown(id, task string) {
	b.Helper()
	realtest.Eventually(b, soon, "the board shows "+id+", task "+task, func() bool {
		return slices.ContainsFunc(b.cfg.Board.By(census.Runtime), func(s census.Sighting) bool {
			return s.Container == id && s.Task == task && s.Note == ""
		})
	})
}

// trap is a shell that writes down every signal it gets. Then it does what
// afterQuit says, and goes on.
func trap(afterQuit string) []string {
	script := "for s in HUP INT QUIT USR1 USR2 ALRM TERM CONT; do trap \"echo $s >> /dev/signals\" $s; done; " +
		"trap 'echo QUIT >> /dev/signals; " + afterQuit + "' QUIT; : > /dev/signals; while :; do sleep 1; done"
	return []string{"/bin/sh", "-c", script}
}

// run runs a container, and returns when the board shows that it runs. signals
// is what a trap in it has written down; it can be read after its end, too.
func (b *scene) run(sandbox, id string, args []string) (pid int, signals func() string) {
	b.Helper()
	pid = b.d.Run(b, ctrdtest.Spec{Namespace: space, ID: id, Labels: labelled(sandbox), Args: args})
	b.shown(id, "running")
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

// sweep sweeps twice: the first time all are missed for no time yet.
func (b *scene) sweep() *orphans.Swept {
	b.Helper()
	b.sweepOnce()
	return b.sweepOnce()
}

func (b *scene) sweepOnce() *orphans.Swept {
	b.Helper()
	swept, err := b.Sweep(ctx)
	b.check(err)
	return swept
}

func (b *scene) state(l *ipam.Lease) ipam.State {
	b.Helper()
	l, err := b.book.Lease(l.ID)
	b.check(err)
	return l.State
}

func (b *scene) containers() (ids []string) {
	b.Helper()
	list, err := b.Runtime.List(ctx)
	b.check(err)
	for _, w := range list {
		ids = append(ids, w.ID)
	}
	slices.Sort(ids)
	return ids
}

func (b *scene) wantNotes(want ...string) {
	b.Helper()
	if got := b.read(); !slices.Equal(got, want) {
		b.Errorf("done was\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}
