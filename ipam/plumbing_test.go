package ipam_test

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/ipamd/ipamd/ipam"
)

// Every field that changes the plumbing changes its hash, and none that does not.
func TestWhatAPlumbingIsHashedOf(t *testing.T) {
	spec := func() ipam.PoolSpec {
		return ipam.PoolSpec{Name: "p", Prefix: netip.MustParsePrefix("10.8.64.0/24"), Gateway: netip.MustParseAddr("10.8.64.1"), Bridge: "rt0",
			Routes: []ipam.Route{{Destination: netip.MustParsePrefix("10.0.0.0/8"), Via: netip.MustParseAddr("10.8.64.2")}, {Destination: netip.MustParsePrefix("10.9.0.0/16"), Via: netip.MustParseAddr("10.8.64.3")}},
			DNS:    []netip.Addr{netip.MustParseAddr("1.1.1.1"), netip.MustParseAddr("8.8.8.8")}}
	}
	was := spec()
	base := was.Plumbing("eth0", ipam.Profile{}).Hash()
	if want := "sha256:9f92729c544afcf5d2c4568f8d7bf48c2da6f815f6fb8cc07a841ae119dc955e"; base != want {
		t.Errorf("the hash of one spec is %s by this build, and was %s: slots of before would be stale", base, want)
	}
	for name, row := range map[string]struct {
		edit  func(*ipam.PoolSpec, *string, *ipam.Profile)
		other bool
	}{
		"bridge":          {func(s *ipam.PoolSpec, _ *string, _ *ipam.Profile) { s.Bridge = "rt1" }, true},
		"prefix":          {func(s *ipam.PoolSpec, _ *string, _ *ipam.Profile) { s.Prefix = netip.MustParsePrefix("10.8.64.0/23") }, true},
		"gateway":         {func(s *ipam.PoolSpec, _ *string, _ *ipam.Profile) { s.Gateway = netip.MustParseAddr("10.8.64.9") }, true},
		"MTU":             {func(s *ipam.PoolSpec, _ *string, _ *ipam.Profile) { s.MTU = 1400 }, true},
		"bridge's MTU":    {func(_ *ipam.PoolSpec, _ *string, p *ipam.Profile) { p.BridgeMTU = 1400 }, true},
		"DNS":             {func(s *ipam.PoolSpec, _ *string, _ *ipam.Profile) { s.DNS = s.DNS[:1] }, true},
		"order of DNS":    {func(s *ipam.PoolSpec, _ *string, _ *ipam.Profile) { slices.Reverse(s.DNS) }, true},
		"routes":          {func(s *ipam.PoolSpec, _ *string, _ *ipam.Profile) { s.Routes = s.Routes[:1] }, true},
		"interface":       {func(_ *ipam.PoolSpec, i *string, _ *ipam.Profile) { *i = "net1" }, true},
		"MAC policy":      {func(_ *ipam.PoolSpec, _ *string, p *ipam.Profile) { p.MAC = "address" }, true},
		"enforcement":     {func(_ *ipam.PoolSpec, _ *string, p *ipam.Profile) { p.Enforce = "enforce" }, true},
		"wake":            {func(_ *ipam.PoolSpec, _ *string, p *ipam.Profile) { p.Wake = "on" }, true},
		"name":            {func(s *ipam.PoolSpec, _ *string, _ *ipam.Profile) { s.Name = "q" }, false},
		"order of routes": {func(s *ipam.PoolSpec, _ *string, _ *ipam.Profile) { slices.Reverse(s.Routes) }, false},
		"size": {func(s *ipam.PoolSpec, _ *string, _ *ipam.Profile) {
			s.Warm = &ipam.Warm{Size: 9, Strategy: ipam.SlotsOnReplenish}
		}, false},
		"cooldown": {func(s *ipam.PoolSpec, _ *string, _ *ipam.Profile) {
			s.Cooldown, s.CooldownMin, s.Exhausted = time.Hour, time.Minute, "strict"
		}, false},
		"labels": {func(s *ipam.PoolSpec, _ *string, _ *ipam.Profile) { s.Labels = map[string]string{"a": "b"} }, false},
		"exclusions": {func(s *ipam.PoolSpec, _ *string, _ *ipam.Profile) {
			s.Exclude = []ipam.Range{{From: s.Gateway, To: s.Gateway}}
		}, false},
		"reservations": {func(s *ipam.PoolSpec, _ *string, _ *ipam.Profile) {
			s.Kept = []ipam.Kept{{Sandbox: "a", Address: netip.MustParseAddr("10.8.64.7")}}
		}, false},
	} {
		s, iface, p := spec(), "eth0", ipam.Profile{}
		row.edit(&s, &iface, &p)
		if got := s.Plumbing(iface, p).Hash(); (got != base) != row.other {
			t.Errorf("%s: %s and %s", name, base, got)
		}
	}
}

// Another algorithm of hashes alone makes no slot stale, and one that cannot be read neither.
func TestAnUpgradeDrainsNothing(t *testing.T) {
	spec := ipam.PoolSpec{Prefix: netip.MustParsePrefix("10.8.64.0/24"), Bridge: "rt0"}
	pool := &ipam.Pool{PoolSpec: spec}
	const same = `{"bridge":"rt0","prefix":"10.8.64.0/24","interface":"eth0"}`
	for name, row := range map[string]struct {
		hash, spec  string
		stale, fail bool
	}{
		"this build's":               {spec.Plumbing("eth0", ipam.Profile{}).Hash(), `{}`, false, false},
		"this build's of another":    {"sha256:0", same, true, false},
		"another algorithm":          {"blake3:0", same, false, false},
		"another algorithm and spec": {"blake3:0", `{"bridge":"rt1","prefix":"10.8.64.0/24","interface":"eth0"}`, true, false},
		"a field of later":           {"blake3:0", `{"bridge":"rt0","prefix":"10.8.64.0/24","interface":"eth0","vlan":3}`, false, true},
		"not to be read":             {"blake3:0", `{}`, false, true},
	} {
		stale, err := (&ipam.Slot{SpecHash: row.hash, Spec: row.spec}).Stale(pool, "eth0", ipam.Profile{})
		if stale != row.stale || (err != nil) != row.fail {
			t.Errorf("%s: %t, %v", name, stale, err)
		}
	}
}

// Of a pool that names no MTU the bridge's is part of the plumbing, where it is known. A record of a
// build that left it out makes no slot stale.
func TestTheMTUOfABridge(t *testing.T) {
	of := func(mtu int) ipam.PoolSpec {
		return ipam.PoolSpec{Prefix: netip.MustParsePrefix("10.8.64.0/24"), Bridge: "rt0", MTU: mtu}
	}
	none, named := of(0), of(1400)
	on := func(mtu int) ipam.Profile { return ipam.Profile{Enforce: "enforce", BridgeMTU: mtu} }
	text := func(s ipam.PoolSpec, p ipam.Profile) string {
		b, err := json.Marshal(s.Plumbing("eth0", p))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for name, row := range map[string]struct {
		pool        ipam.PoolSpec
		bridge      int // its MTU now; 0: unknown
		made        ipam.PoolSpec
		by          ipam.Profile
		stale, fail bool
	}{
		"as the bridge is":              {none, 1500, none, on(1500), false, false},
		"as it was":                     {none, 1400, none, on(1500), true, false},
		"not recorded":                  {none, 1500, none, on(0), false, false},
		"not recorded, of other rules":  {none, 1500, none, ipam.Profile{}, true, false},
		"unknown now":                   {none, 0, none, on(1500), false, true},
		"unknown now, of other rules":   {none, 0, none, ipam.Profile{BridgeMTU: 1500}, true, false},
		"unknown now, not recorded":     {none, 0, none, on(0), false, false},
		"the pool's":                    {named, 1500, named, on(1450), false, false},
		"the pool's, not the bridge's":  {named, 1500, none, on(1500), true, false},
		"the pool's, as the bridge was": {named, 1500, none, on(1400), false, false},
		"the pool's, not recorded":      {named, 1500, none, on(0), true, false},
		"the pool's, unknown now":       {named, 0, named, on(0), false, false},
		"the bridge's, not the pool's":  {none, 1500, named, on(1500), true, false},
	} {
		made := row.made.Plumbing("eth0", row.by)
		for _, hash := range []string{made.Hash(), "blake3:0"} {
			stale, err := (&ipam.Slot{SpecHash: hash, Spec: text(row.made, row.by)}).Stale(&ipam.Pool{PoolSpec: row.pool}, "eth0", on(row.bridge))
			if stale != row.stale || (err != nil) != row.fail {
				t.Errorf("%s, by %.6s: %t, %v", name, hash, stale, err)
			}
		}
	}
}

// What a plumbing records of a pool is read back as it was, of both families; and the text that is hashed and stored
// stays what it is: another would make the ready slots of a running machine stale.
func TestPlumbingReadsBackWhatItRecords(t *testing.T) {
	for text, spec := range map[string]ipam.PoolSpec{
		`{"bridge":"rt0","prefix":"10.8.64.0/24","gateway":"10.8.64.1","mtu":1400,"dns":["10.8.64.53","9.9.9.9"],` +
			`"routes":["10.9.0.0/16 via 10.8.64.2","192.0.2.0/24 via 10.8.64.1"],"interface":"eth0"}`: {Bridge: "rt0",
			Prefix: netip.MustParsePrefix("10.8.64.0/24"), Gateway: netip.MustParseAddr("10.8.64.1"), MTU: 1400,
			DNS: []netip.Addr{netip.MustParseAddr("10.8.64.53"), netip.MustParseAddr("9.9.9.9")},
			Routes: []ipam.Route{{Destination: netip.MustParsePrefix("10.9.0.0/16"), Via: netip.MustParseAddr("10.8.64.2")},
				{Destination: netip.MustParsePrefix("192.0.2.0/24"), Via: netip.MustParseAddr("10.8.64.1")}}},
		`{"bridge":"rt0","prefix":"fd00::/64","gateway":"fe80::1","routes":["fd01::/64 via fd00::9"],"interface":"eth0"}`: {Bridge: "rt0",
			Prefix: netip.MustParsePrefix("fd00::/64"), Gateway: netip.MustParseAddr("fe80::1"),
			Routes: []ipam.Route{{Destination: netip.MustParsePrefix("fd01::/64"), Via: netip.MustParseAddr("fd00::9")}}},
		`{"bridge":"rt1","prefix":"10.8.64.7/32","interface":"eth0"}`: {Bridge: "rt1", Prefix: netip.MustParsePrefix("10.8.64.7/32")},
	} {
		p := spec.Plumbing("eth0", ipam.Profile{})
		if p.Text() != text {
			t.Errorf("the text is %s, want %s", p.Text(), text)
		}
		if got := p.PoolSpec(); !reflect.DeepEqual(got, spec) {
			t.Errorf("%s is read as %+v, want %+v", text, got, spec)
		}
	}
}
