package enforce_test

import (
	"flag"
	"net/netip"
	"os"
	"testing"

	"github.com/ipamd/ipamd/enforce"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/nft"
)

var update = flag.Bool("update", false, "write the golden files")

// TestRulesetGolden: what a policy makes of a small world, as nft lists it from the kernel.
func TestRulesetGolden(t *testing.T) {
	realtest.Need(t, "nft")
	w := enforce.World{Epoch: "0197", Revision: 12, Gateways: []netip.Addr{gateway, gateway6},
		Bridges: []enforce.Bridge{{Name: "rt0", MAC: bridgeMAC.String(), Addrs: []netip.Addr{gateway, netip.MustParseAddr("fe80::1")}}, {Name: "rt1", Addrs: []netip.Addr{netip.MustParseAddr("169.254.0.1")}}},
		Ports:   []enforce.Port{{Index: 70001, Name: "veth1", Bridge: "rt0"}, {Index: 70002, Name: "veth2", Bridge: "rt0"}, {Index: 70003, Name: "veth3", Bridge: "rt0"}},
		Grants: []enforce.Grant{
			{Lease: "a", Port: 70001, MAC: "02:00:00:00:00:01", Addr: netip.MustParsePrefix("10.8.0.2/32")},
			{Lease: "a6", Port: 70001, MAC: "02:00:00:00:00:01", Addr: netip.MustParsePrefix("fd00:8::2/128")},
			{Lease: "p", Port: 70001, MAC: "02:00:00:00:00:01", Addr: netip.MustParsePrefix("fd00:9::/64")},
			{Lease: "b", Port: 70002, Addr: netip.MustParsePrefix("10.8.0.3/32")},
		}}
	for name, p := range map[string]enforce.Policy{
		"enforce-allow": {Mode: enforce.Enforce}, "enforce-drop": {Mode: enforce.Enforce, DropUnleased: true},
		"enforce-trusted": {Mode: enforce.Enforce, DropUnleased: true, Trusted: []string{"veth3", "veth1*"}}, "observe-allow": {Mode: enforce.Observe},
	} {
		t.Run(name, func(t *testing.T) {
			ns := nstest.New(t)
			var c *nft.Conn
			ns.Do(func() {
				var err error
				if c, err = nft.Open(); err != nil {
					t.Fatal(err)
				}
			})
			defer c.Close()
			want := enforce.Ruleset(p, w)
			if err := c.Apply(t.Context(), nil, want); err != nil {
				t.Fatal(err)
			}
			got, err := c.Read(t.Context(), want)
			if err != nil || !nft.Same(got, want) {
				t.Errorf("read back (%v):\n%s", err, got)
			}
			listed := ns.Exec("nft", "list", "table", "bridge", enforce.TableName)
			file := "testdata/" + name + ".nft"
			if *update {
				if err := os.WriteFile(file, []byte(listed), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			golden, err := os.ReadFile(file)
			if err != nil || listed != string(golden) {
				t.Errorf("%s (%v) is\n%s\nwant\n%s", file, err, listed, golden)
			}
			if again := enforce.Ruleset(p, w); again.String() != want.String() {
				t.Error("the same world makes another table")
			}
		})
	}
}
