package doctor

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/enforce"
)

// TestFindingsOfRules: one finding a port, with all reasons, the lease and what became of
// the packets; and one, of one line, when the rules do not hold. Without rules there are none.
func TestFindingsOfRules(t *testing.T) {
	at := time.Unix(100, 0)
	refused := func(port int, r enforce.Reason, n uint64, g ...enforce.Grant) enforce.Recent {
		return enforce.Recent{Refusal: enforce.Refusal{Port: port, Reason: r, Packets: n}, Name: "veth1", Since: at, Grants: g}
	}
	grant := enforce.Grant{Lease: "l1", Port: 3, Addr: netip.MustParsePrefix("10.8.64.2/32")}
	r := &Rules{Status: enforce.Status{Policy: enforce.Policy{Mode: enforce.Observe}, Err: errors.Join(errors.New("no"), errors.New("nor")), Since: at}, Refused: []enforce.Recent{
		refused(3, enforce.NotItsARP, 4, grant), refused(3, enforce.NotItsIPv4, 5, grant), refused(9, enforce.NoLease, 1)}}
	got := r.findings()
	if len(got) != 3 || got[0].Kind != "rules_not_held" || got[0].Detail != "no; nor" || got[0].Since != at {
		t.Fatalf("findings are %+v", got)
	}
	if f := got[1]; f.Kind != "packets_refused" || f.LeaseID != "l1" || f.Addr != grant.Addr.Addr() || f.Since != at ||
		!strings.Contains(f.Detail, "4 by arp, 5 by ipv4") || !strings.Contains(f.Detail, "would be dropped") {
		t.Errorf("of a port with a lease: %+v", f)
	}
	if f := got[2]; f.Addr.IsValid() || !strings.Contains(f.Detail, "no lease") {
		t.Errorf("of a port without one: %+v", f)
	}
	early := &Rules{Refused: []enforce.Recent{{Refusal: enforce.Refusal{Port: 3, Reason: enforce.NoLease, Packets: 4}, Name: "veth1", Since: time.Now().Add(-bindWithin / 2)}}}
	if got := early.findings(); len(got) != 0 {
		t.Errorf("of a port whose bind may come yet: %+v", got)
	}
	differ := &Rules{Differences: []enforce.Difference{{Missing: true, What: "ipv4 { a }", Lease: "l1"}, {What: "ipv4 { b }"}}}
	if got := differ.findings(); len(got) != 1 || got[0].Kind != "rules_differ" || !strings.Contains(got[0].Detail, "in 2: ipv4 { a } (lease l1); ipv4 { b }") {
		t.Errorf("where the table differs: %+v", got)
	}
	if got := (*Rules)(nil).findings(); len(got) != 0 {
		t.Errorf("without rules: %+v", got)
	}
}
