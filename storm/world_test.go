package storm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
)

// patience bounds each wait. It is far beyond what two busy cores and a slow
// disk need.
const patience = 3 * time.Minute

// callTime bounds one call: long enough for a daemon that is busy, short
// enough to meet the one that was started meanwhile.
const callTime = 10 * time.Second

// The pool is walked several times in a storm, so addresses are used again.
var poolPrefix = netip.MustParsePrefix("10.8.0.0/23")

const (
	bindWithin  = 5 * time.Second
	cooldown    = 3 * time.Second
	cooldownMin = time.Second

	ownerTimeout = 500 * time.Millisecond
	ownerGrace   = time.Second
)

// configuration is the defaults but for where things are and how long they
// last: an address has to live many lives in a minute.
const configuration = `
[book]
path = '%[1]s/state/book.db'
[socket]
path = '%[1]s/sock'
mode = '0666'
group = ''
runtime_uids = [%[7]d]
[bridge]
refresh = '2s'
netns = ['%[1]s/netns', '%[1]s/stuck']
[[pool]]
name = 'default'
prefix = '%[3]s'
[allocation]
cooldown = '%[5]s'
cooldown_min = '%[6]s'
bind_within = '%[4]s'
quarantine = '1s'
tombstone = '10s'
[runtime]
address = '%[2]s'
[watchdog]
releasing_max = '5s'
remove_orphans = true
kill_wait = '1s'
[owner]
socket = '%[1]s/owner/sock'
timeout = '%[8]s'
every = '500ms'
grace = '%[9]s'
[reconcile]
every = '1s'
age = '3s'
[enforce]
mode = 'enforce'
[log]
format = 'text'
`

// A world is the runner and all that runs on it.
type world struct {
	t        *testing.T
	dir      string
	ns       *nstest.NS // where rt0 is
	bridge   int        // rt0's index
	spaces   spaces
	ports    atomic.Int64  // made so far
	hands    chan struct{} // at most so many plug at once: the kernel does it one by one
	runtime  *ctrdtest.Daemon
	ctrd     *containerd.Client // lives through restarts
	daemon   *daemon
	ipamctl  string // the program
	client   *client.Client
	rec      *recorder
	receiver *receiver // where what sandboxes send is received
	group    string    // the cgroup of those that are hostile
	owner    *owner
	owners   sync.Mutex // held by the actor that has the owner's socket

	ctx    context.Context // ends with the test, or when all is lost
	calm   chan struct{}   // closed: actors that live go on living, and none begins
	end    chan struct{}   // closed: all go
	actors sync.WaitGroup
	parked atomic.Int64 // actors that live and wait for the end
	left   atomic.Int64 // actors that are done

	mu    sync.Mutex
	begun []string // containers whose making was given up
}

func newWorld(t *testing.T, v ctrdtest.Version, ipamd, ipamctl string) *world {
	t.Helper()
	// Not t.TempDir: a socket's path ends at 107 bytes.
	dir, err := os.MkdirTemp("", "storm-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the book and the log stay in %s", dir)
			return
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove the storm's folder: %v", err)
		}
	})
	w := &world{t: t, dir: dir, ipamctl: ipamctl, ns: nstest.New(t), hands: make(chan struct{}, 4),
		rec: newRecorder(cooldown, cooldownMin), calm: make(chan struct{}), end: make(chan struct{})}
	w.ns.Bridge("rt0", netip.PrefixFrom(ipam.FirstHost(poolPrefix), poolPrefix.Bits()).String())
	rt0, err := w.ns.Netlink().LinkByName("rt0")
	if err != nil {
		t.Fatal(err)
	}
	w.bridge = rt0.Attrs().Index
	w.everyFrameIsNews()
	w.spaces = newSpaces(t, w.path("netns"))
	nstest.Hang(t, w.path("stuck"))
	w.group = newGroup(t)
	if err := errors.Join(os.Chmod(dir, 0o711), os.Mkdir(w.path("owner"), 0o755)); err != nil {
		t.Fatal(err)
	}
	w.owner = newOwner(t, w.path("owner", "sock"))
	w.runtime = ctrdtest.Start(t, v)
	if w.ctrd, err = containerd.New(w.runtime.Address); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.ctrd.Close() })
	config := fmt.Appendf(nil, configuration, dir, w.runtime.Address, poolPrefix, bindWithin, cooldown, cooldownMin,
		runtimeUID, ownerTimeout, ownerGrace)
	if err := os.WriteFile(filepath.Join(dir, "ipamd.toml"), config, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "state"), 0o700); err != nil {
		t.Fatal(err)
	}
	w.daemon = &daemon{program: ipamd, dir: dir, book: filepath.Join(dir, "state", "book.db"), netns: w.ns.Path()}
	w.client = &client.Client{Socket: filepath.Join(dir, "sock")}
	t.Cleanup(func() {
		if !w.daemon.over() {
			_ = w.daemon.kill()
		}
		w.client.CloseIdleConnections()
		if t.Failed() {
			w.tellLog()
		}
	})
	if err := w.daemon.start(); err != nil {
		t.Fatal(err)
	}
	w.plugReceiver()
	// What was begun above ends after this: actors stop before what they use.
	// An interrupt ends the storm as a failure does: everything is cleaned up.
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	w.ctx = ctx
	t.Cleanup(func() {
		cancel()
		w.actors.Wait()
	})
	return w
}

// path is in the storm's folder.
func (w *world) path(name ...string) string {
	return filepath.Join(append([]string{w.dir}, name...)...)
}

// eventually waits for something, unless the storm is interrupted.
func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	realtest.Eventually(w.t, patience, what, func() bool {
		if err := context.Cause(w.ctx); err != nil {
			w.t.Fatalf("waiting for %q: %v", what, err)
		}
		return ok()
	})
}

// needs is what a test of this package cannot do without.
func needs(t *testing.T) {
	t.Helper()
	realtest.Root(t)
	realtest.Need(t, "nsenter", "unshare", "mount", "sh", "nft")
}

// tellLog shows the graver lines of the daemon's log, the last ones.
func (w *world) tellLog() {
	const enough = 30
	log, _ := os.ReadFile(w.daemon.path("log"))
	var grave [][]byte
	for line := range bytes.Lines(log) {
		if !bytes.Contains(line, []byte("level=INFO")) {
			grave = append(grave, line)
		}
	}
	w.rec.add(func(h *history) { w.t.Logf("odd answers:\n%s", report(h.odd)) })
	w.t.Logf("the last expected errors: %v", w.rec.errs)
	w.t.Logf("what was done:\n%s", w.rec.counts())
	w.t.Logf("the last grave words of %d by ipamd:\n%s", len(grave), bytes.Join(grave[max(0, len(grave)-enough):], nil))
}

// errCalm ends the asking for more.
var errCalm = errors.New("it has become calm")

// persist makes a call until it has an answer: daemons die, and refuse what
// may be granted later. It returns answers that will not change, and the
// world's end.
func (w *world) persist(r *rand.Rand, what string, call func(context.Context) error) error {
	for {
		ctx, cancel := context.WithTimeout(w.ctx, callTime)
		err := call(ctx)
		cancel()
		message := new(api.Error)
		refused := errors.As(err, &message)
		switch {
		case err == nil:
			w.rec.counted(what)
			return nil
		case errors.Is(err, errCalm):
			return err
		case refused:
			w.rec.counted(what + ": " + string(message.Code))
		default:
			w.rec.counted(what + ": no answer")
		}
		if refused && !message.Retryable || w.ctx.Err() != nil {
			return err
		}
		w.rest(r, 10*time.Millisecond, 200*time.Millisecond)
	}
}

// rest lets some time pass, or the world end.
func (w *world) rest(r *rand.Rand, least, most time.Duration) {
	t := time.NewTimer(between(r, least, most))
	defer t.Stop()
	select {
	case <-t.C:
	case <-w.ctx.Done():
	}
}

func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)))
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
