package docker

import (
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
