package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/netdb/netdbtest"
	"github.com/ipamd/ipamd/server"
	"github.com/ipamd/ipamd/server/servertest"
)

func allocate(t testing.TB, s *speaker, sandbox string) api.Lease {
	t.Helper()
	return want[api.AllocateReply](t, s, 201, "AllocateReply", "POST", "/v1/leases", fmt.Sprintf(`{"sandbox":%q}`, sandbox)).Leases[0]
}

// TestLife walks a lease through every verb, L2 and T11 on the way.
func TestLife(t *testing.T) {
	s := speak(t, servertest.Start(t))
	given := want[api.AllocateReply](t, s, 201, "AllocateReply", "POST", "/v1/leases",
		`{"sandbox":"a","uid":"a1","labels":{"team":"blue"},"bind_within":"5m"}`)
	l := given.Leases[0]
	if l.Address != "10.8.64.2" || l.PrefixLen != 24 || l.BindBy == nil || !l.BindBy.Equal(l.Since.Add(5*time.Minute)) {
		t.Errorf("lease: %+v", l)
	}
	n := given.Networks[0]
	if n.Bridge != "rt0" || n.Gateway != "10.8.64.1" || n.MTU != 1500 || n.Routes[0] != (api.Route{Destination: "0.0.0.0/0", Via: "10.8.64.1"}) {
		t.Errorf("network: %+v", n)
	}
	again := want[api.AllocateReply](t, s, 200, "AllocateReply", "POST", "/v1/leases", `{"sandbox":"a","uid":"a1"}`)
	if !again.Existing || again.Leases[0].ID != l.ID || again.Revision != given.Revision {
		t.Errorf("asked again: %+v", again)
	}

	path := "/v1/leases/" + l.ID
	bound := want[api.LeaseReply](t, s, 200, "LeaseReply", "POST", path+"/bind",
		`{"containers":[{"namespace":"default","id":"c1"}],"netns":"/run/netns/a","host_interface":"veth1","mac":"02:42:0A:08:40:02"}`)
	if bound.Lease.State != api.Bound || bound.Lease.MAC != "02:42:0a:08:40:02" || bound.Lease.BindBy != nil {
		t.Errorf("bound: %+v", bound.Lease)
	}
	want[api.LeaseReply](t, s, 200, "LeaseReply", "POST", path+"/pause", "")
	if who := want[api.WhoisReply](t, s, 200, "WhoisReply", "GET", "/v1/addresses/10.8.64.2", ""); who.Owner != "a" || who.State != api.Paused {
		t.Errorf("whois of a paused lease: %+v", who)
	}
	want[api.LeaseReply](t, s, 200, "LeaseReply", "POST", path+"/resume", "{}")
	want[api.LeaseReply](t, s, 200, "LeaseReply", "GET", path, "")

	let := want[api.LeaseReply](t, s, 202, "LeaseReply", "POST", path+"/release", `{"uid":"a1"}`)
	if let.Lease.State != api.Releasing || len(let.Blockers) != 1 {
		t.Errorf("released: %+v", let)
	}
	if who := want[api.WhoisReply](t, s, 200, "WhoisReply", "GET", "/v1/addresses/10.8.64.2", ""); who.Owner != "a" || who.Lease == nil {
		t.Errorf("whois of a releasing lease: %+v", who)
	}
	s.Confirm(t, l.ID)
	who := want[api.WhoisReply](t, s, 200, "WhoisReply", "GET", "/v1/addresses/10.8.64.2", "")
	if who.Owner != "" || who.Lease != nil || who.State != api.Cooling {
		t.Errorf("T11: whois of a cooling address: %+v", who)
	}
	if who.History[0].To != api.Cooling || who.History[0].Sandbox != "a" || !strings.HasPrefix(who.History[1].Peer, "uid=0 pid=") {
		t.Errorf("its history: %+v", who.History[:2])
	}
	rev := s.Book.Rev()
	if over := want[api.LeaseReply](t, s, 200, "LeaseReply", "POST", path+"/release", ""); over.Lease.State != api.Cooling {
		t.Errorf("L3: released again: %+v", over)
	}
	if s.Book.Rev() != rev {
		t.Error("L3: releasing again changed the book")
	}
}

// TestReleaseWait: the wait ends with the confirmation, not with the time.
func TestReleaseWait(t *testing.T) {
	s := speak(t, servertest.Start(t))
	l := allocate(t, s, "a")
	done := make(chan *api.LeaseReply, 1)
	go func() {
		done <- want[api.LeaseReply](t, s, 200, "LeaseReply", "POST", "/v1/leases/"+l.ID+"/release", `{"wait":"50s"}`)
	}()
	for {
		changed := s.Book.Changed()
		if now, err := s.Book.Lease(l.ID); err != nil || now.State == ipam.Releasing {
			break
		}
		<-changed
	}
	s.Confirm(t, l.ID)
	if reply := <-done; reply.Lease.State != api.Cooling || reply.Blockers != nil {
		t.Errorf("after the confirmation: %+v", reply)
	}
	b := allocate(t, s, "b")
	if reply := want[api.LeaseReply](t, s, 202, "LeaseReply", "POST", "/v1/leases/"+b.ID+"/release", `{"wait":"10ms"}`); len(reply.Blockers) != 1 {
		t.Errorf("when the wait is over: %+v", reply)
	}
}

func TestTombstone(t *testing.T) {
	s := speak(t, servertest.Start(t))
	allocate(t, s, "a")
	reply := want[api.CancelReply](t, s, 200, "CancelReply", "POST", "/v1/tombstones", `{"uid":"a","attempt":1}`)
	if len(reply.Released) != 1 || reply.Released[0].State != api.Releasing {
		t.Errorf("cancelled: %+v", reply)
	}
	if a := s.ask(t, "POST", "/v1/leases", `{"sandbox":"a","attempt":1}`); a.err.Code != api.AttemptCancelled || a.status != 409 {
		t.Errorf("L5: a late attempt: %d %s", a.status, a.body)
	}
	want[api.AllocateReply](t, s, 201, "AllocateReply", "POST", "/v1/leases", `{"sandbox":"a","attempt":2}`)
}

// fullBook has no room for one more tombstone.
type fullBook struct{ *netdb.Book }

func (b fullBook) Cancel(ctx context.Context, who ipam.Who, uid string, attempt int64) ([]*ipam.Lease, error) {
	let, err := b.Book.Cancel(ctx, who, uid, attempt)
	return let, errors.Join(err, ipam.ErrTombstones)
}

// G12: a cancel that is refused for want of room names what it released.
func TestG12ARefusedCancelNamesWhatItReleased(t *testing.T) {
	s := speak(t, servertest.Start(t, func(c *server.Config) { c.Book = fullBook{c.Book.(*netdb.Book)} }))
	l := allocate(t, s, "a")
	for _, ids := range [][]string{{l.ID}, nil} {
		got := s.ask(t, "POST", "/v1/tombstones", `{"uid":"a","attempt":1}`)
		var released []string
		list, _ := got.err.Details["released"].([]any)
		for _, one := range list {
			released = append(released, one.(map[string]any)["id"].(string))
		}
		if got.status != 429 || got.err.Code != api.TooManyRequests || got.err.Details["limit"] != "tombstones" || !slices.Equal(released, ids) ||
			!strings.Contains(got.err.Message, fmt.Sprint(len(ids), " open leases are released")) {
			t.Errorf("%d %s", got.status, got.body)
		}
	}
}

func TestListings(t *testing.T) {
	s := speak(t, servertest.Start(t))
	for i := range 12 {
		allocate(t, s, fmt.Sprintf("box-%d", i))
	}
	all := want[api.LeaseList](t, s, 200, "LeaseList", "GET", "/v1/leases", "")
	if len(all.Leases) != 12 || all.Leases[0].Address != "10.8.64.2" || all.Leases[8].Address != "10.8.64.10" {
		t.Errorf("L9: not in numeric order: %+v", all.Leases)
	}
	if all.Revision != s.Book.Rev() || all.Epoch != s.Book.Epoch() {
		t.Errorf("revision %d, epoch %s", all.Revision, all.Epoch)
	}
	for query, n := range map[string]int{
		"?sandbox=box-3": 1, "?state=reserved": 12, "?state=bound": 0, "?pool=default": 12,
		"?sandbox=box-3&state=reserved&pool=default": 1,
	} {
		if got := want[api.LeaseList](t, s, 200, "LeaseList", "GET", "/v1/leases"+query, ""); len(got.Leases) != n {
			t.Errorf("%s: %d leases, want %d", query, len(got.Leases), n)
		}
	}
	for query, n := range map[string]int{
		"": 12, "?limit=3": 3, "?address=10.8.64.5": 1, "?sandbox=box-3": 1, "?lease=" + all.Leases[0].ID: 1,
		"?since=2126-01-01T00:00:00Z": 0,
	} {
		got := want[api.ChangeList](t, s, 200, "ChangeList", "GET", "/v1/changes"+query, "")
		if len(got.Changes) != n {
			t.Errorf("%s: %d changes, want %d", query, len(got.Changes), n)
		}
	}
	pools := want[api.PoolList](t, s, 200, "PoolList", "GET", "/v1/pools", "")
	if p := pools.Pools[0]; p.Size != 253 || p.Free != 241 || p.ByState["reserved"] != 12 {
		t.Errorf("pool: %+v", p)
	}
}

func TestWhoisWitnesses(t *testing.T) {
	s := speak(t, servertest.Start(t))
	addr := netip.MustParseAddr("10.8.64.9")
	s.Board.Replace(census.Netns, map[string][]census.Sighting{"7": {{Addr: addr, Bridge: "rt0", Port: "veth1"}}}, nil)
	s.Board.Silence(census.Runtime, context.DeadlineExceeded)
	who := want[api.WhoisReply](t, s, 200, "WhoisReply", "GET", "/v1/addresses/10.8.64.9", "")
	var message []string
	for _, w := range who.Witnesses {
		message = append(message, w.Witness+" "+w.Answer)
	}
	if got := strings.Join(message, ", "); got != "runtime silent, netns seen, host not seen, neighbour not seen" {
		t.Errorf("witnesses: %s", got)
	}
	if who.State != api.Free || !who.Usable || who.Pool != "default" || who.Witnesses[1].Seen[0].Port != "veth1" {
		t.Errorf("whois: %+v", who)
	}
	for ip, note := range map[string]string{"10.8.64.1": "the gateway", "10.8.64.0": "the network address", "192.0.2.1": "in no pool", "fd00::1": "in no pool"} {
		if who := want[api.WhoisReply](t, s, 200, "WhoisReply", "GET", "/v1/addresses/"+ip, ""); who.Usable || who.Note != note {
			t.Errorf("%s: usable %v, %q; want %q", ip, who.Usable, who.Note, note)
		}
	}
}

func TestQuarantine(t *testing.T) {
	s := speak(t, servertest.Start(t))
	path := "/v1/addresses/10.8.64.7"
	q := want[api.LeaseReply](t, s, 200, "LeaseReply", "POST", path+"/quarantine", `{"reason":"a printer"}`)
	if q.Lease.Hold != "a printer" || len(q.Lease.Evidence) != 0 {
		t.Errorf("held: %+v", q.Lease)
	}
	if st := want[api.Status](t, s, 200, "Status", "GET", "/v1/status", ""); st.LastConflict != nil || len(st.Quarantined) != 1 {
		t.Errorf("status: an operator's is a conflict: %+v, or not quarantined: %+v", st.LastConflict, st.Quarantined)
	}
	if who := want[api.WhoisReply](t, s, 200, "WhoisReply", "GET", path, ""); who.Owner != "" || who.Lease == nil || who.History[0].Note != "a printer" {
		t.Errorf("whois: %+v", who)
	}
	// While a workload is seen there, it is not cleared, and nothing changes.
	port := map[string][]census.Sighting{"7": {{Addr: netip.MustParseAddr("10.8.64.7"), Bridge: "rt0", Port: "veth1"}}}
	s.Board.Replace(census.Netns, port, nil)
	rev := s.Book.Rev()
	a := s.ask(t, "POST", path+"/clear", "")
	if a.err.Code != api.StateNotAllowed || !strings.Contains(a.err.Message, "the netns witness sees it on veth1") || s.Book.Rev() != rev {
		t.Errorf("cleared while seen: %d %s", a.status, a.body)
	}
	if e, ok := a.err.Details["evidence"].([]any); !ok || len(e) != 1 || e[0].(map[string]any)["port"] != "veth1" {
		t.Errorf("evidence: %v", a.err.Details)
	}
	s.Board.Replace(census.Netns, nil, nil)
	if c := want[api.LeaseReply](t, s, 200, "LeaseReply", "POST", path+"/clear", ""); c.Lease.State != api.Cooling {
		t.Errorf("cleared: %+v", c.Lease)
	}
	if a := s.ask(t, "POST", path+"/clear", ""); a.err.Code != api.StateNotAllowed {
		t.Errorf("cleared again: %s", a.body)
	}
	allocate(t, s, "a")
	if a := s.ask(t, "POST", "/v1/addresses/10.8.64.2/quarantine", `{"reason":"mine"}`); a.status != 409 {
		t.Errorf("quarantine of a held address: %d %s", a.status, a.body)
	}
}

// TestExhausted is L7 at the socket: typed, with what the pool is full of,
// and /readyz red until an address has cooled.
func TestExhausted(t *testing.T) {
	clock := netdbtest.NewClock()
	opts := netdbtest.Options()
	opts.Now = clock.Now
	book := netdbtest.OpenAt(t, t.TempDir()+"/book.db", opts)
	netdbtest.Pool(t, book, "small", "10.9.0.0/30")
	rig := &servertest.Rig{Book: book}
	s := speak(t, servertest.Start(t, func(c *server.Config) {
		small := servertest.Config(rig)
		c.Book, c.Allocator, c.Releaser = small.Book, small.Allocator, small.Releaser
	}))
	want[api.Health](t, s, 200, "Health", "GET", "/readyz", "")
	l := allocate(t, s, "a")
	a := s.ask(t, "POST", "/v1/leases", `{"sandbox":"b"}`)
	if a.err.Code != api.PoolExhausted || a.status != 503 || !a.err.Retryable || a.err.Details["pool"] != "small" ||
		a.err.Details["by_state"].(map[string]any)["reserved"] != 1.0 {
		t.Errorf("full: %d %s", a.status, a.body)
	}
	red := want[api.Health](t, s, 503, "Health", "GET", "/readyz", "")
	if len(red.Reasons) != 1 || red.Reasons[0] != "every pool is exhausted" {
		t.Errorf("readyz: %+v", red)
	}
	want[api.LeaseReply](t, s, 202, "LeaseReply", "POST", "/v1/leases/"+l.ID+"/release", "")
	rig.Confirm(t, l.ID)
	want[api.Health](t, s, 503, "Health", "GET", "/readyz", "")
	clock.Pass(netdbtest.Policy.CooldownMin)
	want[api.Health](t, s, 200, "Health", "GET", "/readyz", "")
	if b := want[api.AllocateReply](t, s, 201, "AllocateReply", "POST", "/v1/leases", `{"sandbox":"b"}`); !b.EarlyReuse {
		t.Errorf("L8: early reuse is not reported: %+v", b)
	}
	// L4: a's late release does not touch b.
	if a := s.ask(t, "POST", "/v1/leases/"+l.ID+"/release", ""); a.err.Code != api.LeaseGone || a.status != 410 {
		t.Errorf("late release: %d %s", a.status, a.body)
	}
}

func TestHealth(t *testing.T) {
	s := speak(t, servertest.Start(t, func(c *server.Config) {
		c.NotReady = func() []string { return []string{"the first census is not done"} }
		c.Doctor = func(context.Context) []api.Finding { return []api.Finding{{Kind: "stray", Detail: "d", Repair: "m"}} }
	}))
	s.Board.Silence(census.Runtime, context.DeadlineExceeded)
	want[api.Health](t, s, 200, "Health", "GET", "/healthz", "")
	if h := want[api.Health](t, s, 503, "Health", "GET", "/readyz", ""); h.Reasons[0] != "the first census is not done" {
		t.Errorf("readyz: %+v", h)
	}
	st := want[api.Status](t, s, 200, "Status", "GET", "/v1/status", "")
	if st.Ready || len(st.NotReady) != 1 || st.PID == 0 || len(st.Silent) != 1 || st.Book.Synchronous != "full" || st.Allocation != "require kernel" {
		t.Errorf("status: %+v", st)
	}
	if d := want[api.DoctorReply](t, s, 200, "DoctorReply", "GET", "/v1/doctor", ""); len(d.Findings) != 1 {
		t.Errorf("doctor: %+v", d)
	}
	want[api.VersionReply](t, s, 200, "VersionReply", "GET", "/v1/version", "")
	if a := s.ask(t, "GET", "/metrics", ""); a.status != 200 || string(a.body) != "ipamd_ready 1\n" {
		t.Errorf("metrics: %d %s", a.status, a.body)
	}
}

// refusing is an allocator that answers with one error.
type refusing struct{ err error }

func (r refusing) Allocate(context.Context, allocator.Request) (*allocator.Result, error) {
	return nil, r.err
}

func TestAllocatorRefuses(t *testing.T) {
	addr := netip.MustParseAddr("10.8.64.2")
	seen := []census.Sighting{{Addr: addr, Witness: census.Netns, At: time.Now(), Port: "veth1"}}
	for _, c := range []struct {
		name   string
		err    error
		status int
		code   api.Code
		detail string
	}{
		{"conflicts", &allocator.ConflictError{Skipped: []allocator.Skipped{{Addr: addr, Seen: seen}}}, 503, api.ConflictLimit, "addresses"},
		{"exhausted after conflicts", fmt.Errorf("%w; and %w", &ipam.ExhaustedError{Pool: "default"},
			&allocator.ConflictError{Skipped: []allocator.Skipped{{Addr: addr, Seen: seen}}}), 503, api.PoolExhausted, "addresses"},
		{"evidence", &allocator.EvidenceError{Silent: []census.Silence{{Witness: census.Netns, Reason: "r"}}}, 503, api.EvidenceUnavailable, "silent"},
		{"kept for another", &ipam.KeptError{Addr: addr, Pool: "default", Sandbox: "db"}, 409, api.AddressTaken, "kept_for"},
		{"bridge", fmt.Errorf("rt0 is down: %w", allocator.ErrBridge), 503, api.BridgeNotReady, ""},
		{"not ready", allocator.ErrNotReady, 503, api.NotReady, ""},
		{"identity", netdb.ErrIdentity, 503, api.IdentityMismatch, ""},
		{"deadline", fmt.Errorf("reserve: %w", context.DeadlineExceeded), 504, api.DeadlineExceeded, ""},
		{"unknown", fmt.Errorf("disk sda3 sector 7"), 500, api.Internal, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := speak(t, servertest.Start(t, func(cfg *server.Config) { cfg.Allocator = refusing{c.err} }))
			a := s.ask(t, "POST", "/v1/leases", `{"sandbox":"box-1"}`)
			if a.status != c.status || a.err.Code != c.code {
				t.Errorf("%d %s", a.status, a.body)
			}
			if _, ok := a.err.Details[c.detail]; c.detail != "" && !ok {
				t.Errorf("details: %v", a.err.Details)
			}
			if c.code == api.ConflictLimit {
				text, _ := json.Marshal(a.err.Details["addresses"].([]any)[0])
				s.doc.Check(t, "Skipped", text)
			}
			if internal := c.code == api.Internal; internal {
				if strings.Contains(string(a.body), "sector") {
					t.Errorf("the answer has internals: %s", a.body)
				}
				if s.Log.Count("sector 7") != 1 || s.Log.Count("sandbox=box-1") != 1 {
					t.Error("not logged once with its sandbox")
				}
			}
		})
	}
}

// TestClosed: a book that is closed is a daemon that is not ready.
func TestClosed(t *testing.T) {
	s := speak(t, servertest.Start(t))
	l := allocate(t, s, "a")
	netdbtest.Close(t, s.Book)
	if a := s.ask(t, http.MethodPost, "/v1/leases/"+l.ID+"/pause", ""); a.err.Code != api.NotReady {
		t.Errorf("%d %s", a.status, a.body)
	}
}
