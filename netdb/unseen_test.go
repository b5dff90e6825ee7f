package netdb_test

import (
	"testing"

	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// What a lease was seen by stays with what it names: a bind that adds to it, or says the same
// again, does not take that back, and one that names another port or namespace does.
func TestWhatWasSeenStaysWithWhatIsNamed(t *testing.T) {
	unseen, behind := netdb.Plug{Boot: "one", Unseen: true}, netdb.Plug{Boot: "one", Behind: 7}
	port := netdb.Binding{HostInterface: "veth1", Plug: netdb.Plug{Boot: "one", Index: 3}}
	space := netdb.Binding{Netns: "/run/netns/a", Plug: netdb.Plug{Boot: "one", Inode: 9, Behind: 7}}
	with := func(n netdb.Binding, p netdb.Plug) netdb.Binding { n.Plug = p; return n }
	mac := netdb.Binding{MAC: "02:00:00:00:00:01", Plug: unseen}
	for name, tt := range map[string]struct {
		binds []netdb.Binding
		want  netdb.Plug
	}{
		"nothing is there":                {[]netdb.Binding{mac}, unseen},
		"a port":                          {[]netdb.Binding{port}, port.Plug},
		"a port, then a MAC":              {[]netdb.Binding{port, mac}, port.Plug},
		"a namespace, then a MAC":         {[]netdb.Binding{space, mac}, space.Plug},
		"a port that has gone, again":     {[]netdb.Binding{port, with(port, unseen)}, netdb.Plug{}},
		"a port that was not there":       {[]netdb.Binding{with(port, unseen), port}, port.Plug},
		"a MAC that is seen":              {[]netdb.Binding{mac, {Seen: true, Plug: behind}}, behind},
		"a MAC that was seen, again":      {[]netdb.Binding{mac, {Seen: true, Plug: behind}, mac}, behind},
		"a MAC that was seen, another's":  {[]netdb.Binding{mac, {Seen: true, Plug: behind}, {MAC: "02:00:00:00:00:02", Plug: unseen}}, unseen},
		"a port that was seen, another":   {[]netdb.Binding{port, {HostInterface: "veth2", Plug: unseen}}, unseen},
		"another namespace, beside any":   {[]netdb.Binding{space, {Netns: "/run/netns/b", Plug: unseen}}, unseen},
		"seen, and in another boot named": {[]netdb.Binding{port, with(port, netdb.Plug{Boot: "two", Unseen: true})}, netdb.Plug{Boot: "two", Unseen: true}},
	} {
		t.Run(name, func(t *testing.T) {
			b := Open(t)
			Pool(t, b, "default", "10.8.64.0/24")
			l := Reserve(t, b, "a")
			for _, n := range tt.binds {
				var err error
				if l, err = b.Bind(t.Context(), Who(netdb.ByClient, "bound"), l.ID, 0, n); err != nil {
					t.Fatal(err)
				}
			}
			if l.Plug != tt.want {
				t.Errorf("it is %+v, want %+v", l.Plug, tt.want)
			}
		})
	}
}
