package server_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/server/servertest"
)

// TestBadInput has a row for each way to be wrong. Each is refused with the
// argument's name, and leaves the book as it was.
func TestBadInput(t *testing.T) {
	s := speak(t, servertest.Start(t))
	lease := "/v1/leases/" + allocate(t, s, "held").ID
	rev := s.Book.Rev()
	const alloc, q = "/v1/leases", "/v1/addresses/10.8.64.7/quarantine"
	for _, c := range []struct{ name, method, path, body, field, says string }{
		{"unknown field", "POST", alloc, `{"sandbx":"a"}`, "sandbx", "did you mean sandbox?"},
		{"unknown field far from any", "POST", alloc, `{"sandbox":"a","zzzzzzzzzz":1}`, "zzzzzzzzzz", "is not known"},
		{"field in the wrong case", "POST", alloc, `{"Sandbox":"a"}`, "Sandbox", "did you mean sandbox?"},
		{"field without a name", "POST", alloc, `{"":"a"}`, "body", "is not known"},
		{"field twice", "POST", alloc, `{"sandbox":"a","sandbox":"b"}`, "sandbox", "twice"},
		{"no object", "POST", alloc, `["a"]`, "body", "not a JSON object"},
		{"null", "POST", alloc, `null`, "body", "not a JSON object"},
		{"no JSON", "POST", alloc, `{sandbox:a}`, "body", "not JSON from byte 1"},
		{"half of it", "POST", alloc, `{"sandbox":"a"`, "body", "middle"},
		{"something behind", "POST", alloc, `{"sandbox":"a"} {}`, "body", "not JSON from byte 16"},
		{"broken UTF-8", "POST", alloc, "{\"sandbox\":\"a\xff\"}", "body", "not UTF-8"},
		{"half a surrogate", "POST", alloc, `{"sandbox":"\ud800"}`, "body", "not JSON"},
		{"empty body", "POST", alloc, ``, "sandbox", "empty"},
		{"only spaces", "POST", alloc, " \n", "sandbox", "empty"},
		{"no sandbox", "POST", alloc, `{}`, "sandbox", "empty"},
		{"sandbox is null", "POST", alloc, `{"sandbox":null}`, "sandbox", "empty"},
		{"sandbox is a number", "POST", alloc, `{"sandbox":7}`, "sandbox", "want a string, got a number"},
		{"sandbox of 254 bytes", "POST", alloc, `{"sandbox":"` + strings.Repeat("x", 254) + `"}`, "sandbox", "254"},
		{"uid is a list", "POST", alloc, `{"sandbox":"a","uid":["b"]}`, "uid", "want a string, got a list"},
		{"uid of 254 bytes", "POST", alloc, `{"sandbox":"a","uid":"` + strings.Repeat("x", 254) + `"}`, "uid", "254"},
		{"attempt is text", "POST", alloc, `{"sandbox":"a","attempt":"1"}`, "attempt", "want a whole number"},
		{"attempt is 1.5", "POST", alloc, `{"sandbox":"a","attempt":1.5}`, "attempt", "want a whole number"},
		{"attempt beyond 64 bits", "POST", alloc, `{"sandbox":"a","attempt":9223372036854775808}`, "attempt", "want a whole number"},
		{"pool is a truth value", "POST", alloc, `{"sandbox":"a","pool":true}`, "pool", "want a string, got a truth value"},
		{"interface with a slash", "POST", alloc, `{"sandbox":"a","interface":"e/0"}`, "interface", "character"},
		{"interface of 16 bytes", "POST", alloc, `{"sandbox":"a","interface":"0123456789abcdef"}`, "interface", "15"},
		{"family is an object", "POST", alloc, `{"sandbox":"a","family":{}}`, "family", "want a string"},
		{"address is no address", "POST", alloc, `{"sandbox":"a","address":"10.8.64.999"}`, "address", "not an IP address"},
		{"address with leading zeros", "POST", alloc, `{"sandbox":"a","address":"10.8.64.007"}`, "address", "not an IP address"},
		{"address with a length", "POST", alloc, `{"sandbox":"a","address":"10.8.64.9/24"}`, "address", "write 10.8.64.9"},
		{"address inside IPv6", "POST", alloc, `{"sandbox":"a","address":"::ffff:10.8.64.9"}`, "address", "write 10.8.64.9"},
		{"address with a zone", "POST", alloc, `{"sandbox":"a","address":"fe80::1%eth0"}`, "address", "write fe80::1"},
		{"bind_within without unit", "POST", alloc, `{"sandbox":"a","bind_within":"5"}`, "bind_within", "not a duration"},
		{"bind_within is negative", "POST", alloc, `{"sandbox":"a","bind_within":"-5m"}`, "bind_within", "negative"},
		{"bind_within is a number", "POST", alloc, `{"sandbox":"a","bind_within":300}`, "bind_within", "want a string"},
		{"bind_within of two days", "POST", alloc, `{"sandbox":"a","bind_within":"48h"}`, "bind_within", "24h"},
		{"netns beside a bind", "POST", alloc, `{"sandbox":"a","netns":"/run/netns/a","bind":{"netns":"/run/netns/a"}}`, "netns", "beside attach or bind"},
		{"netns beside a slot", "POST", alloc, `{"sandbox":"a","netns":"/run/netns/a","warm":{}}`, "warm", "beside netns"},
		{"labels are a list", "POST", alloc, `{"sandbox":"a","labels":["b"]}`, "labels", "want an object, got a list"},
		{"a label is a number", "POST", alloc, `{"sandbox":"a","labels":{"b":1}}`, "labels.b", "want a string"},
		{"a label without a key", "POST", alloc, `{"sandbox":"a","labels":{"":"1"}}`, "labels", "key"},
		{"a parameter on a change", "POST", alloc + "?force=1", `{"sandbox":"a"}`, "force", "takes none"},

		{"bind to nothing", "POST", lease + "/bind", `{}`, "containers", "nothing to bind to"},
		{"bind: unknown field", "POST", lease + "/bind", `{"containrs":[]}`, "containrs", "did you mean containers?"},
		{"bind: unknown field of a container", "POST", lease + "/bind", `{"containers":[{"namespace":"d","idd":"c"}]}`, "containers[0].idd", "did you mean id?"},
		{"bind: containers is text", "POST", lease + "/bind", `{"containers":"c"}`, "containers", "want a list, got a string"},
		{"bind: a container is text", "POST", lease + "/bind", `{"containers":["c"]}`, "containers[0]", "want an object, got a string"},
		{"bind: a container without id", "POST", lease + "/bind", `{"containers":[{"namespace":"d"}]}`, "containers[0].id", "containerd allows"},
		{"bind: a namespace that containerd refuses", "POST", lease + "/bind", `{"containers":[{"namespace":"d","id":"c"},{"namespace":"d/e","id":"c"}]}`, "containers[1].namespace", "containerd allows"},
		{"bind: gone without id", "POST", lease + "/bind", `{"gone":[{"namespace":"d"}]}`, "gone[0].id", "containerd allows"},
		{"bind: gone and there", "POST", lease + "/bind", `{"containers":[{"namespace":"d","id":"c"}],"gone":[{"namespace":"d","id":"c"}]}`, "gone[0]", "among the containers"},
		{"bind: if_revision is text", "POST", lease + "/bind", `{"mac":"02:00:00:00:00:01","if_revision":"1"}`, "if_revision", "want a whole number"},
		{"bind: netns is relative", "POST", lease + "/bind", `{"netns":"run/netns/a"}`, "netns", "absolute"},
		{"bind: host_interface is no name", "POST", lease + "/bind", `{"host_interface":"veth 1"}`, "host_interface", "interface name"},
		{"bind: mac is no MAC", "POST", lease + "/bind", `{"mac":"02:42"}`, "mac", "Ethernet"},
		{"bind: mac is broadcast", "POST", lease + "/bind", `{"mac":"ff:ff:ff:ff:ff:ff"}`, "mac", "unicast"},
		{"bind: mac is multicast", "POST", lease + "/bind", `{"mac":"01:00:5e:00:00:01"}`, "mac", "unicast"},
		{"bind: mac is zero", "POST", lease + "/bind", `{"mac":"00:00:00:00:00:00"}`, "mac", "unicast"},
		{"bind: mac is a number", "POST", lease + "/bind", `{"mac":2}`, "mac", "want a string"},

		{"pause: unknown field", "POST", lease + "/pause", `{"wait":"1s"}`, "wait", "is not known"},
		{"resume: a negative revision", "POST", lease + "/resume", `{"if_revision":-1}`, "if_revision", "below 0"},
		{"pause takes no list", "POST", lease + "/pause", `[]`, "body", "not a JSON object"},

		{"release: another uid", "POST", lease + "/release", `{"uid":"next"}`, "uid", "held"},
		{"release: wait without unit", "POST", lease + "/release", `{"wait":"5"}`, "wait", "not a duration"},
		{"release: wait is negative", "POST", lease + "/release", `{"wait":"-1s"}`, "wait", "negative"},
		{"release: wait of an hour", "POST", lease + "/release", `{"wait":"1h"}`, "wait", "longer than"},
		{"release: unknown field", "POST", lease + "/release", `{"wiat":"5s"}`, "wiat", "did you mean wait?"},
		{"force-release without reason", "POST", lease + "/force-release", `{}`, "reason", "1 to 1000 bytes"},
		{"release of no lease", "POST", "/v1/leases//release", ``, "path", "empty part"},
		{"path with dots", "POST", "/v1/leases/../leases/x/release", ``, "path", "dots"},
		{"id is not UTF-8", "GET", "/v1/leases/%ff", ``, "id", "UTF-8"},

		{"cancel without uid", "POST", "/v1/tombstones", `{"attempt":1}`, "uid", "empty"},
		{"cancel without attempt", "POST", "/v1/tombstones", `{"uid":"held"}`, "attempt", "below 1"},
		{"cancel: attempt below 0", "POST", "/v1/tombstones", `{"uid":"held","attempt":-1}`, "attempt", "below 1"},
		{"cancel: sandbox", "POST", "/v1/tombstones", `{"sandbox":"held","attempt":1}`, "sandbox", "is not known"},

		{"quarantine of no address", "POST", "/v1/addresses/printer/quarantine", `{"reason":"r"}`, "ip", "not an IP address"},
		{"quarantine of a prefix", "POST", "/v1/addresses/10.8.64.0%2F28/quarantine", `{"reason":"r"}`, "ip", "is a prefix"},
		{"quarantine without reason", "POST", q, ``, "reason", "1 to 1000 bytes"},
		{"quarantine: a long reason", "POST", q, `{"reason":"` + strings.Repeat("x", 1001) + `"}`, "reason", "1000"},
		{"quarantine: unknown field", "POST", q, `{"resaon":"r"}`, "resaon", "did you mean reason?"},
		{"clear of no address", "POST", "/v1/addresses/x/clear", ``, "ip", "not an IP address"},
		{"clear takes nothing", "POST", "/v1/addresses/10.8.64.7/clear", `{"reason":"r"}`, "reason", "takes none"},

		{"pause: an unknown mode", "POST", lease + "/pause", `{"mode":"doze"}`, "mode", "neither freeze nor hibernate"},
		{"pause: wake without a mode", "POST", lease + "/pause", `{"wake":{}}`, "mode", "is missing"},
		{"pause: do without a mode", "POST", lease + "/pause", `{"do":true}`, "mode", "is missing"},
		{"pause: port 0", "POST", lease + "/pause", `{"mode":"freeze","wake":{"ports":["0"]}}`, "wake.ports[0]", "no port 0"},
		{"pause: a range backwards", "POST", lease + "/pause", `{"mode":"freeze","wake":{"ports":["80","90-80"]}}`, "wake.ports[1]", "ends before it begins"},
		{"pause: a port beyond the last", "POST", lease + "/pause", `{"mode":"freeze","wake":{"ports":["65536"]}}`, "wake.ports[0]", "a range like"},
		{"pause: no source", "POST", lease + "/pause", `{"mode":"freeze","wake":{"sources":["web"]}}`, "wake.sources[0]", "not an IP address"},
		{"pause: a source of another family", "POST", lease + "/pause", `{"mode":"freeze","wake":{"sources":["fd00::/8"]}}`, "wake.sources[0]", "another family"},
		{"pause: an unknown protocol", "POST", lease + "/pause", `{"mode":"freeze","wake":{"protocols":["sctp"]}}`, "wake.protocols[0]", "none of tcp"},
		{"pause: an unknown field of a policy", "POST", lease + "/pause", `{"mode":"freeze","wake":{"port":["80"]}}`, "wake.port", "is not known"},
		{"pause: a wait that is none", "POST", lease + "/pause", `{"mode":"freeze","wake":{"wait":"soon"}}`, "wake.wait", "not a duration"},
		{"resume with a mode", "POST", lease + "/resume", `{"mode":"freeze"}`, "mode", "is of a pause"},
		{"wake: a long wait", "POST", lease + "/wake", `{"wait":"61s"}`, "wait", "longer than"},
		{"ack without a flight", "POST", lease + "/wake/ack", `{"outcome":"woken"}`, "flight", "is missing"},
		{"ack of no outcome", "POST", lease + "/wake/ack", `{"flight":"x"}`, "outcome", "none of waking"},
		{"reconcile: both", "POST", "/v1/reconcile", `{"preview":true,"confirm":true}`, "confirm", "excludes preview"},
		{"reconcile: preview is text", "POST", "/v1/reconcile", `{"preview":"yes"}`, "preview", "want true or false, got a string"},
		{"reconcile: unknown field", "POST", "/v1/reconcile", `{"dry_run":true}`, "dry_run", "is not known"},
		{"reconcile: parameter", "POST", "/v1/reconcile?preview=1", ``, "preview", "takes none"},

		{"whois of a name", "GET", "/v1/addresses/web", ``, "ip", "not an IP address"},
		{"whois with a zone", "GET", "/v1/addresses/fe80::1%25eth0", ``, "ip", "write fe80::1"},
		{"whois with a parameter", "GET", "/v1/addresses/10.8.64.2?history=1", ``, "history", "takes none"},
		{"leases: unknown parameter", "GET", alloc + "?sandbx=a", ``, "sandbx", "did you mean sandbox?"},
		{"leases: parameter twice", "GET", alloc + "?state=bound&state=paused", ``, "state", "2 times"},
		{"leases: empty parameter", "GET", alloc + "?pool=", ``, "pool", "leave it out"},
		{"leases: no such state", "GET", alloc + "?state=free", ``, "state", "reserved, bound, paused"},
		{"leases: no such pool", "GET", alloc + "?pool=defualt", ``, "pool", `there is no pool "defualt"; there is: default`},
		{"leases: not UTF-8", "GET", alloc + "?sandbox=%ff", ``, "sandbox", "UTF-8"},
		{"leases: broken escape", "GET", alloc + "?sandbox=%zz", ``, "query", "well formed"},
		{"a read with a body", "GET", alloc + "/x", `{}`, "body", "takes none"},
		{"changes: address", "GET", "/v1/changes?address=10.8.64", ``, "address", "not an IP address"},
		{"changes: since", "GET", "/v1/changes?since=yesterday", ``, "since", "2026-01-31T14:05:00Z"},
		{"changes: limit is 0", "GET", "/v1/changes?limit=0", ``, "limit", "1 to 10000"},
		{"changes: limit is text", "GET", "/v1/changes?limit=all", ``, "limit", "1 to 10000"},
		{"changes: limit is huge", "GET", "/v1/changes?limit=10001", ``, "limit", "1 to 10000"},
		{"pools with a parameter", "GET", "/v1/pools?name=x", ``, "name", "takes none"},
		{"status with a parameter", "GET", "/v1/status?v=1", ``, "v", "takes none"},
		{"doctor with a parameter", "GET", "/v1/doctor?fix=1", ``, "fix", "takes none"},
		{"version with a parameter", "GET", "/v1/version?v=1", ``, "v", "takes none"},
		{"healthz with a parameter", "GET", "/healthz?verbose=1", ``, "verbose", "takes none"},
		{"readyz with a parameter", "GET", "/readyz?verbose=1", ``, "verbose", "takes none"},
		{"metrics with a parameter", "GET", "/metrics?name=x", ``, "name", "takes none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := s.ask(t, c.method, c.path, c.body)
			if a.status != 400 {
				t.Fatalf("%d %s", a.status, a.body)
			}
			if a.err.Code != api.InvalidArgument || a.err.Details["field"] != c.field || !strings.Contains(a.err.Message, c.says) {
				t.Errorf("%s\nwant the field %q and %q", a.body, c.field, c.says)
			}
			if a.err.Retryable || a.err.Revision != rev || a.err.Epoch != s.Book.Epoch() {
				t.Errorf("retryable %v, revision %d, epoch %s", a.err.Retryable, a.err.Revision, a.err.Epoch)
			}
		})
	}
	if s.Book.Rev() != rev {
		t.Errorf("bad input moved the book from revision %d to %d", rev, s.Book.Rev())
	}
	if n := s.Log.Count(""); n != 0 {
		t.Errorf("bad input wrote %d lines to the log", n)
	}
}

// TestNotThere: what is not on the map, and ids that no lease has.
func TestNotThere(t *testing.T) {
	s := speak(t, servertest.Start(t))
	none := "0193f2a5-7c1e-7a44-9d0b-3a6a5a0c9b21"
	for _, c := range []struct {
		method, path, body string
		status             int
		code               api.Code
		allow              string
	}{
		{"GET", "/", "", 404, api.NotFound, ""},
		{"GET", "/v2/leases", "", 404, api.NotFound, ""},
		{"POST", "/v1/leases/" + none + "/steal", "", 404, api.NotFound, ""},
		{"DELETE", "/v1/leases", "", 405, api.InvalidArgument, "POST, GET"},
		{"DELETE", "/v1/addresses/10.8.64.2", "", 405, api.InvalidArgument, "GET"},
		{"PUT", "/v1/leases/" + none + "/release", "", 405, api.InvalidArgument, "POST"},
		{"POST", "/healthz", "", 405, api.InvalidArgument, "GET"},
		{"GET", "/v1/leases/" + none, "", 404, api.NotFound, ""},
		{"POST", "/v1/leases/" + none + "/bind", `{"netns":"/n"}`, 404, api.NotFound, ""},
		{"POST", "/v1/leases/" + none + "/pause", "", 404, api.NotFound, ""},
		{"POST", "/v1/leases/" + none + "/release", "", 404, api.NotFound, ""},
		{"POST", "/v1/leases/a%2Fb/release", "", 404, api.NotFound, ""},
		{"POST", "/v1/leases", `{"sandbox":"a","pool":"other"}`, 404, api.NotFound, ""},
		{"POST", "/v1/leases", `{"sandbox":"a","address":"10.8.64.1"}`, 400, api.NotInPool, ""},
		{"POST", "/v1/addresses/192.0.2.1/quarantine", `{"reason":"r"}`, 400, api.NotInPool, ""},
		{"POST", "/v1/addresses/10.8.64.7/clear", "", 409, api.StateNotAllowed, ""},
	} {
		t.Run(fmt.Sprint(c.method, " ", c.path), func(t *testing.T) {
			a := s.ask(t, c.method, c.path, c.body)
			if a.status != c.status || a.err.Code != c.code || a.header.Get("Allow") != c.allow {
				t.Errorf("%d, Allow %q: %s", a.status, a.header.Get("Allow"), a.body)
			}
		})
	}
}
