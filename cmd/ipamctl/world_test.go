package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/build"
)

// noon is when every test of this package takes place.
var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func before(d time.Duration) time.Time { return noon.Add(-d) }

const epoch = "0197f000-0000-7000-8000-00000000e90c"

// id is the nth lease's id.
func id(n int) string {
	return "0197f2c0-5b7e-7c3a-9d41-0000000000" + string("0123456789abcdef"[n/16]) + string("0123456789abcdef"[n%16])
}

// A world is what the daemon of a test says: api values behind real HTTP on
// a real unix socket. It keeps what it was sent.
type world struct {
	pools    []api.Pool
	leases   []api.Lease
	changes  []api.Change
	slots    []api.Slot
	status   api.Status
	findings []api.Finding
	whois    map[string]api.WhoisReply
	allocate api.AllocateReply
	warnings []api.BindWarning // of every bind
	blockers []api.Blocker     // of every release, and of every releasing lease
	pass     api.Report
	broken   []api.BookFinding // of the book
	rules    api.RulesReply
	withheld api.WithheldList
	adoption api.AdoptBookReply
	effects  []api.PoolEffect // of every change of a pool
	preview  bool             // and it was one
	refuse   *api.Error       // every verb answers this
	stall    chan struct{}    // every verb waits for this, or for the client to give up
	stalls   api.Verb         // only this one does; "": every one

	socket string
	mu     sync.Mutex
	asked  []asked
}

type asked struct {
	verb, target, body string
}

// serve starts the world's daemon; it ends with the test.
func (w *world) serve(t *testing.T) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "ctl") // t.TempDir is too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	w.socket = filepath.Join(dir, "s")
	listener, err := net.Listen("unix", w.socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: w.routes()}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Close()
		<-done
		os.RemoveAll(dir)
	})
	return w
}

func (w *world) routes() http.Handler {
	const rev = 812
	answers := map[api.Verb]func(r *http.Request) any{
		api.VerbAllocate: func(*http.Request) any { return w.allocate },
		api.VerbBind: func(r *http.Request) any {
			reply := w.one(r.PathValue("id"))
			if l, ok := reply.(api.LeaseReply); ok {
				l.Warnings = w.warnings
				return l
			}
			return reply
		},
		api.VerbRelease: func(r *http.Request) any {
			reply := w.one(r.PathValue("id"))
			if l, ok := reply.(api.LeaseReply); ok {
				l.Lease.State, l.Blockers = api.Cooling, w.blockers
				if len(w.blockers) > 0 {
					l.Lease.State = api.Releasing
				}
				return l
			}
			return reply
		},
		api.VerbPause:  func(r *http.Request) any { return w.one(r.PathValue("id")) },
		api.VerbWake:   func(r *http.Request) any { return w.one(r.PathValue("id")) },
		api.VerbResume: func(r *http.Request) any { return w.one(r.PathValue("id")) },
		api.VerbAttach: func(r *http.Request) any { return w.one(r.PathValue("id")) },
		api.VerbDetach: func(r *http.Request) any { return w.one(r.PathValue("id")) },
		api.VerbBackup: func(*http.Request) any { return api.BackupReply{Path: "/b.db", Revision: rev, Epoch: epoch} },
		api.VerbCancel: func(*http.Request) any {
			return api.CancelReply{Released: w.leases[1:2], Revision: rev, Epoch: epoch}
		},
		api.VerbLeases: func(r *http.Request) any {
			q := r.URL.Query()
			keep := func(l api.Lease) bool {
				return (q.Get("sandbox") == "" || l.Sandbox == q.Get("sandbox")) &&
					(q.Get("state") == "" || string(l.State) == q.Get("state")) &&
					(q.Get("pool") == "" || l.Pool == q.Get("pool"))
			}
			leases := []api.Lease{}
			for _, l := range w.leases {
				if keep(l) {
					leases = append(leases, l)
				}
			}
			return api.LeaseList{Leases: leases, Revision: rev, Epoch: epoch}
		},
		api.VerbLease: func(r *http.Request) any { return w.one(r.PathValue("id")) },
		api.VerbWhois: func(r *http.Request) any { return w.whois[r.PathValue("ip")] },
		api.VerbQuarantine: func(r *http.Request) any {
			return api.LeaseReply{Lease: api.Lease{
				ID: id(99), Address: r.PathValue("ip"), PrefixLen: 24, Pool: "default", PoolUID: "p4",
				State: api.Quarantined, Created: noon, Since: noon, Reason: "by hand", Revision: rev,
			}, Revision: rev, Epoch: epoch}
		},
		api.VerbAdopt: func(r *http.Request) any {
			return api.LeaseReply{Lease: api.Lease{
				ID: id(99), Address: r.PathValue("ip"), PrefixLen: 24, Pool: "default", PoolUID: "p4", Sandbox: "a", UID: "a", Interface: "eth0",
				State: api.Bound, Created: noon, Since: noon, Reason: "adopted_by_hand", Revision: rev,
			}, Revision: rev, Epoch: epoch}
		},
		api.VerbClear: func(r *http.Request) any {
			return api.LeaseReply{Lease: api.Lease{
				ID: id(99), Address: r.PathValue("ip"), PrefixLen: 24, Pool: "default", PoolUID: "p4",
				State: api.Cooling, Created: before(time.Hour), Since: noon, Reason: "cleared", Revision: rev,
			}, Revision: rev, Epoch: epoch}
		},
		api.VerbChanges: func(r *http.Request) any {
			q := r.URL.Query()
			changes := []api.Change{}
			for _, ch := range w.changes {
				if (q.Get("address") == "" || ch.Address == q.Get("address")) &&
					(q.Get("sandbox") == "" || ch.Sandbox == q.Get("sandbox")) &&
					(q.Get("lease") == "" || ch.LeaseID == q.Get("lease")) {
					changes = append(changes, ch)
				}
			}
			return api.ChangeList{Changes: changes, Revision: rev, Epoch: epoch}
		},
		api.VerbCheckBook: func(*http.Request) any {
			return api.CheckBookReply{Whole: len(w.broken) == 0, Findings: append([]api.BookFinding{}, w.broken...), Addresses: len(w.leases), Revision: rev, Epoch: epoch}
		},
		api.VerbRules:     func(*http.Request) any { return w.rules },
		api.VerbReconcile: func(*http.Request) any { return api.ReconcileReply{Report: w.pass, Revision: rev, Epoch: epoch} },
		api.VerbAdoptBook: func(*http.Request) any { return w.adoption },
		api.VerbWithheld:  func(*http.Request) any { return w.withheld },
		api.VerbWarm: func(*http.Request) any {
			return api.SlotList{Slots: append([]api.Slot{}, w.slots...), Revision: rev, Epoch: epoch}
		},
		api.VerbPools: func(*http.Request) any { return api.PoolList{Pools: w.pools, Revision: rev, Epoch: epoch} },
		api.VerbPool: func(r *http.Request) any {
			var found []api.Pool
			for _, p := range w.pools {
				if p.Name == r.PathValue("name") {
					found = append(found, p)
				}
			}
			if found == nil {
				return &api.Error{Code: api.NotFound, Message: "pool: not found: there is default", Revision: rev, Epoch: epoch}
			}
			return api.PoolList{Pools: found, Revision: rev, Epoch: epoch}
		},
		api.VerbApply:   func(r *http.Request) any { return w.changePool(r, api.PoolUpdate) },
		api.VerbDrain:   func(r *http.Request) any { return w.changePool(r, api.PoolDrain) },
		api.VerbUndrain: func(r *http.Request) any { return w.changePool(r, api.PoolUndrain) },
		api.VerbRemove:  func(r *http.Request) any { return w.changePool(r, api.PoolRemove) },
		api.VerbStatus: func(*http.Request) any {
			s := w.status // which counts what doctor finds
			s.Findings = make(map[string]int)
			for _, f := range w.findings {
				s.Findings[f.Kind]++
			}
			return s
		},
		api.VerbDoctor: func(*http.Request) any {
			return api.DoctorReply{Findings: w.findings, Revision: rev, Epoch: epoch}
		},
		api.VerbVersion: func(*http.Request) any {
			return api.VersionReply{Version: "v0.2.0", Commit: "feedc0de", Go: "go1.26.6", Schema: 1}
		},
	}
	mux := http.NewServeMux()
	for _, e := range api.Endpoints() {
		answer, known := answers[e.Verb]
		if !known {
			continue
		}
		mux.HandleFunc(e.Method+" "+e.Path, func(rw http.ResponseWriter, r *http.Request) {
			var body bytes.Buffer
			body.ReadFrom(r.Body)
			w.mu.Lock()
			w.asked = append(w.asked, asked{string(e.Verb), r.URL.RequestURI(), body.String()})
			w.mu.Unlock()
			if w.stall != nil && (w.stalls == "" || w.stalls == e.Verb) {
				select {
				case <-w.stall:
				case <-r.Context().Done():
				}
			}
			var reply any = w.refuse
			if w.refuse == nil {
				reply = answer(r)
			}
			rw.Header().Set("Content-Type", "application/json")
			if refused, ok := reply.(*api.Error); ok {
				rw.WriteHeader(refused.Code.Status())
			}
			json.NewEncoder(rw).Encode(reply)
		})
	}
	return mux
}

// changePool is the reply to a change of a pool; it changes none.
func (w *world) changePool(r *http.Request, change api.PoolChange) any {
	reply := api.PoolReply{Pool: w.pools[0], Change: change, Preview: w.preview, Unchanged: 5, Effects: w.effects, Total: len(w.effects), Revision: 813, Epoch: epoch}
	reply.Pool.Generation++
	return reply
}

// one is the reply about one lease, or the daemon's error.
func (w *world) one(id string) any {
	for _, l := range w.leases {
		if l.ID == id {
			reply := api.LeaseReply{Lease: l, Revision: 812, Epoch: epoch}
			if l.State == api.Releasing {
				reply.Blockers = w.blockers
			}
			return reply
		}
	}
	return &api.Error{Code: api.LeaseGone, Message: "lease " + id + " is gone", Revision: 812, Epoch: epoch}
}

// A screen is where a test's ipamctl writes.
type screen struct {
	out, err bytes.Buffer
	terminal bool
	watched  bool
	columns  int
	env      map[string]string
	first    time.Duration // patience for a sign of life; 0: as good as without end
}

// ctl runs one command line against the world and returns its exit code.
func (w *world) ctl(t *testing.T, s *screen, args ...string) int {
	t.Helper()
	return w.ctlContext(t.Context(), s, args...)
}

func (w *world) ctlContext(ctx context.Context, s *screen, args ...string) int {
	c := newCtl(streams{
		out: &s.out, err: &s.err, terminal: s.terminal, watched: s.watched,
		columns: func() int { return s.columns },
		getenv: func(key string) string {
			if key == "IPAMD_SOCKET" && s.env[key] == "" {
				return w.socket
			}
			return s.env[key]
		},
		now: func() time.Time { return noon },
	}, func(socket string) *client.Client { return &client.Client{Socket: socket} },
		build.Info{Version: "v0.1.0", Commit: "cafe", Go: "go1.26.6"})
	// A busy machine is no daemon that hangs. args may say another timeout.
	c.timeout, c.patience, c.first = 10*time.Minute, 10*time.Minute, s.first
	return c.run(ctx, args)
}

// sent is what the world was asked last.
func (w *world) sent(t *testing.T) asked {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.asked) == 0 {
		t.Fatal("the daemon was asked nothing")
	}
	at := len(w.asked) - 1
	for at > 0 && w.asked[at].verb == string(api.VerbRules) { // of leases that were found the rules are asked besides
		at--
	}
	return w.asked[at]
}

// lease is one lease of a /24 pool, a row of a test's world.
func lease(n int, addr string, state api.State, sandbox string, age time.Duration) api.Lease {
	return api.Lease{
		ID: id(n), Address: addr, PrefixLen: 24, Pool: "default", PoolUID: "p4", State: state,
		Sandbox: sandbox, UID: sandbox, Interface: "eth0", Attempt: 1, Revision: int64(700 + n),
		Created: before(age + time.Minute), Since: before(age), Reason: string(state),
	}
}

// runner is a small runner with a lease of every state, a stranger on the
// wire, and a sandbox whose name attacks the terminal.
func runner() *world {
	bindBy := noon.Add(9*time.Minute + 30*time.Second)
	stranger := api.Sighting{
		Address: "10.8.64.7", Witness: "netns", At: before(40 * time.Second), Bridge: "rt0", Port: "veth9",
		Netns: "/run/netns/lab", MAC: "02:42:0a:08:40:63", Note: "configured on eth0",
	}
	leases := []api.Lease{
		lease(2, "10.8.64.2", api.Bound, "web-1", 26*time.Hour),
		lease(3, "10.8.64.3", api.Reserved, "web-2", 30*time.Second),
		lease(4, "10.8.64.4", api.Paused, "notebook", 75*time.Hour),
		lease(5, "10.8.64.5", api.Releasing, "job-17", 4*time.Minute),
		lease(6, "10.8.64.6", api.Cooling, "job-16", 12*time.Minute),
		lease(7, "10.8.64.7", api.Quarantined, "", 3*time.Hour+7*time.Minute),
		lease(10, "10.8.64.10", api.Bound, "evil\x1b[2J\nname", time.Hour),
		lease(11, "fd00:8:64::2", api.Bound, "web-1", 26*time.Hour),
	}
	web := &leases[0]
	web.Containers = []api.Container{{Namespace: "sandbox", ID: "web-1"}, {Namespace: "sandbox", ID: "web-1-log"}}
	web.Netns, web.HostInterface, web.MAC = "/run/netns/web-1", "veth1", "02:42:0a:08:40:02"
	web.Labels = map[string]string{"tier": "front", "note": "two words", "odd": "\x1b]0;owned\a"}
	leases[1].BindBy = &bindBy
	leases[5].Evidence, leases[5].Reason = []api.Sighting{stranger}, "seen_on_wire"
	v6 := &leases[7]
	v6.PrefixLen, v6.PoolUID = 64, "p6"

	pools := []api.Pool{{
		Name: "default", UID: "p4", Family: api.V4, Generation: 1, Prefix: "10.8.64.0/24", Gateway: "10.8.64.1", Bridge: "rt0",
		Exclude: []string{"10.8.64.200-10.8.64.250"}, State: "active", Size: 202, Free: 195, Available: 195,
		ByState: map[string]int{"bound": 2, "reserved": 1, "paused": 1, "releasing": 1, "cooling": 1, "quarantined": 1},
	}, {
		Name: "default", UID: "p6", Family: api.V6, Generation: 1, Prefix: "fd00:8:64::/64", Gateway: "fd00:8:64::1", Bridge: "rt0",
		State: "active", Size: 1<<64 - 2, Free: 1<<64 - 3, Available: 1<<64 - 3, ByState: map[string]int{"bound": 1},
	}}

	gone := func(rev int64, age time.Duration, from, to api.State, actor, reason string) api.Change {
		return api.Change{Revision: rev, At: before(age), Address: "10.8.64.2", LeaseID: id(1), Pool: "default", Sandbox: "web-0",
			UID: "web-0", Interface: "eth0", From: from, To: to, Actor: actor, Reason: reason}
	}
	changes := []api.Change{
		{Revision: 805, At: before(3*time.Hour + 7*time.Minute), Address: "10.8.64.7", LeaseID: id(7), Pool: "default",
			From: api.Free, To: api.Quarantined, Actor: "allocator", Reason: "seen_on_wire", Evidence: []api.Sighting{stranger}},
		{Revision: 640, At: before(26 * time.Hour), Address: "10.8.64.2", LeaseID: id(2), Pool: "default", Sandbox: "web-1",
			UID: "web-1", Interface: "eth0", From: api.Reserved, To: api.Bound, Actor: "client", Peer: "uid=990 pid=4242", Reason: "bound"},
		{Revision: 639, At: before(26*time.Hour + time.Minute), Address: "10.8.64.2", LeaseID: id(2), Pool: "default", Sandbox: "web-1",
			UID: "web-1", Interface: "eth0", From: api.Free, To: api.Reserved, Actor: "allocator", Peer: "uid=990 pid=4242", Reason: "allocated"},
		{Revision: 512, At: before(72 * time.Hour), Address: "10.8.64.10", LeaseID: id(10), Pool: "default", Sandbox: "evil\x1b[2J\nname",
			UID: "e", Interface: "eth0", From: api.Reserved, To: api.Bound, Actor: "client", Reason: "bound"},
		gone(511, 73*time.Hour, api.Cooling, api.Free, "reconciler", "cooldown_over"),
		gone(480, 74*time.Hour, api.Releasing, api.Cooling, "watchdog", "removal_confirmed"),
		gone(479, 75*time.Hour, api.Bound, api.Releasing, "reconciler", "reaped"),
		gone(310, 90*time.Hour, api.Reserved, api.Bound, "client", "bound"),
		gone(309, 91*time.Hour, api.Free, api.Reserved, "allocator", "allocated"),
	}
	onlyOn := func(addr string) []api.Change {
		out := []api.Change{}
		for _, ch := range changes {
			if ch.Address == addr {
				out = append(out, ch)
			}
		}
		return out
	}
	seenWeb := func(witness string, s api.Sighting) api.WitnessAnswer {
		s.Witness, s.Address, s.At = witness, "10.8.64.2", before(2*time.Second)
		return api.WitnessAnswer{Witness: witness, Answer: "seen", Seen: []api.Sighting{s}}
	}
	quiet := func(names ...string) []api.WitnessAnswer {
		var out []api.WitnessAnswer
		for _, name := range names {
			out = append(out, api.WitnessAnswer{Witness: name, Answer: "not seen"})
		}
		return out
	}
	w := &world{pools: pools, leases: leases, changes: changes}
	w.pass = api.Report{
		Started: before(4 * time.Minute), Took: 12_340 * time.Microsecond, Complete: true, Leases: 8, Seen: 5, Absent: 1,
		Actions: []api.Action{
			{Kind: "adopt", Address: "10.8.64.2", LeaseID: id(2), Sandbox: "web-1", Reason: "one live container claims it", Result: "done"},
			{Kind: "expire", Address: "10.8.64.3", LeaseID: id(3), Sandbox: "web-2", Reason: "past its deadline, nobody is seen", Result: "skipped"},
			{Kind: "quarantine", Address: "10.8.64.8", Reason: "the netns witness sees it on veth9", Result: "done"},
			{Kind: "bind", Address: "10.8.64.10", LeaseID: id(10), Sandbox: "evil\x1b[2J\nname", Reason: "its container runs", Result: "done"},
		},
	}
	w.whois = map[string]api.WhoisReply{
		"10.8.64.2": {Address: "10.8.64.2", Pool: "default", State: api.Bound, Owner: "web-1", Usable: true, Lease: web,
			Witnesses: slices.Concat([]api.WitnessAnswer{
				seenWeb("runtime", api.Sighting{Namespace: "sandbox", Container: "web-1", Sandbox: "web-1", LeaseID: id(2), Task: "running"}),
				seenWeb("netns", api.Sighting{Port: "veth1", Netns: "/run/netns/web-1", MAC: "02:42:0a:08:40:02"}),
			}, quiet("host"), []api.WitnessAnswer{
				{Witness: "neighbour", Answer: "silent", Reason: "read rt0's neighbours: dump interrupted"},
			}, quiet("probe")),
			History: onlyOn("10.8.64.2"), Revision: 812, Epoch: epoch},
		"10.8.64.7": {Address: "10.8.64.7", Pool: "default", State: api.Quarantined, Usable: true, Lease: &leases[5],
			Witnesses: slices.Concat(quiet("runtime"), []api.WitnessAnswer{{Witness: "netns", Answer: "seen", Seen: []api.Sighting{stranger}}}, quiet("host", "neighbour")),
			History:   onlyOn("10.8.64.7"), Revision: 812, Epoch: epoch},
		"10.8.64.6": {Address: "10.8.64.6", Pool: "default", State: api.Cooling, Usable: true,
			Witnesses: quiet("runtime", "netns", "host", "neighbour"), History: []api.Change{}, Revision: 812, Epoch: epoch},
		"10.8.64.99": {Address: "10.8.64.99", Pool: "default", State: api.Free, Usable: true,
			Witnesses: []api.WitnessAnswer{{Witness: "netns", Answer: "seen", Seen: []api.Sighting{stranger}}},
			History:   []api.Change{}, Revision: 812, Epoch: epoch},
		"10.8.64.97": {Address: "10.8.64.97", Pool: "default", State: api.Free, Usable: true, KeptFor: "db",
			Witnesses: quiet("netns"), History: []api.Change{}, Revision: 812, Epoch: epoch},
		"10.8.64.96": {Address: "10.8.64.96", Pool: "default", State: api.Cooling, Usable: true, KeptFor: "db",
			Witnesses: quiet("netns"), History: []api.Change{}, Revision: 812, Epoch: epoch},
		"10.8.64.98": {Address: "10.8.64.98", Pool: "default", State: api.Free, Usable: true,
			Witnesses: slices.Concat(quiet("runtime"), []api.WitnessAnswer{{Witness: "netns", Answer: "silent", Reason: "no permission"}}),
			History:   []api.Change{}, Revision: 812, Epoch: epoch},
		"10.8.64.1": {Address: "10.8.64.1", Pool: "default", State: api.Free, Note: "the gateway",
			Witnesses: []api.WitnessAnswer{{Witness: "host", Answer: "seen", Seen: []api.Sighting{{Witness: "host", Bridge: "rt0"}}}},
			History:   []api.Change{}, Revision: 812, Epoch: epoch},
		"192.0.2.1": {Address: "192.0.2.1", State: api.Free, Note: "in no pool",
			Witnesses: []api.WitnessAnswer{}, History: []api.Change{}, Revision: 812, Epoch: epoch},
	}
	w.status = api.Status{
		Ready: true, Version: "v0.2.0", Commit: "feedc0de", Started: before(50 * time.Hour), PID: 4711,
		Book: api.BookStatus{Path: "/var/lib/ipamd/book.db", Bytes: 1<<20 + 1<<18, WALBytes: 4 << 20, Synchronous: "full",
			RunnerUID: "runner-7"},
		Bridge: api.BridgeStatus{Name: "rt0", Ready: true, Managed: true, Ports: 12, MAC: "02:00:00:00:64:01", MTU: 1500},
		Pools:  pools, Allocation: "require kernel", CommitP50: 178_400, CommitP99: 2_310_000, Revision: 812, Epoch: epoch,
	}
	w.status.LastPass = &w.pass
	w.allocate = api.AllocateReply{
		Leases: []api.Lease{lease(20, "10.8.64.8", api.Reserved, "web-3", 0)},
		Networks: []api.Network{{Bridge: "rt0", Gateway: "10.8.64.1", MTU: 1500, DNS: []string{"10.8.64.1"},
			Routes: []api.Route{{Destination: "0.0.0.0/0", Via: "10.8.64.1"}}}},
		Revision: 813, Epoch: epoch,
	}
	w.allocate.Leases[0].BindBy = &bindBy
	w.allocate.Leases[0].HostInterfaceName, w.leases[2].HostInterfaceName = "veth813", "veth9"
	return w
}

// poolOf is a pool of one prefix, for maps.
func poolOf(t *testing.T, prefix string) api.Pool {
	t.Helper()
	p := netip.MustParsePrefix(prefix)
	return api.Pool{
		Name: "default", UID: "p4", Prefix: prefix, Bridge: "rt0", State: "active",
		Gateway: p.Addr().Next().String(), ByState: map[string]int{},
	}
}
