package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/netdb/netdbtest"
	"github.com/ipamd/ipamd/server"
	"github.com/ipamd/ipamd/server/servertest"
)

const defaultPool = "/v1/pools/default"

// described is the pool named default as the socket lists it.
func described(t testing.TB, s *speaker) api.Pool {
	t.Helper()
	return want[api.PoolList](t, s, 200, "PoolList", "GET", defaultPool+"?family=v4", "").Pools[0]
}

// altered asks for a change of a pool that is made.
func altered(t testing.TB, s *speaker, method, path, body string) *api.PoolReply {
	t.Helper()
	return want[api.PoolReply](t, s, 200, "PoolReply", method, path, body)
}

// refused asks for what is refused with a code, and leaves the book as it was.
func refused(t testing.TB, s *speaker, code api.Code, method, path, body string) answer {
	t.Helper()
	rev := s.Book.Rev()
	a := s.ask(t, method, path, body)
	if a.err.Code != code {
		t.Errorf("%s %s %s: %d %s, want %s", method, path, body, a.status, a.body, code)
	}
	if now := s.Book.Rev(); now != rev {
		t.Errorf("%s %s %s: refused, and the book went from revision %d to %d", method, path, body, rev, now)
	}
	return a
}

func decoded(t testing.TB, a answer) *api.PoolReply {
	t.Helper()
	r := new(api.PoolReply)
	if err := json.Unmarshal(a.body, r); err != nil {
		t.Fatal(err)
	}
	return r
}

// effects are what a reply says of each lease, by address.
func effects(r *api.PoolReply) map[string]api.Effect {
	out := make(map[string]api.Effect)
	for _, e := range r.Effects {
		out[e.Address] = e.Effect
	}
	return out
}

// TestPools walks pools of both families through every verb, each asked twice: the second
// time changes nothing.
func TestPools(t *testing.T) {
	s := speak(t, servertest.Start(t))
	first := described(t, s)
	if first.Generation != 1 || first.Family != api.V4 || first.State != api.PoolActive || first.Size != 253 || first.Available != 253 {
		t.Errorf("the pool: %+v", first)
	}
	twice := func(method, path, body string, made api.PoolChange) *api.PoolReply {
		t.Helper()
		r := altered(t, s, method, path, body)
		if r.Change != made || r.Preview || r.Revision != s.Book.Rev() {
			t.Errorf("%s %s %s: %+v", method, path, body, r)
		}
		if again := altered(t, s, method, path, body); again.Change != api.PoolSame || again.Revision != r.Revision || again.Pool.Generation != r.Pool.Generation {
			t.Errorf("%s %s again: %+v", method, path, again)
		}
		return r
	}
	six := twice("PUT", defaultPool, `{"prefix":"fd00:8::/64","mtu":1400,"dns":["fd00:8::53"],"cooldown":"1h","cooldown_min":"5m","exhausted":"strict","reservation":[{"sandbox":"db","address":"fd00:8::9"}],
		"labels":{"team":"lab"},"exclude":["fd00:8::100-fd00:8::1ff"],"routes":[{"destination":"fd00:9::/64","via":"fd00:8::9"}]}`, api.PoolCreate).Pool
	if six.Family != api.V6 || six.Gateway != "fd00:8::1" || six.Bridge != "rt0" || six.MTU != 1400 || six.Cooldown != "1h0m0s" || six.CooldownMin != "5m0s" ||
		six.Exhausted != "strict" || six.Labels["team"] != "lab" || six.UID == first.UID || len(six.Exclude)+len(six.Routes)+len(six.DNS)+len(six.Reservation) != 4 {
		t.Errorf("the v6 pool: %+v", six)
	}
	both := want[api.PoolList](t, s, 200, "PoolList", "GET", defaultPool, "")
	if len(both.Pools) != 2 || both.Pools[0].UID != first.UID || both.Pools[1].UID != six.UID {
		t.Errorf("both: %+v", both)
	}
	if a := s.ask(t, "GET", "/v1/pools/nowhere", ""); a.err.Code != api.NotFound {
		t.Errorf("no such pool: %s", a.body)
	}

	grown := twice("PUT", defaultPool, `{"prefix":"10.8.64.0/23"}`, api.PoolUpdate).Pool
	if grown.UID != first.UID || grown.Generation != 2 || grown.Size != 509 {
		t.Errorf("grown: %+v", grown)
	}
	twice("PUT", "/v1/pools/none", `{"prefix":"10.9.0.0/30","gateway":"none","generation":7}`, api.PoolCreate)

	named := fmt.Sprintf(`{"uid":%q}`, first.UID)
	if r := twice("POST", defaultPool+"/drain", named, api.PoolDrain); r.Pool.State != api.PoolDraining || r.Pool.Generation != 3 || r.Pool.Available != 0 {
		t.Errorf("drained: %+v", r)
	}
	refused(t, s, api.StateNotAllowed, "POST", "/v1/leases", `{"sandbox":"late"}`)
	if r := altered(t, s, "PUT", defaultPool, `{"prefix":"10.8.64.0/23","mtu":1400,"preview":true}`); !r.GivesAgain || r.Change != api.PoolUpdate {
		t.Errorf("described anew while it drains: %+v", r)
	}
	if r := twice("POST", defaultPool+"/undrain", named, api.PoolUndrain); r.GivesAgain || r.Pool.State != api.PoolActive || r.Pool.Generation != 4 || r.Pool.Available != 509 {
		t.Errorf("undrained: %+v", r)
	}
	l := allocate(t, s, "a")
	if r := altered(t, s, "PUT", defaultPool, `{"prefix":"10.8.64.0/23","gateway":"10.8.64.254","preview":true}`); r.GatewayRests != "10.8.64.1" {
		t.Errorf("a preview of another gateway: %+v", r)
	}

	path := fmt.Sprintf("%s?uid=%s", defaultPool, first.UID)
	drains := want[api.PoolReply](t, s, 202, "PoolReply", "DELETE", path+"&mode=drain", "")
	if drains.Change != api.PoolDrain || drains.Pool.State != api.PoolDraining || drains.Unchanged != 1 {
		t.Errorf("removed when it has drained: %+v", drains)
	}
	rev := s.Book.Rev()
	want[api.PoolReply](t, s, 202, "PoolReply", "DELETE", path+"&mode=drain", "")
	if s.Book.Rev() != rev {
		t.Error("asked again while it drains, the book changed")
	}
	want[api.LeaseReply](t, s, 202, "LeaseReply", "POST", "/v1/leases/"+l.ID+"/release", "")
	s.Confirm(t, l.ID)
	gone := altered(t, s, "DELETE", path+"&mode=drain", "")
	if gone.Change != api.PoolRemove || gone.Pool.State != api.PoolRemoved || effects(gone)[l.Address] != api.EffectEnds {
		t.Errorf("removed: %+v", gone)
	}
	refused(t, s, api.NotFound, "DELETE", path, "")
	if h := want[api.ChangeList](t, s, 200, "ChangeList", "GET", "/v1/changes?sandbox=a", ""); len(h.Changes) == 0 {
		t.Error("the history of the removed pool's lease is gone")
	}
	altered(t, s, "DELETE", fmt.Sprintf("%s?uid=%s", defaultPool, six.UID), "")
	if a := s.ask(t, "GET", defaultPool, ""); a.err.Code != api.NotFound {
		t.Errorf("after both were removed: %s", a.body)
	}
}

// TestPoolBadInput has a row for each way to be wrong: refused with the field named, and
// nothing changed.
func TestPoolBadInput(t *testing.T) {
	s := speak(t, servertest.Start(t))
	uid := described(t, s).UID
	put := func(name, body, field, says string) [6]string {
		return [6]string{name, "PUT", defaultPool, body, field, says}
	}
	for _, c := range [][6]string{
		put("no body", ``, "prefix", "missing"),
		put("no prefix", `{}`, "prefix", "missing"),
		put("no such field", `{"prefixx":"10.8.64.0/24"}`, "prefixx", "did you mean prefix?"),
		put("what a pool has and a description has not", `{"prefix":"10.8.64.0/24","size":3}`, "size", "not known"),
		put("half a prefix", `{"prefix":"10.8.64.0"}`, "prefix", "no prefix such as"),
		put("a prefix of 33 bits", `{"prefix":"10.8.64.0/33"}`, "prefix", "no prefix"),
		put("host bits", `{"prefix":"10.8.64.5/24"}`, "prefix", "did you mean 10.8.64.0/24?"),
		put("v4 inside v6", `{"prefix":"::ffff:10.8.64.0/120"}`, "prefix", "plain"),
		put("a zone", `{"prefix":"fe80::%eth0/64"}`, "prefix", "no prefix"),
		put("nothing to give", `{"prefix":"10.9.0.0/32","exclude":["10.9.0.0"],"gateway":"none"}`, "prefix", "no address to give"),
		put("a gateway elsewhere", `{"prefix":"10.8.64.0/24","gateway":"10.9.0.1"}`, "gateway", "not in"),
		put("the broadcast address as gateway", `{"prefix":"10.8.64.0/24","gateway":"10.8.64.255"}`, "gateway", "no host address"),
		put("no gateway at all", `{"prefix":"10.8.64.0/24","gateway":"router"}`, "gateway", "not an IP address"),
		put("a bridge that is none", `{"prefix":"10.8.64.0/24","bridge":"rt 0"}`, "bridge", "interface name"),
		put("an exclusion elsewhere", `{"prefix":"10.8.64.0/24","exclude":["10.9.0.1"]}`, "exclude", "not in"),
		put("an exclusion that is none", `{"prefix":"10.8.64.0/24","exclude":["10.8.64.2","x"]}`, "exclude[1]", "no address"),
		put("a range that is turned", `{"prefix":"10.8.64.0/24","exclude":["10.8.64.9-10.8.64.2"]}`, "exclude[0]", "no address"),
		put("exclusions that are text", `{"prefix":"10.8.64.0/24","exclude":"10.8.64.2"}`, "exclude", "want a list"),
		put("a route to nowhere", `{"prefix":"10.8.64.0/24","routes":[{"destination":"x","via":"10.8.64.9"}]}`, "routes[0].destination", "no prefix"),
		put("a route by no gateway", `{"prefix":"10.8.64.0/24","routes":[{"destination":"192.0.2.0/24"}]}`, "routes[0].via", "not an IP"),
		put("a route of two families", `{"prefix":"10.8.64.0/24","routes":[{"destination":"192.0.2.0/24","via":"fd00::1"}]}`, "routes", "families"),
		put("a name server that is none", `{"prefix":"10.8.64.0/24","dns":["10.8.64.1","ns"]}`, "dns[1]", "not an IP"),
		put("a reservation of nothing", `{"prefix":"10.8.64.0/24","reservation":[{"sandbox":"db","address":"x"}]}`, "reservation[0].address", "not an IP"),
		put("a reservation elsewhere", `{"prefix":"10.8.64.0/24","reservation":[{"sandbox":"db","address":"10.9.0.9"}]}`, "reservation", "10.9.0.9"),
		put("a small MTU", `{"prefix":"10.8.64.0/24","mtu":67}`, "mtu", "67"),
		put("a small MTU of IPv6", `{"prefix":"fd00::/64","mtu":1279}`, "mtu", "1279"),
		put("a large MTU", `{"prefix":"10.8.64.0/24","mtu":9223372036854775807}`, "mtu", "9223372036854775807"),
		put("an MTU that is text", `{"prefix":"10.8.64.0/24","mtu":"1500"}`, "mtu", "want a whole number"),
		put("a cooldown without unit", `{"prefix":"10.8.64.0/24","cooldown":"30"}`, "cooldown", "not a duration"),
		put("a negative cooldown", `{"prefix":"10.8.64.0/24","cooldown":"-1s"}`, "cooldown", "negative"),
		put("a shorter cooldown", `{"prefix":"10.8.64.0/24","cooldown":"1m","cooldown_min":"2m"}`, "cooldown_min", "longer"),
		put("another policy", `{"prefix":"10.8.64.0/24","exhausted":"newest"}`, "exhausted", "neither"),
		put("labels that are a list", `{"prefix":"10.8.64.0/24","labels":["a"]}`, "labels", "want an object"),
		put("a label without a key", `{"prefix":"10.8.64.0/24","labels":{"":"a"}}`, "labels", "key"),
		put("a negative generation", `{"prefix":"10.8.64.0/24","generation":-1}`, "generation", "below 0"),
		put("a generation that none could follow", `{"prefix":"10.8.64.0/24","generation":9223372036854775807}`, "generation", "above 4503599627370496"),
		put("a generation that is text", `{"prefix":"10.8.64.0/24","generation":"7"}`, "generation", "want a whole number"),
		put("a generation and a half", `{"prefix":"10.8.64.0/24","generation":7.5}`, "generation", "want a whole number"),
		put("a uid that is a number", `{"prefix":"10.8.64.0/24","uid":7}`, "uid", "want a string"),
		put("drain that is text", `{"prefix":"10.8.64.0/24","drain":"yes"}`, "drain", "want true or false"),
		put("preview that is a number", `{"prefix":"10.8.64.0/24","preview":1}`, "preview", "want true or false"),
		{"a name that is none", "PUT", "/v1/pools/a%20b", `{"prefix":"10.9.0.0/24"}`, "name", "letters"},
		{"a name of 64 letters", "PUT", "/v1/pools/" + strings.Repeat("a", 64), `{"prefix":"10.9.0.0/24"}`, "name", "63"},
		{"a parameter on a change", "PUT", defaultPool + "?preview=true", `{"prefix":"10.8.64.0/23"}`, "preview", "not known"},
		put("a uid that is none", `{"prefix":"10.8.64.0/24","uid":"x"}`, "uid", "no UUID"),
		{"drain: a uid that is none", "POST", defaultPool + "/drain", `{"uid":"x"}`, "uid", "no UUID"},
		{"remove: a uid that is none", "DELETE", defaultPool + "?uid=x", ``, "uid", "no UUID"},
		{"drain: no uid", "POST", defaultPool + "/drain", `{}`, "uid", "missing"},
		{"drain: no such field", "POST", defaultPool + "/drain", `{"mode":"x"}`, "mode", "not known"},
		{"drain: a negative generation", "POST", defaultPool + "/drain", `{"uid":"x","generation":-1}`, "generation", "below 0"},
		{"undrain: no uid", "POST", defaultPool + "/undrain", ``, "uid", "missing"},
		{"remove: no uid", "DELETE", defaultPool, ``, "uid", "missing"},
		{"remove: an empty uid", "DELETE", defaultPool + "?uid=", ``, "uid", "empty"},
		{"remove: another mode", "DELETE", defaultPool + "?uid=" + uid + "&mode=now", ``, "mode", "none of empty, drain, force"},
		{"remove: force without a reason", "DELETE", defaultPool + "?uid=" + uid + "&mode=force", ``, "reason", "missing"},
		{"remove: preview that is none", "DELETE", defaultPool + "?uid=" + uid + "&preview=maybe", ``, "preview", "neither"},
		{"remove: a body", "DELETE", defaultPool + "?uid=" + uid, `{"mode":"force"}`, "mode", "not known"},
		{"show: another family", "GET", defaultPool + "?family=v5", ``, "family", "none of v4, v6"},
		{"show: no such parameter", "GET", defaultPool + "?uid=x", ``, "uid", "not known"},
	} {
		a := refused(t, s, api.InvalidArgument, c[1], c[2], c[3])
		if a.err.Details["field"] != c[4] || !strings.Contains(a.err.Message, c[5]) {
			t.Errorf("%s: field %v, %q; want %s, %q", c[0], a.err.Details["field"], a.err.Message, c[4], c[5])
		}
	}
	for _, path := range []string{"/drain", "/undrain"} {
		refused(t, s, api.NotFound, "POST", defaultPool+path, `{"uid":"01900000-0000-7000-8000-000000000000"}`)
		refused(t, s, api.NotFound, "POST", "/v1/pools/other"+path, fmt.Sprintf(`{"uid":%q}`, uid))
	}
	refused(t, s, api.NotFound, "DELETE", defaultPool+"?uid=01900000-0000-7000-8000-000000000000", "")
}

// Scenario P6 over the socket: generation 7 is applied; 6 and another 7 that come
// after it are refused with the present one, also by another uid, and nothing comes back.
func TestOldGenerationsOverTheSocket(t *testing.T) {
	s := speak(t, servertest.Start(t))
	uid := described(t, s).UID
	seventh := `{"prefix":"10.8.64.0/24","exclude":["10.8.64.9"],"generation":7}`
	if r := altered(t, s, "PUT", defaultPool, seventh); r.Pool.Generation != 7 || r.Change != api.PoolUpdate {
		t.Errorf("generation 7: %+v", r)
	}
	for _, old := range []string{
		`{"prefix":"10.8.64.0/24","generation":6}`, `{"prefix":"10.8.64.0/24","generation":7}`, `{"prefix":"10.8.64.0/24","generation":1,"preview":true}`,
		`{"prefix":"10.8.64.0/24","generation":8,"uid":"01900000-0000-7000-8000-000000000000"}`,
	} {
		a := refused(t, s, api.StaleGeneration, "PUT", defaultPool, old)
		if a.err.Details["generation"] != 7.0 || a.err.Details["uid"] != uid {
			t.Errorf("%s: %s", old, a.body)
		}
	}
	refused(t, s, api.StaleGeneration, "POST", defaultPool+"/drain", fmt.Sprintf(`{"uid":%q,"generation":6}`, uid))
	if r := altered(t, s, "PUT", defaultPool, seventh); r.Change != api.PoolSame {
		t.Errorf("generation 7 again: %+v", r)
	}
	if now := described(t, s); now.Generation != 7 || !slices.Equal(now.Exclude, []string{"10.8.64.9"}) {
		t.Errorf("now: %+v", now)
	}
	altered(t, s, "DELETE", defaultPool+"?uid="+uid, "")
	refused(t, s, api.StaleGeneration, "PUT", defaultPool, seventh)
}

// TestPoolOverlapOverTheSocket: a range that is another pool's is refused with that pool,
// in each family, and under another name.
func TestPoolOverlapOverTheSocket(t *testing.T) {
	s := speak(t, servertest.Start(t))
	altered(t, s, "PUT", "/v1/pools/six", `{"prefix":"fd00:8::/64"}`)
	for body, other := range map[string]string{
		`{"prefix":"10.8.64.128/25"}`: "10.8.64.0/24", `{"prefix":"10.8.0.0/16"}`: "10.8.64.0/24",
		`{"prefix":"fd00:8::/65"}`: "fd00:8::/64", `{"prefix":"fd00:8::/32","preview":true}`: "fd00:8::/64",
	} {
		a := refused(t, s, api.PoolOverlap, "PUT", "/v1/pools/second", body)
		if a.err.Details["prefix"] != other {
			t.Errorf("%s: %s", body, a.body)
		}
	}
}

// Scenario P4 over the socket: a pool with open leases is not removed, and says which
// they are, a bounded list of them and their number; by force none of its addresses
// comes free: a pool that is made again withholds them.
func TestRemovingAPoolOverTheSocket(t *testing.T) {
	s := speak(t, servertest.Start(t))
	path := defaultPool + "?uid=" + described(t, s).UID
	var held []api.Lease
	for i := range api.MostHolders + 4 {
		held = append(held, allocate(t, s, fmt.Sprint("s", i)))
	}
	for _, mode := range []string{"", "&mode=empty", "&preview=true"} {
		a := refused(t, s, api.PoolNotEmpty, "DELETE", path+mode, "")
		if leases, _ := a.err.Details["leases"].([]any); len(leases) != api.MostHolders || a.err.Details["total"] != float64(len(held)) {
			t.Errorf("%q: %s", mode, a.body)
		}
	}
	preview := altered(t, s, "DELETE", path+"&mode=force&preview=true", "")
	forced := altered(t, s, "DELETE", path+"&mode=force&reason=moved", "")
	if d := cmp.Diff(preview.Effects, forced.Effects); d != "" || forced.Total != len(held) || effects(forced)[held[0].Address] != api.EffectWithheld {
		t.Errorf("by force (-preview +done):\n%s\n%+v", d, forced)
	}
	shown := want[api.WithheldList](t, s, 200, "WithheldList", "GET", "/v1/withheld?pool=default", "").Withheld
	if len(shown) != len(held) || shown[0].Address != held[0].Address || shown[0].PoolUID != preview.Pool.UID || shown[0].State != api.Quarantined || shown[0].LeaseID != held[0].ID ||
		shown[0].Sandbox != "s0" || shown[0].Since.IsZero() || !strings.Contains(shown[0].Evidence[0].Note, "removed by force while this was reserved") {
		t.Errorf("withheld: %+v", shown)
	}
	if who := want[api.WhoisReply](t, s, 200, "WhoisReply", "GET", "/v1/addresses/"+held[0].Address, ""); who.Pool != "" || who.Owner != "" || who.Withheld == nil || who.Withheld.LeaseID != held[0].ID {
		t.Errorf("whois of a withheld address: %+v", who)
	}
	if r := altered(t, s, "PUT", defaultPool, `{"prefix":"10.8.64.0/24","preview":true}`); r.TakenOver != len(held) {
		t.Errorf("a preview of the pool made again: %+v", r)
	}
	made := altered(t, s, "PUT", defaultPool, `{"prefix":"10.8.64.0/24"}`)
	if now := want[api.WithheldList](t, s, 200, "WithheldList", "GET", "/v1/withheld", ""); len(now.Withheld) > 0 || now.Revision != made.Revision {
		t.Errorf("taken over, and withheld: %+v", now)
	}
	refused(t, s, api.InvalidArgument, "GET", "/v1/withheld?pool=", "")
	if made.Pool.UID == preview.Pool.UID || made.Pool.Generation <= preview.Pool.Generation {
		t.Errorf("made again: %+v", made.Pool)
	}
	for _, l := range held {
		if who := want[api.WhoisReply](t, s, 200, "WhoisReply", "GET", "/v1/addresses/"+l.Address, ""); who.State != api.Quarantined {
			t.Errorf("%s, held by a sandbox when its pool was removed by force: %+v", l.Address, who)
		}
		refused(t, s, api.LeaseGone, "POST", "/v1/leases/"+l.ID+"/bind", `{"host_interface":"veth1"}`)
	}
	if next := allocate(t, s, "next"); slices.ContainsFunc(held, func(l api.Lease) bool { return l.Address == next.Address }) {
		t.Errorf("%s was given again", next.Address)
	}
}

// Scenario P7 over the socket: a shrink over a live lease is refused with the lease, or
// leaves it outside: valid, visible in every reading, and its address never given again;
// grown again it is inside.
func TestShrinkOverTheSocket(t *testing.T) {
	s := speak(t, servertest.Start(t))
	l := want[api.AllocateReply](t, s, 201, "AllocateReply", "POST", "/v1/leases", `{"sandbox":"far","address":"10.8.64.200"}`).Leases[0]
	near := allocate(t, s, "near")
	for _, body := range []string{`{"prefix":"10.8.64.0/25"}`, `{"prefix":"10.8.64.0/24","exclude":["10.8.64.128/25"]}`} {
		a := refused(t, s, api.PoolNotEmpty, "PUT", defaultPool, body)
		if a.err.Details["total"] != 1.0 || !strings.Contains(string(a.body), l.ID) {
			t.Errorf("%s: %s", body, a.body)
		}
	}
	shrunk := altered(t, s, "PUT", defaultPool, `{"prefix":"10.8.64.0/25","drain":true}`)
	if shrunk.Unchanged != 1 || effects(shrunk)[l.Address] != api.EffectOutside || shrunk.Pool.Outside != 1 || shrunk.Pool.Size != 125 {
		t.Errorf("shrunk: %+v", shrunk)
	}
	outside := func(wanted bool) {
		t.Helper()
		for _, got := range []api.Lease{
			want[api.LeaseReply](t, s, 200, "LeaseReply", "GET", "/v1/leases/"+l.ID, "").Lease,
			want[api.LeaseList](t, s, 200, "LeaseList", "GET", "/v1/leases?sandbox=far", "").Leases[0],
			*want[api.WhoisReply](t, s, 200, "WhoisReply", "GET", "/v1/addresses/"+l.Address, "").Lease,
		} {
			if got.ID != l.ID || (got.Outside != "") != wanted {
				t.Errorf("outside %v: %+v", wanted, got)
			}
		}
	}
	outside(true)
	if got := want[api.LeaseReply](t, s, 200, "LeaseReply", "GET", "/v1/leases/"+near.ID, "").Lease; got.Outside != "" {
		t.Errorf("the one inside: %+v", got)
	}
	want[api.LeaseReply](t, s, 200, "LeaseReply", "POST", "/v1/leases/"+l.ID+"/bind", `{"host_interface":"veth1"}`)
	again := want[api.AllocateReply](t, s, 200, "AllocateReply", "POST", "/v1/leases", `{"sandbox":"far"}`)
	if again.Leases[0].ID != l.ID || again.Leases[0].Outside == "" {
		t.Errorf("asked again, its sandbox gets %+v", again.Leases[0])
	}
	altered(t, s, "PUT", defaultPool, `{"prefix":"10.8.64.0/24"}`)
	outside(false)
	altered(t, s, "PUT", defaultPool, `{"prefix":"10.8.64.0/25","drain":true}`)
	want[api.LeaseReply](t, s, 202, "LeaseReply", "POST", "/v1/leases/"+l.ID+"/release", "")
	s.Confirm(t, l.ID)
	refused(t, s, api.NotInPool, "POST", "/v1/leases", `{"sandbox":"next","address":"10.8.64.200"}`)
}

// TestPoolPreviewIsWhatHappens: of random changes of a pool with leases in every state, a
// preview changes nothing, says to the lease what the change then does, and is refused
// with what the change is refused with.
func TestPoolPreviewIsWhatHappens(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	s := speak(t, servertest.Start(t))
	made := 0
	for range 60 {
		if rnd.IntN(3) > 0 {
			made++
			if l, err := netdbtest.TryReserve(s.Book, s.Book.Pools()[0], fmt.Sprint("s", made), netdbtest.Policy); err == nil && rnd.IntN(3) == 0 {
				netdbtest.Cool(t, s.Book, l)
			}
		}
		spec := fmt.Sprintf(`"prefix":"10.8.64.0/%d"`, 23+rnd.IntN(5))
		if rnd.IntN(2) == 0 {
			from := netip.AddrFrom4([4]byte{10, 8, 64, byte(rnd.IntN(16))})
			spec += fmt.Sprintf(`,"exclude":["%s"]`, ipam.Range{From: from, To: netip.AddrFrom4([4]byte{10, 8, 64, from.As4()[3] + byte(rnd.IntN(16))})})
		}
		if rnd.IntN(8) == 0 {
			spec += fmt.Sprintf(`,"gateway":"10.8.64.%d"`, 1+rnd.IntN(20))
		}
		if rnd.IntN(4) == 0 {
			spec += fmt.Sprintf(`,"generation":%d`, int(described(t, s).Generation)+rnd.IntN(3)-1)
		}
		if rnd.IntN(3) > 0 {
			spec += `,"drain":true`
		}
		rev := s.Book.Rev()
		preview := s.ask(t, "PUT", defaultPool, "{"+spec+`,"preview":true}`)
		if s.Book.Rev() != rev {
			t.Fatalf("the preview of %s changed the book", spec)
		}
		done := s.ask(t, "PUT", defaultPool, "{"+spec+"}")
		if preview.status != done.status || preview.err.Code != done.err.Code || preview.err.Message != done.err.Message {
			t.Fatalf("%s:\npreview %d %s\ndone    %d %s", spec, preview.status, preview.body, done.status, done.body)
		}
		if done.status != 200 {
			continue
		}
		message, was := decoded(t, preview), decoded(t, done)
		if !message.Preview || was.Preview || message.Change != was.Change || message.Unchanged != was.Unchanged || message.Total != was.Total || message.Pool.Generation != was.Pool.Generation {
			t.Errorf("%s:\npreview %+v\ndone    %+v", spec, message, was)
		}
		if d := cmp.Diff(message.Effects, was.Effects); d != "" {
			t.Errorf("%s (-preview +done):\n%s", spec, d)
		}
		listed := want[api.LeaseList](t, s, 200, "LeaseList", "GET", "/v1/leases", "")
		n := 0
		for _, l := range listed.Leases {
			if l.Outside != "" {
				n++
			}
			if e := effects(was)[l.Address]; e == api.EffectOutside && l.Outside == "" || e == api.EffectInside && l.Outside != "" {
				t.Errorf("%s: %s is said to be %s, and is outside: %q", spec, l.Address, e, l.Outside)
			}
		}
		if now := described(t, s); now.Outside != n {
			t.Errorf("%s: the pool counts %d outside, and %d are listed", spec, now.Outside, n)
		}
	}
}

// TestPoolRoles: who may change leases may not change pools, and who may read may read
// them; a change that is refused changes nothing.
func TestPoolRoles(t *testing.T) {
	realtest.Root(t)
	rig := servertest.Start(t, func(cfg *server.Config) { cfg.RuntimeUIDs = []uint32{4001} })
	p := rig.Book.Pools()[0]
	changes := []string{
		"GET " + defaultPool, `PUT ` + defaultPool + ` {"prefix":"10.8.64.0/23"}`, `PUT ` + defaultPool + ` {"prefix":"10.8.64.0/23","preview":true}`,
		fmt.Sprintf(`POST %s/drain {"uid":%q}`, defaultPool, p.UID), fmt.Sprintf(`POST %s/undrain {"uid":%q}`, defaultPool, p.UID), "DELETE " + defaultPool + "?uid=" + p.UID,
	}
	const denied = "200, 403 permission_denied, 403 permission_denied, 403 permission_denied, 403 permission_denied, 403 permission_denied"
	for _, uid := range []uint32{4001, 65534} {
		as := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: 65534}}
		if got := runPeer(t, rig.Socket, as, changes...); got != denied {
			t.Errorf("uid %d: %s", uid, got)
		}
	}
	if now := rig.Book.Pools(); len(now) != 1 || now[0].Generation != 1 {
		t.Errorf("a refused peer changed the pools: %+v", now[0])
	}
	if got := runPeer(t, rig.Socket, &syscall.SysProcAttr{}, changes...); got != "200, 200, 200, 200, 200, 200" {
		t.Errorf("root: %s", got)
	}
}

// overtaken moves the gateway of a pool while its allocator gives an address of it.
type overtaken struct {
	server.Allocator
	book    *netdb.Book
	gateway netip.Addr
}

func (o *overtaken) Allocate(ctx context.Context, r allocator.Request) (*allocator.Result, error) {
	given, err := o.Allocator.Allocate(ctx, r)
	if err != nil {
		return nil, err
	}
	spec := given.Pools[0].PoolSpec
	spec.Prefix, spec.Gateway = netip.MustParsePrefix("10.8.64.0/23"), o.gateway
	_, err = o.book.SetPool(ctx, netdbtest.Who(ipam.ByOperator, "test"), netdb.PoolChange{Spec: spec})
	return given, err
}

// A pool that changes while an address of it is given, or a lease of it is looked for, is answered
// as it is by then: what was its gateway is no sandbox's route any more.
func TestAnAnswerHasThePoolAsItIs(t *testing.T) {
	o := new(overtaken)
	s := speak(t, servertest.Start(t, func(c *server.Config) {
		o.Allocator, o.book = c.Allocator, c.Book.(*netdb.Book)
		c.Allocator = o
	}))
	for i, gateway := range []string{"10.8.65.254", "10.8.65.253"} {
		status := []int{201, 200}[i] // the second time the lease is there
		o.gateway = netip.MustParseAddr(gateway)
		r := want[api.AllocateReply](t, s, status, "AllocateReply", "POST", "/v1/leases", `{"sandbox":"a"}`)
		n := r.Networks[0]
		if n.Gateway != gateway || n.Routes[0].Via != gateway || r.Leases[0].PrefixLen != 23 {
			t.Errorf("%d: %+v in a /%d; the gateway is %s", status, n, r.Leases[0].PrefixLen, gateway)
		}
	}
}
