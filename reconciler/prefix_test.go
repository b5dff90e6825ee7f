package reconciler

import (
	"net/netip"
	"testing"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
)

// D4: an address that is seen in a delegated prefix is its lease's while that is held, behind
// its own port with whatever MAC; a prefix that cools is quarantined whole with what is seen of
// one address, and cools while any is seen.
func TestD4AnAddressSeenInAPrefix(t *testing.T) {
	inside := netip.MustParseAddr("10.8.64.20")
	for state, want := range map[ipam.State]string{
		ipam.Bound: "", ipam.Cooling: Quarantine, ipam.Quarantined: "",
	} {
		for _, port := range []string{"veth1", "veth9"} {
			w := worldOf()
			l := &ipam.Lease{Addr: netip.MustParseAddr("10.8.64.16"), PrefixLen: 28, ID: "one", State: state, Sandbox: "web", UID: "web",
				Interface: "eth0", HostInterface: "veth1", MAC: "02:00:00:00:00:01", Rev: 7, Since: boot, Created: boot, Plug: ipam.Plug{Boot: boot.BootID}}
			if state == ipam.Quarantined {
				l.Evidence = []byte(`[{"witness":"probe"}]`)
			}
			w.book = []*ipam.Lease{l}
			w.census.Seen[inside] = []census.Sighting{{Addr: inside, Witness: netns, Port: port, MAC: "02:00:00:00:00:77"}}
			w.index()
			d := w.plan(w.known, false)
			got := ""
			for _, s := range d.steps {
				if s.lease != l || got != "" {
					t.Errorf("%s, %s: a step about %s of %v", state, port, s.Addr, s.lease)
				}
				got = s.Kind
			}
			if state == ipam.Bound && port == "veth9" {
				if d.standing != 1 { // a second pass notes it
					t.Errorf("%s behind another's port: %q, %d conflicts stand", state, got, d.standing)
				}
			} else if got != want || d.standing != 0 {
				t.Errorf("%s, %s: %q, want %q", state, port, got, want)
			}
			if len(d.unseen) > 0 {
				t.Errorf("%s: it counts as unseen", state)
			}
		}
	}
}
