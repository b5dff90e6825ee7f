package main

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/config/reload"
	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/netdb/netdbtest"
	"github.com/ipamd/ipamd/reconciler"
)

// wait is how long anything may take that has no time of its own. It costs
// nothing where all is well, and a machine may stand still for seconds; what ipamd
// waits after a look at its book is twenty times as long as the look took.
const wait = 60 * time.Second

var ctx = context.Background()

// A world is one runner: a network namespace with rt0, a book on disk, perhaps
// a containerd, and a daemon that can be stopped and started again.
type world struct {
	t      *testing.T
	ns     *nstest.NS
	cfg    config.Config
	client *client.Client
	log    *logBuffer

	edited     []string        // invariants that an edit of the book past ipamd breaks
	proofEvery time.Duration   // of the next daemon; 0: as by itself
	reload     *reload.Source  // of the next daemon; nil: its configuration stays
	given      func() *os.File // systemd's socket, for each daemon; nil: it makes its own
	gate       gate            // of the reconciler's passes
	homeless   atomic.Bool     // it is not known in which network namespace a process is

	program *program
	stop    func() // stops the daemon; twice is fine
}

// newWorld makes a runner with rt0 and the pool's gateway on it, and starts
// the daemon on it. change may alter the configuration first.
func newWorld(t *testing.T, change ...func(*config.Config)) *world {
	w := prepare(t, change...)
	prefix := netip.MustParsePrefix(w.cfg.Pools[0].Prefix)
	w.ns.Bridge("rt0", netip.PrefixFrom(ipam.FirstHost(prefix), prefix.Bits()).String())
	w.start()
	return w
}

// prepare makes a runner without a bridge and without a running daemon.
func prepare(t *testing.T, change ...func(*config.Config)) *world {
	t.Helper()
	realtest.Root(t)
	dir := t.TempDir()
	w := &world{t: t, ns: nstest.New(t), cfg: config.Default(), log: new(logBuffer)}
	w.cfg.Book.Path = filepath.Join(dir, "book.db")
	w.cfg.Socket.Path = filepath.Join(dir, "s")
	w.cfg.Socket.Group = ""
	w.cfg.Socket.Deadline = config.Duration(wait)
	w.cfg.Runtime.Kind = "none"
	for _, c := range change {
		c(&w.cfg)
	}
	w.client = &client.Client{Socket: w.cfg.Socket.Path}
	t.Cleanup(func() {
		w.stopDaemon()
		w.client.CloseIdleConnections()
		if t.Failed() {
			t.Logf("the daemon said:\n%s", w.log.String())
		}
	})
	return w
}

// quick makes quarantine and cooldown short enough to wait for.
func quick(c *config.Config) {
	c.Allocation.Quarantine = config.Duration(150 * time.Millisecond)
	c.Allocation.Cooldown = config.Duration(100 * time.Millisecond)
	c.Allocation.CooldownMin = config.Duration(50 * time.Millisecond)
	c.Reconcile.Every = config.Duration(50 * time.Millisecond)
	c.Probe.Window = config.Duration(20 * time.Millisecond)
}

// withContainerd asks a containerd, and waits for its answers: one that comes
// late reads as a runtime that cannot be asked.
func withContainerd(d *ctrdtest.Daemon) func(*config.Config) {
	return func(c *config.Config) {
		c.Runtime.Kind = "containerd"
		c.Runtime.Address = d.Address
		c.Runtime.Timeout, c.Watchdog.Timeout = config.Duration(wait), config.Duration(wait)
	}
}

// impatient is for a runtime that leaves questions without an answer.
func impatient(c *config.Config) {
	c.Runtime.Timeout, c.Watchdog.Timeout = config.Duration(2*time.Second), config.Duration(5*time.Second)
}

func pool(prefix string) func(*config.Config) {
	return func(c *config.Config) { c.Pools[0].Prefix = prefix }
}

func (w *world) newProgram() *program {
	p := newProgram(w.cfg, slog.New(slog.NewTextHandler(w.log, nil)), api.VersionReply{Version: "test"})
	p.netns = w.ns.Path()
	p.writeThrough = func(b *netdb.Book) reconciler.Book { return gatedBook{b, &w.gate} }
	if w.given != nil {
		p.given = []*os.File{w.given()}
	}
	p.home = func(ctx context.Context, pid uint32) (census.Home, error) {
		if w.homeless.Load() {
			return census.Home{}, errors.New("it has no owner")
		}
		return p.bridge.Home(ctx, pid)
	}
	p.reload = w.reload
	if w.proofEvery > 0 {
		p.proofEvery = w.proofEvery
	}
	return p
}

// start starts the daemon and waits until it is ready to allocate, or can say
// why it is not.
func (w *world) start() {
	w.t.Helper()
	w.program = w.newProgram()
	if err := w.program.open(ctx); err != nil {
		w.t.Fatal(err)
	}
	run, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	program := w.program
	go func() { ended <- program.run(run) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		w.gate.open()
		if err := <-ended; err != nil {
			w.t.Errorf("run: %v", err)
		}
		netdbtest.Check(w.t, program.book, w.edited...)
		if err := program.close(); err != nil {
			w.t.Errorf("close: %v", err)
		}
	})
	realtest.Eventually(w.t, wait, "the first census", func() bool { return program.ready.Counted() || program.book.CheckIdentity() != nil })
}

func (w *world) stopDaemon() {
	if w.stop != nil {
		w.stop()
	}
}

// edit changes the book of a stopped daemon, as a person with a shell would.
func (w *world) edit(script string, args ...any) {
	w.t.Helper()
	w.edited = []string{netdb.RowsAreAsRecorded}
	db, err := sql.Open("sqlite", w.cfg.Book.Path)
	if err != nil {
		w.t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(script, args...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) allocate(sandbox string) *api.AllocateReply {
	w.t.Helper()
	r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: sandbox})
	if err != nil {
		w.t.Fatalf("allocate for %s: %v", sandbox, err)
	}
	return r
}

// give allocates and fails unless the address is the one wanted.
func (w *world) give(sandbox, want string) *api.AllocateReply {
	w.t.Helper()
	r := w.allocate(sandbox)
	if r.Leases[0].Address != want {
		w.t.Fatalf("%s got %s, want %s (skipped %+v)", sandbox, r.Leases[0].Address, want, r.Skipped)
	}
	return r
}

func (w *world) whois(addr string) *api.WhoisReply {
	w.t.Helper()
	r, err := w.client.Whois(ctx, addr)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// state is an address's state now.
func (w *world) state(addr string) api.State { return w.whois(addr).State }

// metric reads one sample from /metrics; 0 when there is none.
func (w *world) metric(name string) string {
	w.t.Helper()
	c := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", w.cfg.Socket.Path)
	}}}
	defer c.CloseIdleConnections()
	resp, err := c.Get("http://ipamd/metrics")
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), "ipamd_"+name+" "); ok {
			return value
		}
	}
	return "0"
}

// findings lists doctor's findings as "kind address".
func (w *world) findings() []string {
	w.t.Helper()
	d, err := w.client.Doctor(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for _, f := range d.Findings {
		if f.Since.IsZero() {
			w.t.Errorf("%s %s is reported without a since", f.Kind, f.Address)
		}
		out = append(out, strings.TrimSpace(f.Kind+" "+f.Address))
	}
	return out
}

func labels(sandbox, addr string) map[string]string {
	return map[string]string{"runtime.computer/entity-id": sandbox, "runtime.computer/ip": addr}
}

// leased are the labels of a container that names its lease.
func leased(l api.Lease) map[string]string {
	named := labels(l.Sandbox, l.Address)
	named["ipamd.dev/lease-id"] = l.ID
	return named
}

// logBuffer keeps what the daemon says.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func addr(last int) string { return fmt.Sprintf("10.8.64.%d", last) }
