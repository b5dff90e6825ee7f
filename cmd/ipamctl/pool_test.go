package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/term"
)

// pooled is a runner whose pools drain, hold leases outside, and would lose some.
func pooled() *world {
	w := runner()
	w.pools[0].State, w.pools[0].Outside = api.PoolDraining, 2
	w.pools[0].Labels, w.pools[0].Cooldown, w.pools[0].MTU = map[string]string{"team": "lab"}, "1h0m0s", 1400
	w.pools[0].Reservation = []api.PoolReservation{{Sandbox: "db", Address: "10.8.64.77"}}
	w.pools[0].DNS, w.pools[0].Routes = []string{"10.8.64.1"}, []api.Route{{Destination: "192.0.2.0/24", Via: "10.8.64.9"}}
	w.pools[1].NotReady = "rt1 is missing"
	w.pools[1].Warm = &api.PoolWarm{Size: 8, Max: 12}
	w.pools[1].Slots = &api.PoolSlots{Ready: 3, Making: 1, Wanted: 8, Why: "the warm helper is not running, which makes and takes down namespaces: systemctl start ipamd-warm"}
	w.pools[1].Repair = []string{"ip link add rt1 type bridge", "ip link set rt1 up"}
	w.leases[0].Outside = "outside 10.8.64.0/25"
	w.withheld = api.WithheldList{Revision: 812, Epoch: epoch, Withheld: []api.Withheld{
		{Address: "10.9.0.2", State: api.Cooling, Since: before(12 * time.Minute), Pool: "old", PoolUID: "p9", LeaseID: id(20)},
		{Address: "10.9.0.3", State: api.Quarantined, Since: before(time.Hour), Pool: "old", PoolUID: "p9", LeaseID: id(21), Sandbox: "evil\x1b[2J\nname",
			Evidence: []api.Sighting{{Address: "10.9.0.3", Witness: "book", Note: "pool old (p9) was removed by force while this was bound"}}},
		{Address: "10.9.0.16", PrefixLength: 28, State: api.Quarantined, Since: before(time.Hour), Pool: "old", PoolUID: "p9", LeaseID: id(22), Sandbox: "lab", Hold: "nothing would show its sandbox, which was paused"},
		{Address: "10.9.0.4", State: api.Quarantined, Since: before(time.Hour), Pool: "old", PoolUID: "p9", LeaseID: id(23),
			Evidence: []api.Sighting{{Address: "10.9.0.4", Witness: "netns", Port: "veth9", MAC: "02:42:0a:08:40:63"}}},
	}}
	w.whois["10.9.0.3"] = api.WhoisReply{Address: "10.9.0.3", State: api.Free, Note: "withheld since pool old was removed", Withheld: &w.withheld.Withheld[1], Revision: 812, Epoch: epoch}
	w.preview = true
	w.effects = []api.PoolEffect{
		{LeaseID: id(2), Address: "10.8.64.2", Sandbox: "web-1", State: api.Bound, Effect: api.EffectOutside, Note: "outside 10.8.64.0/25"},
		{LeaseID: id(4), Address: "10.8.64.128", PrefixLength: 28, Sandbox: "vm-1", State: api.Bound, Effect: api.EffectOutside, Note: "outside 10.8.64.0/25"},
		{LeaseID: id(5), Address: "10.8.64.5", Sandbox: "job-17", State: api.Releasing, Effect: api.EffectWithheld},
		{LeaseID: id(6), Address: "10.8.64.6", Sandbox: "job-16", State: api.Cooling, Effect: api.EffectEnds},
		{LeaseID: id(10), Address: "10.8.64.10", Sandbox: "evil\x1b[2J\nname", State: api.Bound, Effect: api.EffectInside},
	}
	return w
}

// TestPoolSessions plays the verbs on pools.
func TestPoolSessions(t *testing.T) {
	stale := pooled()
	stale.refuse = &api.Error{Code: api.StaleGeneration, Message: "pool default: generation 6 is stale: it is 7", Details: map[string]any{"generation": 7, "uid": "p4"}, Revision: 812, Epoch: epoch}
	golden(t, "pool", pooled().serve(t).session(t,
		"pool", "pool ls -o wide", "pool show default", "pool show default -o json", "pool show default -q", "pool show nowhere",
		"pool apply default --prefix 10.8.64.0/25 --drain --preview", "pool apply default --prefix 10.8.64.0/25 --preview -o json",
		"pool apply default --exclude 10.8.64.9", "pool apply", "pool apply default -f x.toml", "pool apply new --dns 10.8.64.1",
		"pool drain default --family v4", "pool drain default --family v4 --undo -q",
		"pool rm default --family v4 --mode force", "pool rm default --family v4 --mode force --reason gone --confirm -q", "pool rm default --mode frce",
		"pool withheld", "pool withheld old -o wide", "pool withheld -q", "pool withheld -o json", "pool withheld ''", "whois 10.9.0.3",
		"status", "leases", "show "+id(2))+
		stale.serve(t).session(t, "pool apply -f testdata/pools.toml"))
}

// TestAdoptionSessions: a look at another runner's book, which a pool is in the way of or not.
func TestAdoptionSessions(t *testing.T) {
	w := runner()
	w.adoption = api.AdoptBookReply{Mismatch: "the book is another runner's", Book: api.BookIdentity{RunnerUID: "one", MachineID: "m1", Epoch: epoch}, Host: api.BookIdentity{RunnerUID: "two", MachineID: "m2"},
		Live: 1, Leases: []api.BookLease{{Address: "10.8.64.2", State: api.Bound, Sandbox: "web-1", LeaseID: id(2), Standing: "live"}}, Revision: 812, Epoch: epoch,
		Refused: 1, Refusals: []api.BookRefusal{{Address: "10.8.64.4", Reason: "its row cannot be read, and stays as it is: labels"}}}
	output := w.serve(t).session(t, "book adopt")
	w.adoption.Refused, w.adoption.Blocked = 2, "configuration: pool other, 10.8.64.0/24: overlaps"
	w.adoption.Refusals = append(w.adoption.Refusals, api.BookRefusal{Address: "10.8.64.2", State: api.Bound, Sandbox: "web-1", LeaseID: id(2), PoolUID: "p4", NewPoolUID: "p8", Reason: "it is of the book's pool default"})
	golden(t, "book-adopt", output+w.session(t, "book adopt", "book adopt -q"))
}

// TestPoolRequests: each flag ends in its field; what no flag names stays as it is.
func TestPoolRequests(t *testing.T) {
	w := pooled().serve(t)
	same := api.PoolRequest{Prefix: "10.8.64.0/24", Gateway: "10.8.64.1", Bridge: "rt0", Exclude: []string{"10.8.64.200-10.8.64.250"}, UID: "p4", Generation: 2, Reservation: []api.PoolReservation{{Sandbox: "db", Address: "10.8.64.77"}},
		MTU: 1400, Cooldown: "1h0m0s", Labels: map[string]string{"team": "lab"}, DNS: []string{"10.8.64.1"}, Routes: []api.Route{{Destination: "192.0.2.0/24", Via: "10.8.64.9"}}}
	with := func(change func(*api.PoolRequest)) api.PoolRequest {
		r := same
		change(&r)
		return r
	}
	for _, ask := range []struct {
		line, target string
		body         any
	}{
		{"pool apply default --family v4 --drain --preview", "/v1/pools/default", with(func(r *api.PoolRequest) { r.Drain, r.Preview, r.Generation = true, true, 1 })},
		{"pool apply default --prefix 10.8.64.0/23 --gateway none", "/v1/pools/default", with(func(r *api.PoolRequest) { r.Prefix, r.Gateway = "10.8.64.0/23", "none" })},
		{"pool apply default --family v4 --dns '' --exclude '' --route '' --label '' --reserve '' --cooldown 0s --mtu 0", "/v1/pools/default", with(func(r *api.PoolRequest) {
			r.DNS, r.Exclude, r.Routes, r.Labels, r.Cooldown, r.MTU, r.Reservation = nil, nil, nil, nil, "", 0, nil
		})},
		{"pool apply default --family v4 --generation 9 --cooldown-min 5m --exhausted strict --bridge br1 --route 192.0.2.0/24=10.8.64.3 --label a=b --reserve db=10.8.64.9", "/v1/pools/default", with(func(r *api.PoolRequest) {
			r.Generation, r.CooldownMin, r.Exhausted, r.Bridge = 9, "5m0s", "strict", "br1"
			r.Routes, r.Labels = []api.Route{{Destination: "192.0.2.0/24", Via: "10.8.64.3"}}, map[string]string{"a": "b"}
			r.Reservation = []api.PoolReservation{{Sandbox: "db", Address: "10.8.64.9"}}
		})},
		{"pool apply default --family v4 --warm 8 --warm-max 12 --warm-strategy on_replenish", "/v1/pools/default", with(func(r *api.PoolRequest) {
			r.Warm = &api.PoolWarm{Size: 8, Max: 12, Strategy: "on_replenish"}
		})},
		{"pool apply default --family v4 --warm 0", "/v1/pools/default", with(func(r *api.PoolRequest) { r.Generation = 1 })}, // as it is
		{"pool apply new --prefix fd00:9::/64", "/v1/pools/new", api.PoolRequest{Prefix: "fd00:9::/64"}},
		{"pool apply -f testdata/pools.toml --preview", "/v1/pools/second", api.PoolRequest{Prefix: "fd00:8::/64", Generation: 7, Preview: true}},
		{"pool apply -f testdata/pools.json", "/v1/pools/default", api.PoolRequest{Prefix: "10.8.64.0/23", Exclude: []string{"10.8.64.200"}, Cooldown: "45m"}},
		{"pool drain default --family v6", "/v1/pools/default/drain", api.DrainRequest{UID: "p6"}},
		{"pool drain default --family v6 --undo --preview", "/v1/pools/default/undrain", api.DrainRequest{UID: "p6", Preview: true}},
		{"pool rm default --family v4", "/v1/pools/default?mode=empty&uid=p4", nil},
		{"pool rm default --family v4 --mode drain --preview", "/v1/pools/default?mode=drain&preview=true&uid=p4", nil},
		{"pool rm default --family v4 --mode force --confirm --reason gone", "/v1/pools/default?mode=force&reason=gone&uid=p4", nil},
		{"pool withheld 'old one'", "/v1/withheld?pool=old+one", nil},
		{"pool withheld", "/v1/withheld", nil},
		{"pool show 'a/b'", "/v1/pools/a%2Fb", nil},
	} {
		s := &screen{}
		w.ctl(t, s, words(ask.line)...)
		sent := w.sent(t)
		if sent.target != ask.target {
			t.Errorf("%s asked %s %s, want %s: %s", ask.line, sent.verb, sent.target, ask.target, s.err.String())
			continue
		}
		want := ""
		if ask.body != nil {
			b, err := json.Marshal(ask.body)
			if err != nil {
				t.Fatal(err)
			}
			want = string(b)
		}
		if d := cmp.Diff(want, strings.TrimSpace(sent.body)); d != "" {
			t.Errorf("%s (-want +sent):\n%s", ask.line, d)
		}
	}
}

// TestPoolFiles: a file that is wrong is refused before the daemon is asked anything, and
// a forced removal without --confirm is a preview.
func TestPoolFiles(t *testing.T) {
	w := pooled().serve(t)
	for name, text := range map[string]string{
		"no pool": "", "another key": "[[pool]]\nname='a'\nprefix='10.0.0.0/24'\ngate='10.0.0.1'", "another table": "[bridge]\nname='x'",
		"no name": "[[pool]]\nprefix='10.0.0.0/24'", "wrong type": "[[pool]]\nname='a'\nprefix=3", "two of one range": "[[pool]]\nname='a'\nprefix='10.0.0.0/24'\n[[pool]]\nname='b'\nprefix='10.0.0.128/25'", "half": "[[pool", "half JSON": "{\"pool\": [",
		"JSON's other key": `{"pool":[{"name":"a","prefix":"10.0.0.0/24","size":3}]}`, "too large": strings.Repeat("#", fileMost+1),
	} {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s := &screen{}
		if code := w.ctl(t, s, "pool", "apply", "-f", path); code != exitUsage || !strings.Contains(s.err.String(), path) {
			t.Errorf("%s: exit %d: %s", name, code, s.err.String())
		}
	}
	if code := w.ctl(t, &screen{}, "pool", "apply", "-f", "/no/such/file"); code != exitUsage {
		t.Errorf("a file that is not there: exit %d", code)
	}
	w.mu.Lock()
	asked := len(w.asked)
	w.mu.Unlock()
	if asked != 0 {
		t.Errorf("the daemon was asked: %v", w.asked)
	}
	s := &screen{}
	if code := w.ctl(t, s, "pool", "rm", "default", "--family", "v4", "--mode", "force"); code != exitUsage || !strings.Contains(w.sent(t).target, "preview=true") {
		t.Errorf("exit %d, asked %s", code, w.sent(t).target)
	}
}

// A change that leaves a pool without its gateway names the command that puts it there; a preview
// does not, for the bridge is as the pool was.
func TestPoolApplyNamesTheGateway(t *testing.T) {
	for _, preview := range []bool{false, true} {
		w := runner()
		w.pools[0].NotReady, w.pools[0].Repair, w.preview = "rt0 is without the gateway 10.8.64.1/23", []string{"ip addr add 10.8.64.1/23 dev rt0"}, preview
		w.serve(t)
		s := &screen{}
		if code := w.ctl(t, s, "pool", "apply", "default", "--family", "v4", "--mtu", "1400"); code != 0 {
			t.Fatalf("exit %d: %s", code, s.err.String())
		}
		if names := strings.Contains(s.out.String(), "gives nothing") && strings.Contains(s.out.String(), "next: ip addr add 10.8.64.1/23 dev rt0"); names == preview {
			t.Errorf("preview %v: %s", preview, s.out.String())
		}
	}
}

// TestPoolPreviewFits: what a preview says of each lease fits a terminal of 80 columns.
func TestPoolPreviewFits(t *testing.T) {
	w := pooled()
	w.effects[1].Sandbox, w.effects[1].Address = strings.Repeat("a-very-long-name-", 14), "fd00:8:64:1234:5678:9abc:def0:1234"
	w.serve(t)
	for _, line := range []string{"pool apply default --family v4 --preview", "pool rm default --family v4 --mode force --preview"} {
		s := &screen{terminal: true, columns: 80, env: map[string]string{"NO_COLOR": "1"}}
		w.ctl(t, s, words(line)...)
		for output := range strings.Lines(s.out.String()) {
			if n := term.Width(strings.TrimRight(output, "\n")); n > 80 {
				t.Errorf("%s: a line of %d columns: %q", line, n, output)
			}
		}
		for _, want := range []string{"10.8.64.0/24", w.effects[1].Address, "outside", "withheld", "ends", "inside"} {
			if !strings.Contains(s.out.String(), want) {
				t.Errorf("%s hides %q:\n%s", line, want, s.out.String())
			}
		}
	}
}
