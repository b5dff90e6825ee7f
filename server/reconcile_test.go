package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/netdb/netdbtest"
	"github.com/ipamd/ipamd/server"
	"github.com/ipamd/ipamd/server/servertest"
)

// A preview changes nothing and is no last pass; a pass does what it reported.
func TestReconcile(t *testing.T) {
	s := speak(t, servertest.Start(t))
	first := want[api.Status](t, s, 200, "Status", "GET", "/v1/status", "").LastPass
	if first == nil || first.Leases != 0 || !first.Complete {
		t.Fatalf("the first pass: %+v", first)
	}
	addr := netip.MustParseAddr("10.8.64.9")
	seen, err := json.Marshal([]census.Sighting{{Addr: addr, Witness: census.Netns, At: time.Now()}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Book.Quarantine(context.Background(), netdbtest.Who(ipam.ByReconciler, "seen_on_wire"), addr, seen); err != nil {
		t.Fatal(err)
	}
	rev := s.Book.Rev()
	plan := want[api.ReconcileReply](t, s, 200, "ReconcileReply", "POST", "/v1/reconcile", `{"preview":true}`)
	if a := plan.Report.Actions; !plan.Report.Preview || len(a) != 1 || a[0].Address != "10.8.64.9" || a[0].Result != "planned" {
		t.Errorf("planned: %+v", plan.Report)
	}
	if l, _ := s.Book.At(addr); s.Book.Rev() != rev || l.State != ipam.Quarantined {
		t.Errorf("a preview moved the book from %d to %d", rev, s.Book.Rev())
	}
	if st := want[api.Status](t, s, 200, "Status", "GET", "/v1/status", ""); len(st.LastPass.Actions) != 0 {
		t.Errorf("a preview is the last pass: %+v", st.LastPass)
	}

	// While a witness is silent the pass says so, and lets nothing go (P4).
	s.Board.Silence(census.Netns, errors.New("the dump was interrupted"))
	silent := want[api.ReconcileReply](t, s, 200, "ReconcileReply", "POST", "/v1/reconcile", "")
	if silent.Report.Complete || len(silent.Report.Actions) != 0 || s.Book.Rev() != rev {
		t.Errorf("under silence: %+v", silent.Report)
	}
	s.Board.Replace(census.Netns, nil, nil)

	did := want[api.ReconcileReply](t, s, 200, "ReconcileReply", "POST", "/v1/reconcile", `{"confirm":true}`)
	if a := did.Report.Actions; len(a) != 1 || a[0].Result != "done" || did.Revision != rev+1 {
		t.Errorf("did: %+v", did)
	}
	st := want[api.Status](t, s, 200, "Status", "GET", "/v1/status", "")
	if st.LastPass == nil || len(st.LastPass.Actions) != 1 {
		t.Errorf("the last pass: %+v", st.LastPass)
	}
}

// What stands on the wire is as the schema says, also of a report with
// everything in it.
func TestReconcileReport(t *testing.T) {
	full := api.Report{Started: time.Now(), Took: time.Second, Leases: 3, Seen: 2, Absent: 1,
		Silent:  []api.Silence{{Witness: "runtime", Reason: "r", Since: time.Now()}},
		Actions: []api.Action{{Kind: "reap", Address: "10.8.64.2", LeaseID: "l", Sandbox: "a", Reason: "r", Result: "held", Error: "e"}},
		Held:    &api.Held{Releases: 9, Most: 5, Reason: "r"},
		Reports: []api.Finding{{Kind: "k", Detail: "d", Repair: "m"}}}
	var asked []bool
	s := speak(t, servertest.Start(t, func(c *server.Config) {
		c.Reconcile = func(_ context.Context, preview, confirm bool) (api.Report, error) {
			asked = append(asked, preview, confirm)
			return full, nil
		}
		c.LastPass = func() *api.Report { return &full }
	}))
	want[api.ReconcileReply](t, s, 200, "ReconcileReply", "POST", "/v1/reconcile", "")
	want[api.ReconcileReply](t, s, 200, "ReconcileReply", "POST", "/v1/reconcile", `{"confirm":true}`)
	want[api.Status](t, s, 200, "Status", "GET", "/v1/status", "")
	if fmt.Sprint(asked) != "[false false false true]" {
		t.Errorf("asked with %v", asked)
	}
}

// Before the daemon's own first pass no other one is made.
func TestReconcileBeforeTheFirstPass(t *testing.T) {
	s := speak(t, servertest.Start(t, func(c *server.Config) {
		c.LastPass = func() *api.Report { return nil }
		c.Reconcile = func(context.Context, bool, bool) (api.Report, error) {
			t.Error("a pass was made")
			return api.Report{}, nil
		}
	}))
	for _, body := range []string{"", `{"preview":true}`} {
		if a := s.ask(t, "POST", "/v1/reconcile", body); a.status != 503 || a.err.Code != api.NotReady || !a.err.Retryable {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	if st := want[api.Status](t, s, 200, "Status", "GET", "/v1/status", ""); st.LastPass != nil {
		t.Errorf("a pass before the first: %+v", st.LastPass)
	}
}

func TestReconcileRefuses(t *testing.T) {
	for err, code := range map[error]api.Code{
		netdb.ErrReadOnly: api.BookReadonly, netdb.ErrIdentity: api.IdentityMismatch, netdb.ErrBusy: api.BookBusy,
		context.DeadlineExceeded: api.DeadlineExceeded, errors.New("sector 7"): api.Internal,
	} {
		s := speak(t, servertest.Start(t, func(c *server.Config) {
			c.Reconcile = func(context.Context, bool, bool) (api.Report, error) {
				return api.Report{}, fmt.Errorf("pass: %w", err)
			}
		}))
		if a := s.ask(t, "POST", "/v1/reconcile", ""); a.err.Code != code || bytes.Contains(a.body, []byte("sector")) {
			t.Errorf("%v: %d %s", err, a.status, a.body)
		}
	}
}

// A pass may take longer than a call. W8: one that acts outlives the caller
// who hangs up, a preview does not; the daemon's stop ends both.
func TestReconcileOutlivesItsCaller(t *testing.T) {
	for _, c := range []struct {
		body string
		ends bool // with its caller
	}{{`{"preview":true}`, true}, {`{}`, false}} {
		t.Run(c.body, func(t *testing.T) {
			began, ended := make(chan time.Time, 1), make(chan error, 1)
			rig := servertest.Start(t, func(cfg *server.Config) {
				cfg.Deadline = time.Millisecond
				cfg.Reconcile = func(ctx context.Context, _, _ bool) (api.Report, error) {
					until, _ := ctx.Deadline()
					began <- until
					<-ctx.Done()
					ended <- ctx.Err()
					return api.Report{}, ctx.Err()
				}
			})
			caller := dial(t, rig)
			fmt.Fprintf(caller, "POST /v1/reconcile HTTP/1.1\r\nHost: ipamd\r\nContent-Length: %d\r\n\r\n%s", len(c.body), c.body)
			if until := <-began; time.Until(until) < api.LongestPass-time.Minute {
				t.Errorf("the pass has until %v", until)
			}
			caller.Close()
			if !c.ends {
				select {
				case err := <-ended:
					t.Fatalf("the pass ended with its caller: %v", err)
				case <-time.After(100 * time.Millisecond):
				}
				go rig.Stop()
			}
			select {
			case err := <-ended:
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			case <-time.After(soon):
				t.Error("the pass goes on")
			}
		})
	}
}

// Who looks up a releasing lease receives what keeps it; no other has to.
func TestBlockersOfALease(t *testing.T) {
	s := speak(t, servertest.Start(t))
	l := allocate(t, s, "a")
	if r := want[api.LeaseReply](t, s, 200, "LeaseReply", "GET", "/v1/leases/"+l.ID, ""); len(r.Blockers) != 0 {
		t.Errorf("reserved, and blocked by %v", r.Blockers)
	}
	want[api.LeaseReply](t, s, 202, "LeaseReply", "POST", "/v1/leases/"+l.ID+"/release", "")
	if r := want[api.LeaseReply](t, s, 200, "LeaseReply", "GET", "/v1/leases/"+l.ID, ""); len(r.Blockers) != 1 || r.Blockers[0].Kind != "unconfirmed" {
		t.Errorf("releasing, and blocked by %v", r.Blockers)
	}
	s.Confirm(t, l.ID)
	if r := want[api.LeaseReply](t, s, 200, "LeaseReply", "GET", "/v1/leases/"+l.ID, ""); len(r.Blockers) != 0 {
		t.Errorf("cooling, and blocked by %v", r.Blockers)
	}
}

// G11: that a person has looked at the held orphans is reported once, before the pass, and
// is refused with a preview and where there is no owner.
func TestG11ConfirmOrphans(t *testing.T) {
	received := 0
	s := speak(t, servertest.Start(t, func(c *server.Config) {
		c.ConfirmOrphans = func(set string) error {
			if received++; set != "2-0a" {
				return errors.New("they are others")
			}
			return nil
		}
	}))
	if a := s.ask(t, "POST", "/v1/reconcile", `{"confirm_orphans":"2-0a"}`); a.status != 200 || received != 1 {
		t.Errorf("%d %s; received %d times", a.status, a.body, received)
	}
	if a := s.ask(t, "POST", "/v1/reconcile", `{"confirm_orphans":"2-0a","preview":true}`); a.err.Code != api.InvalidArgument || received != 1 {
		t.Errorf("with a preview: %d %s; received %d times", a.status, a.body, received)
	}
	if a := s.ask(t, "POST", "/v1/reconcile", `{"confirm":true}`); a.status != 200 || received != 1 {
		t.Errorf("another word: %d %s; received %d times", a.status, a.body, received)
	}
	if a := s.ask(t, "POST", "/v1/reconcile", `{"confirm_orphans":"3-0b"}`); a.err.Code != api.InvalidArgument || received != 2 {
		t.Errorf("another set: %d %s", a.status, a.body)
	}
}
