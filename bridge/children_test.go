package bridge

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// A macvlan on the bridge is no port, and frames from the bridge do not reach it:
// its addresses are seen where they are, wherever that is, and until it goes.
func TestF19AddressesOfLinksOnTheBridgeAreSeen(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, witness string
		made          func(ns, guest *nstest.NS) *nstest.NS // where the link, m0, is then
	}{
		{"in the bridge's namespace", "host", func(ns, _ *nstest.NS) *nstest.NS {
			ns.Exec("ip", "link", "add", "m0", "link", "rt0", "type", "macvlan", "mode", "bridge")
			return ns
		}},
		{"moved to another", "netns", func(ns, guest *nstest.NS) *nstest.NS {
			ns.Exec("ip", "link", "add", "m0", "link", "rt0", "type", "macvlan", "mode", "bridge")
			ns.Exec("ip", "link", "set", "m0", "netns", guest.Name())
			return guest
		}},
		{"made in another, of which the kernel reports nothing", "netns", func(ns, guest *nstest.NS) *nstest.NS {
			ns.Exec("ip", "link", "add", "m0", "link", "rt0", "netns", guest.Name(), "type", "macvlan", "mode", "private")
			return guest
		}},
	} {
		for _, running := range []bool{false, true} {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				ns, guest := nstest.New(t), nstest.New(t)
				ns.Bridge("rt0", "10.8.0.1/24")
				ns.Port("rt0", "10.8.0.8/24")
				v := open(t, ns)
				if running {
					v.run(t)
				}
				at := row.made(ns, guest)
				at.AddAddr("m0", "10.8.0.7/24")
				at.Exec("ip", "link", "set", "m0", "up")
				if !running {
					if err := v.Refresh(context.Background()); err != nil {
						t.Fatal(err)
					}
				}
				v.await("10.8.0.7", row.witness)
				if row.witness == "netns" { // the search shows the name
					realtest.Eventually(t, wait, "its namespace is named", func() bool {
						seen := v.about("10.8.0.7").Seen
						return len(seen) > 0 && strings.Contains(seen[0].Netns.Name(), guest.Name())
					})
				}
				s := v.about("10.8.0.7").Seen[0]
				if s.Port != "m0" || row.witness == "netns" && (!strings.Contains(s.Note, "m0 is a macvlan on rt0") || s.MAC == "") {
					t.Errorf("the sighting shows %+v", s)
				}
				id, _ := v.NetnsID(t.Context(), guest.Path()) // 0 where no link leads there
				for _, g := range v.Gaps() {
					if g.Link == fmt.Sprint("nsid:", id) || !strings.HasPrefix(g.Link, "nsid:") { // else of another test's guest
						t.Errorf("it is seen, and a gap: %+v", g)
					}
				}
				at.AddAddr("m0", "10.8.0.9/24")
				v.expect("10.8.0.9", row.witness) // at once: its news is sent by now
				v.noneSilent()
				at.Exec("ip", "link", "del", "m0")
				if !running {
					if err := v.Refresh(context.Background()); err != nil {
						t.Fatal(err)
					}
				}
				v.await("10.8.0.7", "")
				v.expect("10.8.0.8", "netns")
				v.noneSilent()
			})
		}
	}
}

// Each namespace has a table of ids of its own, and the kernel sends the end of an id to all
// that listen to that namespace. A guest's number means another namespace, or none, in the
// bridge's table; taken for ours it would end what is known of that one.
func TestF19AnotherNamespacesIDsAreItsOwn(t *testing.T) {
	t.Parallel()
	ns, guest, other, ended := nstest.New(t), nstest.New(t), nstest.New(t), nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	ns.Exec("ip", "link", "add", "m0", "link", "rt0", "type", "macvlan", "mode", "bridge")
	ns.Exec("ip", "link", "set", "m0", "netns", guest.Name())
	guest.AddAddr("m0", "10.8.0.7/24")
	ns.Exec("ip", "netns", "set", other.Name(), "auto") // whose news arrives from here on
	v := open(t, ns)
	v.expect("10.8.0.7", "netns")
	id, err := v.NetnsID(t.Context(), guest.Path())
	if err != nil {
		t.Fatal(err)
	}
	other.Exec("ip", "netns", "set", ended.Name(), fmt.Sprint(id))
	ended.Delete()
	realtest.Eventually(t, wait, "the id ends", func() bool {
		return !strings.Contains(other.Exec("ip", "netns", "list-id"), fmt.Sprint("nsid ", id, " "))
	})
	v.settle()
	guest.AddAddr("m0", "10.8.0.9/24")
	v.expect("10.8.0.9", "netns")
	v.noneSilent()
}

// What cannot be read is named: a macvlan in a namespace that has no name and no
// process, and the virtual machine behind a macvtap.
func TestF19LinksThatCannotBeReadAreNamed(t *testing.T) {
	t.Parallel()
	ns, guest := nstest.New(t), nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	v := open(t, ns)
	v.run(t)
	ns.Exec("ip", "link", "add", "tap0", "link", "rt0", "type", "macvtap", "mode", "bridge")
	gap := func(link, says string) bool {
		for _, g := range v.Gaps() {
			if g.Kind == LinkHidden && (link == "" || g.Link == link) && strings.Contains(g.Detail, says) && !g.Since.IsZero() && g.Next != "" {
				return true
			}
		}
		return false
	}
	realtest.Eventually(t, wait, "the macvtap is named", func() bool { return gap("tap0", "macvtap on rt0") })
	ns.Exec("ip", "link", "del", "tap0")
	realtest.Eventually(t, wait, "it is gone", func() bool { return len(v.Gaps()) == 0 })

	ns.Exec("ip", "link", "add", "m0", "link", "rt0", "netns", guest.Name(), "type", "macvlan", "mode", "bridge")
	guest.Hide()
	guest.Up("m0")
	realtest.Eventually(t, wait, "the hidden one is named", func() bool { return gap("", "in a namespace that cannot be found") })
	v.noneSilent()
}

// What was seen on a link goes with the bridge that the link was stacked on, once its
// successor was searched.
func TestF19LinksGoWithTheirBridge(t *testing.T) {
	t.Parallel()
	ns, guest := nstest.New(t), nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	ns.Exec("ip", "link", "add", "m0", "link", "rt0", "type", "macvlan", "mode", "bridge")
	ns.Exec("ip", "link", "set", "m0", "netns", guest.Name())
	guest.AddAddr("m0", "10.8.0.7/24")
	v := open(t, ns)
	v.expect("10.8.0.7", "netns")
	ns.Exec("ip", "link", "del", "rt0") // and m0 with it
	v.settle()
	ns.Bridge("rt0", "10.8.0.1/24")
	if err := v.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	v.expect("10.8.0.7", "")
	v.noneSilent()
}
