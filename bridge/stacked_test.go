package bridge

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// macvlanIn makes a macvlan on rt0, in another namespace.
func macvlanIn(ns, guest *nstest.NS, name string) { macvlanOn(ns, guest, "rt0", name) }

func macvlanOn(ns, guest *nstest.NS, bridge, name string) {
	ns.Exec("ip", "link", "add", name, "link", bridge, "type", "macvlan", "mode", "bridge")
	ns.Exec("ip", "link", "set", name, "netns", guest.Name())
}

// A guest takes its macvlan down, and makes another with the same MAC in a namespace
// that the kernel reports nothing of: the MAC that the bridge receives is not the first one's.
func TestF19ALinkThatIsDownExplainsNoMAC(t *testing.T) {
	t.Parallel()
	ns, guest, hidden := nstest.New(t), nstest.New(t), nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	v := open(t, ns)
	macvlanIn(ns, guest, "m0")
	guest.AddAddr("m0", "10.8.0.7/24")
	guest.Up("m0")
	if err := v.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	v.expect("10.8.0.7", "netns")
	mac := v.about("10.8.0.7").Seen[0].MAC
	guest.Exec("ip", "link", "set", "m0", "down")
	guest.Exec("ip", "link", "add", "m1", "link", "m0", "netns", hidden.Name(), "address", mac, "type", "macvlan", "mode", "bridge")
	hidden.AddAddr("m1", "10.8.0.9/24")
	hidden.Up("m1")
	if err := v.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	v.expect("10.8.0.9", "netns")
	v.noneSilent()

	hidden.Exec("ip", "link", "set", "m1", "down")
	guest.Up("m0")
	hidden.Exec("ip", "link", "del", "m1")
	if err := v.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	v.expect("10.8.0.9", "")
	if v.named(mac) {
		t.Errorf("the link is up again, and a gap: %+v", v.Gaps())
	}
}

// The search for stacked links takes as long as guests make it take, and rests nine times as
// long. A call sees the address of a link that came meanwhile.
func TestF19ALinkIsSeenBeforeTheSearch(t *testing.T) {
	t.Parallel()
	ns, guest := nstest.New(t), nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	v := open(t, ns)
	v.mu.Lock()
	under := v.newSearch() // one is under way
	v.mu.Unlock()
	if err := under.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	macvlanIn(ns, guest, "m0")
	guest.AddAddr("m0", "10.8.0.7/24")
	v.expect("10.8.0.7", "netns")
	if s := v.about("10.8.0.7").Seen[0]; s.Port != "m0" || !strings.Contains(s.Note, "m0 is a macvlan on rt0") || s.MAC == "" {
		t.Errorf("the sighting shows %+v", s)
	}
	macvlanIn(ns, guest, "m1")
	guest.AddAddr("m1", "10.8.0.8/24")
	v.mu.Lock()
	v.drain()
	v.netns.setStacked(v.wire(), under) // which found none of the two
	v.mu.Unlock()
	v.expect("10.8.0.7", "netns")
	v.expect("10.8.0.8", "netns")
	guest.Exec("ip", "link", "del", "m0")
	v.expect("10.8.0.7", "")
	if err := v.searchStacked(t.Context()); err != nil {
		t.Fatal(err)
	}
	v.expect("10.8.0.7", "")
	v.expect("10.8.0.8", "netns")
	v.noneSilent()
}

// A namespace has a link on the bridge and more addresses than are read of one: that is a
// gap, as it is for one behind a port.
func TestG1ACrowdOnAStackedLinkIsNamed(t *testing.T) {
	t.Parallel()
	ns, guest := nstest.New(t), nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/16")
	macvlanIn(ns, guest, "m0")
	guest.Fill(mostInside+50, 1)
	v := open(t, ns)
	v.run(t)
	in := func(now time.Time) bool {
		return slices.ContainsFunc(gapsAt(v.netns.gaps.Load(), now), func(g Gap) bool {
			return g.Kind == LinkHidden && g.Link == "m0" && strings.Contains(g.Detail, fmt.Sprint(mostInside)) && g.Next != ""
		})
	}
	realtest.Eventually(t, wait, "the crowd is named", func() bool { return in(time.Now().Add(gapAfter)) })
	v.noneSilent()
}

// What news showed in a namespace with a link on the bridge goes with the namespace, also
// when the bridge was another in between.
func TestG1NewsOfANamespaceThatEnds(t *testing.T) {
	t.Parallel()
	ns, guest := nstest.New(t), nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/16")
	macvlanIn(ns, guest, "m0")
	guest.Fill(mostInline+50, 1)
	v := open(t, ns)
	guest.AddAddr("m0", "10.8.200.7/16")
	v.expect("10.8.200.7", "netns")
	ns.Exec("ip", "link", "del", "rt0") // and m0
	v.settle()
	ns.Bridge("rt0", "10.8.0.1/16")
	macvlanIn(ns, guest, "m0") // in the namespace of the same id
	if err := v.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	v.expect("10.8.200.7", "")
	v.noneSilent()
}
