package bridge

import (
	"net/netip"
	"testing"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/nstest"
)

// The host's own namespace has an id, too, once a namespace asks about its own far end: the host witness
// reads that, and what it sees there is not beside the bridge.
func TestTheHostIsNotBesideItsBridge(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	p := ns.Port("rt0", "10.8.0.7/24")
	v := open(t, ns)
	for _, of := range []string{"10.8.0.1", "10.8.0.7"} {
		if says, err := v.Beside(t.Context(), census.Sought{Has: func(a netip.Addr) bool { return a == netip.MustParseAddr(of) }}); len(says) > 0 || err != nil {
			t.Errorf("%s is beside the bridge: %v, %v", of, says, err)
		}
	}
	ns.Exec("ip", "link", "set", p.HostName, "nomaster")
	v.settle()
	if says, err := v.Beside(t.Context(), census.Sought{Has: func(a netip.Addr) bool { return a == netip.MustParseAddr("10.8.0.7") }}); len(says) == 0 || err != nil {
		t.Errorf("what is unplugged is not beside the bridge: %v", err)
	}
}
