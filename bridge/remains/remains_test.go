package remains

import (
	"context"
	"net/netip"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/nspath"
	"github.com/ipamd/ipamd/bridge/rtnl"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/nstest"
)

// What the kernel has of where sandboxes were last known to be: ports, links that were renamed, unplugged
// or moved to another bridge, namespaces at their paths and other ones, and what is in them.
func TestOf(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	ns.Bridge("other0")
	const addr = "10.8.0.7"
	port, loose, moved := ns.Port("rt0", addr+"/24"), ns.Port("rt0", addr+"/24"), ns.Port("other0", addr+"/24")
	empty, barren := ns.Port("rt0"), ns.Port("other0")
	ns.Exec("ip", "link", "set", loose.HostName, "nomaster")
	ns.Exec("ip", "link", "set", empty.HostName, "nomaster")
	ns.Exec("ip", "tuntap", "add", "tap0", "mode", "tap")
	m := New(func(context.Context) (k *rtnl.Socket, err error) {
		ns.Do(func() { k, err = rtnl.Dial(unix.NETLINK_ROUTE) })
		return k, err
	}, nspath.New(nil))
	inode := func(p *nstest.Port) uint64 {
		st, err := os.Stat(p.NS.Path())
		if err != nil {
			t.Fatal(err)
		}
		return st.Sys().(*syscall.Stat_t).Ino
	}
	index := func(name string) int {
		l, err := ns.Netlink().LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		return l.Attrs().Index
	}
	link := func(p *nstest.Port, bridge, inside string) *census.HostLink {
		return &census.HostLink{Index: index(p.HostName), Name: p.HostName, Bridge: bridge, Watched: bridge == "rt0", Leads: true, MAC: p.MAC.String(), Inside: inside}
	}
	lives := "a namespace with " + addr
	for name, tt := range map[string]struct {
		at   census.LastKnown
		want census.Remains
	}{
		"nothing is known":   {},
		"nothing is left":    {at: census.LastKnown{Name: "gone0", Link: 9999, Behind: 9998, Netns: "/run/netns/ipamd-none", Inode: 1}},
		"a port":             {census.LastKnown{Name: port.HostName, Link: index(port.HostName)}, census.Remains{Link: link(port, "rt0", "")}},
		"by its name":        {census.LastKnown{Name: port.HostName}, census.Remains{Named: link(port, "rt0", "")}},
		"made anew":          {census.LastKnown{Name: port.HostName, Link: 9999}, census.Remains{Named: link(port, "rt0", "")}},
		"renamed":            {census.LastKnown{Name: "gone0", Link: index(port.HostName)}, census.Remains{Link: link(port, "rt0", lives)}},
		"two links by now":   {census.LastKnown{Name: loose.HostName, Link: index(port.HostName)}, census.Remains{Link: link(port, "rt0", lives), Named: link(loose, "", lives)}},
		"behind a port":      {census.LastKnown{Behind: index(port.HostName)}, census.Remains{Behind: link(port, "rt0", lives)}},
		"behind another's":   {census.LastKnown{Behind: index(barren.HostName)}, census.Remains{Behind: link(barren, "other0", "")}},
		"unplugged":          {census.LastKnown{Behind: index(loose.HostName)}, census.Remains{Behind: link(loose, "", lives)}},
		"unplugged, empty":   {census.LastKnown{Link: index(empty.HostName), Name: empty.HostName}, census.Remains{Link: link(empty, "", "")}},
		"on another bridge":  {census.LastKnown{Link: index(moved.HostName), Name: moved.HostName}, census.Remains{Link: link(moved, "other0", "")}},
		"a tap, not open":    {census.LastKnown{Name: "tap0"}, census.Remains{Named: &census.HostLink{Index: index("tap0"), Name: "tap0", Tap: true}}},
		"its namespace":      {census.LastKnown{Netns: loose.NS.Path(), Inode: inode(loose)}, census.Remains{Netns: true, Inside: lives}},
		"that, without it":   {census.LastKnown{Netns: empty.NS.Path(), Inode: inode(empty)}, census.Remains{Netns: true}},
		"another namespace":  {census.LastKnown{Netns: loose.NS.Path(), Inode: inode(empty)}, census.Remains{Other: &census.Other{Inode: inode(loose), Inside: lives}}},
		"another, without":   {census.LastKnown{Netns: empty.NS.Path(), Inode: inode(loose)}, census.Remains{Other: &census.Other{Inode: inode(empty)}}},
		"an unknown one":     {census.LastKnown{Netns: loose.NS.Path()}, census.Remains{Netns: true}},
		"a name too long":    {census.LastKnown{Name: "a-name-of-no-link"}, census.Remains{}},
		"a path of no netns": {census.LastKnown{Netns: "/run/netns/ipamd-none", Inode: 1}, census.Remains{}},
	} {
		got, err := m.Of(t.Context(), tt.at, func(a netip.Addr) bool { return a.String() == addr }, func(b string) bool { return b == "rt0" })
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		same := func(what string, got, want *census.HostLink) {
			if (got == nil) != (want == nil) || got != nil && *got != *want {
				t.Errorf("%s: %s is %+v, want %+v", name, what, got, want)
			}
		}
		same("the link", got.Link, tt.want.Link)
		same("the named one", got.Named, tt.want.Named)
		same("the one it was behind", got.Behind, tt.want.Behind)
		if (got.Other == nil) != (tt.want.Other == nil) || got.Other != nil && *got.Other != *tt.want.Other {
			t.Errorf("%s: at its path is %+v, want %+v", name, got.Other, tt.want.Other)
		}
		if got.Netns != tt.want.Netns || got.Inside != tt.want.Inside {
			t.Errorf("%s: the namespace: %v %q, want %v %q", name, got.Netns, got.Inside, tt.want.Netns, tt.want.Inside)
		}
	}
	if _, err := m.Of(t.Context(), census.LastKnown{Netns: "/etc/passwd", Inode: 1}, nil, nil); err == nil {
		t.Error("a path that is refused says that nothing is left")
	}
	for name, want := range map[string]string{port.HostName: "rt0", moved.HostName: "other0", loose.HostName: "", "gone0": ""} {
		if of, err := m.PortOf(t.Context(), name, 0); of != want || err != nil {
			t.Errorf("%s is a port of %q, %v; want %q", name, of, err, want)
		}
	}
	none := func(context.Context) (Watched, error) { return Watched{}, nil }
	if says, err := m.Beside(t.Context(), none, census.Sought{Has: func(a netip.Addr) bool { return a.String() == addr }}); len(says) == 0 || err != nil {
		t.Errorf("an address behind an unplugged link is not beside the bridge: %v", err)
	}
	loose.DelAddr(addr + "/24")
	just := func(context.Context) (Watched, error) { // what witnesses read had no ports a moment ago
		return Watched{Bridges: map[int]bool{index("rt0"): true}}, nil
	}
	says, err := m.Beside(t.Context(), just, census.Sought{Has: func(a netip.Addr) bool { return a.String() == addr }})
	if len(says) != 1 || err != nil {
		t.Errorf("an address behind a link that was plugged just now is at %v, %v", says, err)
	}
}
