// Package servertest runs a real server on a real socket with a real book for
// tests. Its allocator asks no witness: what it gives is the book's next
// address.
package servertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/logging"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/netdb/netdbtest"
	"github.com/ipamd/ipamd/server"
	"github.com/ipamd/ipamd/server/admission"
	"github.com/ipamd/ipamd/server/socket"
	"github.com/ipamd/ipamd/wake"
	"github.com/ipamd/ipamd/watchdog"
	"github.com/ipamd/ipamd/workload"
)

// A Rig is a running server and what it stands on.
type Rig struct {
	Book   *netdb.Book
	Board  *census.Board // expects the kernel's witnesses, which have all reported
	Socket string
	Log    *Log
	Stop   func() error // ends Serve and returns its error; the test's end does so too

	last atomic.Pointer[api.Report]
}

// Start serves until the test ends. change may replace parts.
func Start(t testing.TB, change ...func(*server.Config)) *Rig {
	t.Helper()
	r := &Rig{Book: netdbtest.Open(t), Log: new(Log),
		Board: census.NewBoard(census.Netns, census.Host, census.Neighbour)}
	for _, w := range []census.Witness{census.Netns, census.Host, census.Neighbour} {
		r.Board.Replace(w, nil, nil)
	}
	if _, err := r.pass(t.Context(), false, false); err != nil {
		t.Fatal(err)
	}
	cfg := Config(r)
	for _, c := range change {
		c(&cfg)
	}
	s, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.Socket = Socket(t)
	ln, err := socket.Listen(r.Socket, 0o666, -1)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, ln) }()
	r.Stop = sync.OnceValue(func() error { cancel(); return <-served })
	t.Cleanup(func() {
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// Socket returns a path for a socket that other users can reach and that is
// short enough to be one.
func Socket(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ipamd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "s")
}

// Config returns what Start begins with.
func Config(r *Rig) server.Config {
	return server.Config{
		Book: r.Book, Sleeper: sleeper(r.Book), LastTraffic: func(*ipam.Lease) (time.Time, bool) { return time.Time{}, false }, Allocator: giver{r.Book}, Releaser: releaser{r.Book}, Witnesses: r.Board,
		Compare:    func(context.Context, *ipam.Lease, ipam.Binding) []workload.BindDifference { return nil },
		CheckNetns: func(context.Context, string) error { return nil }, Desk: new(server.Desk), NetnsInode: func(context.Context, string) (uint64, error) { return 0, nil }, SlotDesk: server.NewSlotDesk(), Slots: func(ipam.Usage) *api.PoolSlots { return nil }, Vacate: func(_ context.Context, change func() error) error { return change() }, SlotsEnded: func() func(string, *ipam.Pool) int { return func(string, *ipam.Pool) int { return 0 } },
		NotReady: func() []string { return nil },
		Bridges:  func() []api.BridgeStatus { return []api.BridgeStatus{{Name: "rt0", Ready: true}} },
		Follow:   func(context.Context) error { return nil },
		Unready:  func(*ipam.Pool) error { return nil },
		MTU:      func(string) int { return 1500 },
		Doctor:   func(context.Context) []api.Finding { return nil },
		Findings: func() []api.Finding { return nil },
		Adoption: adopter{r.Book},
		Rules: func(context.Context, string) (*api.RulesReply, error) {
			return &api.RulesReply{Mode: "off", Ports: []api.PortRules{}, Epoch: r.Book.Epoch(), Revision: r.Book.Rev()}, nil
		},
		Reconcile: r.pass, ConfirmOrphans: func(string) error { return errors.New("there are no orphans") }, LastPass: r.last.Load,
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintln(w, "ipamd_ready 1")
		}),
		Observe: func(string, api.Code, time.Duration) {},
		Version: api.VersionReply{Version: "test", Commit: "none", Go: "go", Schema: 1},
		Started: time.Now(), Require: "kernel", Policy: netdbtest.Policy,
		Deadline: time.Minute, MaxConns: 64, Limits: admission.Limits{InFlight: 512},
		Log: slog.New(new(logging.Repeats).Handler(slog.NewTextHandler(r.Log, nil))), // as the daemon's
	}
}

// sleeper has wakes requested, and acknowledged on the socket; nothing drives its flights.
func sleeper(book *netdb.Book) *wake.Flights {
	f, err := wake.New(wake.Config{Book: book, Wait: 30 * time.Second, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	return f
}

// adopter adopts a book that is another runner's, whatever lives.
type adopter struct{ book *netdb.Book }

func (a adopter) Look(context.Context) (api.AdoptBookReply, error) {
	is := a.book.Identity()
	return api.AdoptBookReply{Book: api.BookIdentity{RunnerUID: is.RunnerUID, MachineID: is.MachineID, Epoch: is.Epoch},
		Leases: []api.BookLease{}, Refusals: []api.BookRefusal{}, Plan: &api.Report{Actions: []api.Action{}},
		Revision: a.book.Rev(), Epoch: is.Epoch}, nil
}

func (a adopter) Confirm(ctx context.Context, who ipam.Who, epoch string) (api.AdoptBookReply, error) {
	if err := a.book.TakeOver(ctx, who, epoch); err != nil {
		return api.AdoptBookReply{}, err
	}
	out, err := a.Look(ctx)
	out.Adopted, out.Plan = true, nil
	return out, err
}

// giver gives the book's next address.
type giver struct{ book *netdb.Book }

func (g giver) Allocate(ctx context.Context, r allocator.Request) (*allocator.Result, error) {
	want := netdb.Reservation{Sandbox: r.Sandbox, UID: r.UID, Interface: r.Interface, Attempt: r.Attempt,
		BindWithin: r.BindWithin, Labels: r.Labels, Binding: r.Binding, BoundBy: ipam.Who{Actor: ipam.ByClient, Peer: r.Peer, Reason: "bound"}}
	if want.UID == "" {
		want.UID = r.Sandbox
	}
	if want.Interface == "" {
		want.Interface = "eth0"
	}
	want.Attempt, want.BindWithin = max(want.Attempt, 1), max(want.BindWithin, time.Minute)
	pool := g.book.Pools()[0]
	if r.Pool != "" && r.Pool != pool.Name {
		return nil, fmt.Errorf("pool %q: %w", r.Pool, ipam.ErrNotFound)
	}
	owner := ipam.Owner{PoolUID: pool.UID, UID: want.UID, Interface: want.Interface}
	if l, ok := g.book.OpenLease(owner); ok {
		return &allocator.Result{Leases: []*ipam.Lease{l}, Pools: []*ipam.Pool{pool}, Existing: true}, nil
	}
	var err error
	if r.Address.IsValid() {
		want.Candidate, err = g.book.PickAddr(owner, r.Address, netdbtest.Policy)
	} else {
		want.Candidate, err = g.book.Pick(pool.UID, netdbtest.Policy)
	}
	if err != nil {
		return nil, err
	}
	defer g.book.Drop(want.Candidate)
	ls, err := g.book.Reserve(ctx, ipam.Who{Actor: ipam.ByAllocator, Peer: r.Peer, Reason: "allocated"}, want)
	if err != nil {
		return nil, err
	}
	return &allocator.Result{Leases: ls, Pools: []*ipam.Pool{pool}, EarlyReuse: want.Candidate.Early}, nil
}

// releaser confirms nothing: that is the test's to do, with [Rig.Confirm].
type releaser struct{ book *netdb.Book }

func (r releaser) Release(ctx context.Context, who ipam.Who, id, uid string, ifRev int64) (*ipam.Lease, []watchdog.Blocker, error) {
	l, err := r.book.Release(ctx, who, id, uid, ifRev)
	if err != nil || l.State != ipam.Releasing {
		return l, nil, err
	}
	return l, r.Blockers(l), nil
}

func (r releaser) Blockers(*ipam.Lease) []watchdog.Blocker {
	return []watchdog.Blocker{{Kind: "unconfirmed", Detail: "not looked at yet"}}
}

// pass compares the book with the board and ends quarantines that nothing is
// seen behind, however young, but for those made by hand. That is all it
// knows to do.
func (r *Rig) pass(ctx context.Context, preview, _ bool) (api.Report, error) {
	began := time.Now()
	leases, _ := r.Book.Leases()
	seen := r.Board.Census()
	report := api.Report{Started: began, Preview: preview, Complete: seen.Complete(), Leases: len(leases), Seen: len(seen.Seen)}
	for _, l := range leases {
		if l.State != ipam.Quarantined || l.Hold != "" || !report.Complete || len(workload.SeenOf(seen, l)) > 0 {
			continue
		}
		a := api.Action{Kind: "clear", Address: l.Addr.String(), LeaseID: l.ID, Reason: "nothing is seen there", Result: "planned"}
		if !preview {
			a.Result = "done"
			if _, err := r.Book.ClearAt(ctx, netdbtest.Who(ipam.ByReconciler, "not_seen"), l.ID, l.Rev, nil); err != nil {
				a.Result, a.Error = "skipped", err.Error()
			}
		}
		report.Actions = append(report.Actions, a)
	}
	report.Took = time.Since(began)
	if !preview {
		r.last.Store(&report)
	}
	return report, nil
}

// Confirm says that the removal of a releasing lease is confirmed.
func (r *Rig) Confirm(t testing.TB, id string) {
	t.Helper()
	l, err := r.Book.Lease(id)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Book.Confirm(context.Background(), netdbtest.Who(ipam.ByWatchdog, "removal_confirmed"),
		id, l.Rev, nil); err != nil {
		t.Fatal(err)
	}
}

// A Log keeps what was logged.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// Count returns in how many lines the words stand.
func (l *Log) Count(words string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, words) {
			n++
		}
	}
	return n
}
