package docker

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/api"
)

// N8: a pool that Docker would ask for again without end is refused, with what it overlaps.
func TestN8PoolsThatDockerAsksForAgain(t *testing.T) {
	for name, c := range map[string]struct{ routes, servers, says string }{
		"nothing there":                {"", "", ""},
		"others'":                      {"10.9.0.0/24", "192.0.2.53 fd00::53", ""},
		"a route in it":                {"10.8.64.128/25", "", "route to 10.8.64.128/25"},
		"a route around it":            {"10.8.0.0/16", "", "route to 10.8.0.0/16"},
		"a name server is in it":       {"", "192.0.2.53 10.8.64.53", "name server 10.8.64.53"},
		"a name server of a container": {"", "127.0.0.11", ""},
	} {
		d := &Driver{Routes: func() (out []netip.Prefix, err error) {
			for p := range strings.FieldsSeq(c.routes) {
				out = append(out, netip.MustParsePrefix(p))
			}
			return out, nil
		}, NameServers: func() (out []netip.Addr) {
			for a := range strings.FieldsSeq(c.servers) {
				out = append(out, netip.MustParseAddr(a))
			}
			return out
		}}
		err := d.checkRoutes(&api.Pool{Name: "p", Prefix: "10.8.64.0/24"})
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "--subnet 10.8.64.0/24")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// N8: a container gets an address only where the gateway says that its network is on the
// pool's bridge: elsewhere ipamd would take it for one that has gone.
func TestN8NetworksOnAnotherBridge(t *testing.T) {
	use := "and pool p is on rt0: make the network with -o com.docker.network.bridge.name=rt0"
	for name, c := range map[string]struct{ gateway, links, says string }{
		"on the pool's":                 {"10.8.64.1", "rt0", ""},
		"on another":                    {"10.8.64.1", "br-1", "the gateway 10.8.64.1 is on br-1, " + use},
		"on both":                       {"10.8.64.1", "br-1 rt0", "the gateway 10.8.64.1 is on br-1 too, " + use + ", and remove what is on br-1"},
		"on two others":                 {"fd00::1", "br-1 br-2", "the gateway fd00::1 is on br-1 and br-2, " + use},
		"on none":                       {"10.8.64.1", "", "the gateway 10.8.64.1 is on no link of the host, " + use},
		"of a pool that has none":       {"", "rt0", "pool p has no gateway"},
		"of a host that cannot be read": {"10.8.64.1", "?", "find the link that has the gateway 10.8.64.1"},
	} {
		d := &Driver{Links: func(a netip.Addr) ([]string, error) {
			if c.links == "?" {
				return nil, errors.New("netlink")
			}
			if a.String() != c.gateway {
				t.Errorf("%s: it asks for %s", name, a)
			}
			return strings.Fields(c.links), nil
		}}
		err := d.checkBridge(&api.Pool{Name: "p", Gateway: c.gateway, Bridge: "rt0"})
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.HasPrefix(err.Error(), c.says)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
