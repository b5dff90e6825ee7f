package main

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/realtest"
)

// asNobody runs f while the whole process, every thread of it, has the rights
// of the user nobody.
func asNobody(t *testing.T, f func() int) int {
	t.Helper()
	realtest.Root(t)
	if err := syscall.Setreuid(-1, 65534); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setreuid(-1, 0); err != nil {
			t.Fatal(err)
		}
	}()
	return f()
}

// What a person types is what the daemon is asked: each flag ends in its
// field, and nothing else is sent.
func TestRequests(t *testing.T) {
	for _, ask := range []struct {
		line   string
		verb   api.Verb
		target string
		body   any
	}{
		{"leases --sandbox 'a b&c' --state bound --pool default", api.VerbLeases, "/v1/leases?limit=4096&pool=default&sandbox=a+b%26c&state=bound", nil},
		{"whois fd00:8:64:0::7", api.VerbWhois, "/v1/addresses/fd00:8:64::7", nil},
		{"history 10.8.64.2 --since 1h --limit 7", api.VerbChanges, "/v1/changes?address=10.8.64.2&limit=7&since=2026-11-21T11%3A00%3A00Z", nil},
		{"history --since 2026-11-20T10:00:00+02:00 web-1", api.VerbChanges, "/v1/changes?limit=50&sandbox=web-1&since=2026-11-20T08%3A00%3A00Z", nil},
		{"history web-1 --since 2026-11-20", api.VerbChanges, "/v1/changes?limit=50&sandbox=web-1&since=2026-11-20T00%3A00%3A00Z", nil},
		{"reconcile", api.VerbReconcile, "/v1/reconcile", api.ReconcileRequest{}},
		{"reconcile --preview", api.VerbReconcile, "/v1/reconcile", api.ReconcileRequest{Preview: true}},
		{"reconcile --confirm", api.VerbReconcile, "/v1/reconcile", api.ReconcileRequest{Confirm: true}},
		{"reconcile --confirm-orphans 7-0a", api.VerbReconcile, "/v1/reconcile", api.ReconcileRequest{ConfirmOrphans: "7-0a"}},
		{"history --lease " + id(2), api.VerbChanges, "/v1/changes?lease=" + id(2) + "&limit=50", nil},
		{"allocate team/x", api.VerbAllocate, "/v1/leases", api.AllocateRequest{Sandbox: "team/x"}},
		{"allocate web-3 --uid u --attempt 2 --pool default --family dual --interface eth1 --address 10.8.64.9 --bind-within 15m --label tier=front --label 'note=a,b=c'",
			api.VerbAllocate, "/v1/leases", api.AllocateRequest{
				Sandbox: "web-3", UID: "u", Attempt: 2, Pool: "default", Family: api.Dual, Interface: "eth1", Address: "10.8.64.9",
				BindWithin: "15m0s", Labels: map[string]string{"tier": "front", "note": "a,b=c"},
			}},
		{"bind " + id(2) + " --container sandbox/web-1 --container other/log --netns /run/netns/x --host-interface veth1 --mac 02:42:0a:08:40:02 --gone other/old --if-revision 9",
			api.VerbBind, "/v1/leases/" + id(2) + "/bind", api.BindRequest{
				Containers: []api.Container{{Namespace: "sandbox", ID: "web-1"}, {Namespace: "other", ID: "log"}},
				Gone:       []api.Container{{Namespace: "other", ID: "old"}}, IfRevision: 9,
				Netns: "/run/netns/x", HostInterface: "veth1", MAC: "02:42:0a:08:40:02",
			}},
		{"release " + id(2) + " --uid web-1 --wait 2s --if-revision 9", api.VerbRelease, "/v1/leases/" + id(2) + "/release", api.ReleaseRequest{UID: "web-1", Wait: "2s", IfRevision: 9}},
		{"pause " + id(2) + " --if-revision 9", api.VerbPause, "/v1/leases/" + id(2) + "/pause", api.PauseRequest{IfRevision: 9}},
		{"pause " + id(2) + " --mode freeze --do --wake-port 80 --wake-port 8000-8100 --wake-from 10.8.64.0/24 --wake-protocol udp --wake-wait 2s --repause-after 10m", api.VerbPause,
			"/v1/leases/" + id(2) + "/pause", api.PauseRequest{Mode: api.Freeze, Do: true, Wake: &api.WakePolicy{Ports: []string{"80", "8000-8100"},
				Sources: []string{"10.8.64.0/24"}, Protocols: []string{"udp"}, Wait: "2s", RepauseAfter: "10m0s"}}},
		{"pause " + id(2) + " --mode hibernate --wake", api.VerbPause, "/v1/leases/" + id(2) + "/pause", api.PauseRequest{Mode: api.Hibernate, Wake: &api.WakePolicy{}}},
		{"wake " + id(2) + " --wait 2s", api.VerbWake, "/v1/leases/" + id(2) + "/wake", api.WakeRequest{Wait: "2s"}},
		{"resume " + id(4), api.VerbResume, "/v1/leases/" + id(4) + "/resume", api.PauseRequest{}},
		{"cancel web-1 --attempt 3", api.VerbCancel, "/v1/tombstones", api.CancelRequest{UID: "web-1", Attempt: 3}},
		{"release 00000000002", api.VerbRelease, "/v1/leases/" + id(2) + "/release", api.ReleaseRequest{}},
		{"pause 0000000000B", api.VerbPause, "/v1/leases/" + id(11) + "/pause", api.PauseRequest{}},
		{"history --lease 00000000002", api.VerbChanges, "/v1/changes?lease=" + id(2) + "&limit=50", nil},
		{"show 00000000002", api.VerbLease, "/v1/leases/" + id(2), nil},
		{"release --sandbox web-1 --uid u", api.VerbRelease, "/v1/leases/" + id(11) + "/release", api.ReleaseRequest{UID: "u"}},
		{"release ../../pools", api.VerbRelease, "/v1/leases/..%2F..%2Fpools/release", api.ReleaseRequest{}},
		{"quarantine add 10.8.64.9 --reason 'lab printer'", api.VerbQuarantine, "/v1/addresses/10.8.64.9/quarantine", api.QuarantineRequest{Reason: "lab printer"}},
		{"quarantine clear 10.8.64.7", api.VerbClear, "/v1/addresses/10.8.64.7/clear", nil},
		{"quarantine adopt 10.8.64.7 --sandbox a --uid u --interface eth1 --lease " + id(2) + " --container n/c --netns /n --host-interface veth1 --mac 02:42:0a:08:40:02 --reason why",
			api.VerbAdopt, "/v1/addresses/10.8.64.7/adopt", api.AdoptRequest{Sandbox: "a", UID: "u", Interface: "eth1", LeaseID: id(2),
				Containers: []api.Container{{Namespace: "n", ID: "c"}}, Netns: "/n", HostInterface: "veth1", MAC: "02:42:0a:08:40:02", Reason: "why"}},
		{"book check", api.VerbCheckBook, "/v1/book/check", nil},
		{"quarantine ls", api.VerbLeases, "/v1/leases?limit=4096&state=quarantined", nil},
		{"show web-1", api.VerbLeases, "/v1/leases?limit=4096&sandbox=web-1", nil},
		{"show " + id(2), api.VerbLease, "/v1/leases/" + id(2), nil},
	} {
		t.Run(ask.line, func(t *testing.T) {
			w := runner().serve(t)
			s := &screen{}
			w.ctl(t, s, words(ask.line)...)
			sent := w.sent(t)
			if sent.verb != string(ask.verb) || sent.target != ask.target {
				t.Errorf("asked %s %s\nwant  %s %s", sent.verb, sent.target, ask.verb, ask.target)
			}
			if ask.body == nil {
				if body := strings.TrimSpace(sent.body); body != "" && body != "{}" && body != "null" {
					t.Errorf("sent a body: %s", body)
				}
				return
			}
			want, err := json.Marshal(ask.body)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), strings.TrimSpace(sent.body)); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
		})
	}
}

// A sandbox whose name has the form of a lease id is still found.
func TestShowASandboxThatLooksLikeALease(t *testing.T) {
	w := runner()
	w.leases[0].Sandbox = id(77)
	w.serve(t)
	s := &screen{}
	if code := w.ctl(t, s, "show", id(77), "-q"); code != 0 || strings.TrimSpace(s.out.String()) != id(2) {
		t.Errorf("exit %d: %q %q", code, s.out.String(), s.err.String())
	}
}
