package rebuild

import (
	"context"
	"net/netip"
	"slices"
	"testing"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/netdbtest"
	"github.com/ipamd/ipamd/netdb/salvage"
)

// A delegated prefix of the old book of which a part is another's now, or no pool's, or the
// gateway's, is kept in parts: no address of it but the other's can be given. So is one of
// which only the place can be read.
func TestAPrefixIsKeptInParts(t *testing.T) {
	b := netdbtest.Open(t)
	netdbtest.Pool(t, b, "default", "10.8.64.0/24")
	addr := netip.MustParseAddr
	other, err := b.Adopt(context.Background(), ipam.Who{Actor: ipam.ByReconciler, Reason: "adopted"}, ipam.Adoption{Addr: addr("10.8.64.20"), Sandbox: "other",
		Binding: ipam.Binding{HostInterface: "veth1"}})
	if err != nil {
		t.Fatal(err)
	}
	lease := func(first string, bits int, state ipam.State) *ipam.Lease {
		return &ipam.Lease{Addr: addr(first), PrefixLen: bits, State: state, Sandbox: "s", UID: "s", Interface: "eth0"}
	}
	named := netip.MustParsePrefix("10.8.64.64/28")
	r := &restorer{Book: b, verb: "rebuild", old: salvage.Found{
		Leases: []*ipam.Lease{lease("10.8.64.0", 28, ipam.Bound), lease("10.8.64.16", 28, ipam.Cooling), lease("10.8.64.48", 28, ipam.Bound), lease("10.9.0.0", 16, ipam.Bound)},
		Named:  []ipam.Range{{From: named.Addr(), To: addr("10.8.64.79")}},
	}}
	if err := r.after(context.Background()); err != nil {
		t.Fatal(err)
	}
	want := func(from, to string, states ...ipam.State) {
		t.Helper()
		for a := addr(from); a.Compare(addr(to)) <= 0; a = a.Next() {
			l, ok := b.At(a)
			if !ok && b.Place(a).Withheld != nil && slices.Contains(states, "") {
				continue
			}
			if !ok || !slices.Contains(states, l.State) {
				t.Errorf("%s is %+v", a, l)
			}
		}
	}
	want("10.8.64.2", "10.8.64.15", ipam.Quarantined)
	want("10.8.64.0", "10.8.64.1", "") // a larger pool would give it, or one with another gateway
	want("10.8.64.16", "10.8.64.19", ipam.Cooling)
	want("10.8.64.21", "10.8.64.31", ipam.Cooling)
	want("10.8.64.48", "10.8.64.63", ipam.Quarantined)
	want("10.8.64.64", "10.8.64.79", ipam.Quarantined)
	want("10.9.0.0", "10.9.0.9", "")
	if l, _ := b.At(other.Addr); l.ID != other.ID || l.State != ipam.Bound {
		t.Errorf("who lives has %+v", l)
	}
	if l, _ := b.At(named.Addr()); l.Hold == "" || l.PrefixLen != 28 {
		t.Errorf("of which nothing else can be read: %+v", l)
	}
	netdbtest.Check(t, b)
}
