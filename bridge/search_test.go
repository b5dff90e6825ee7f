package bridge

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// searchedSpaces counts the ports' namespaces that a search would leave out.
func (v *view) searchedSpaces() (n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, sp := range v.netns.spaces {
		if sp.searched {
			n++
		}
	}
	return n
}

// named reports whether a link is a gap.
func (v *view) named(link string) bool {
	for _, g := range v.Gaps() {
		if g.Kind == LinkHidden && g.Link == link {
			return true
		}
	}
	return false
}

// A namespace behind a port is searched for links on the bridge once, and then when there
// is news of such a link in it; what its guest stacks on links of its own is no such news.
func TestF19PortsAreSearchedWhenThereIsNews(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	p := ns.Port("rt0", "10.8.0.7/24")
	ns.Port("rt0", "10.8.0.8/24")
	v := open(t, ns)
	refresh := func() {
		t.Helper()
		if err := v.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if v.searchedSpaces() != 2 {
		t.Fatalf("after a whole reading %d of 2 ports were searched", v.searchedSpaces())
	}
	p.NS.Exec("ip", "link", "add", "own0", "link", "eth0", "type", "macvlan")
	p.NS.Exec("ip", "link", "del", "own0")
	v.settle()
	if v.searchedSpaces() != 2 {
		t.Error("a guest's own macvlan has it searched")
	}

	ns.Exec("ip", "link", "add", "tap0", "link", "rt0", "type", "macvtap", "mode", "bridge")
	ns.Exec("ip", "link", "set", "tap0", "netns", p.NS.Name())
	v.settle()
	if v.searchedSpaces() != 1 {
		t.Errorf("after news of a macvtap behind one of 2 ports, %d are left out", v.searchedSpaces())
	}
	refresh()
	if !v.named("tap0") || v.searchedSpaces() != 2 {
		t.Errorf("the macvtap behind a port is not named: %+v, searched %d", v.Gaps(), v.searchedSpaces())
	}
	refresh() // left out, and still known
	if !v.named("tap0") {
		t.Errorf("once its namespace is left out, the macvtap is not named: %+v", v.Gaps())
	}
	p.NS.Exec("ip", "link", "del", "tap0")
	v.settle()
	refresh()
	if v.named("tap0") {
		t.Error("the macvtap is gone, and named")
	}

	// The same in the bridge's own namespace.
	ns.Exec("ip", "link", "add", "tap1", "link", "rt0", "type", "macvtap", "mode", "bridge")
	v.settle()
	refresh()
	refresh()
	if !v.named("tap1") {
		t.Errorf("the macvtap in the bridge's namespace is not named: %+v", v.Gaps())
	}
	ns.Exec("ip", "link", "del", "tap1")
	v.settle()
	refresh()
	if v.named("tap1") {
		t.Error("the macvtap in the bridge's namespace is gone, and named")
	}
	v.noneSilent()
}

// Where the news of a link is lost without a notice, a MAC that listens on the bridge and
// that is not known has all ports searched; and what does not listen is found
// when the time is over.
func TestF19PortsAreSearchedForWhatIsNotKnown(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	p := ns.Port("rt0", "10.8.0.7/24")
	v := open(t, ns)
	lost := func(name string) { // as if it was never sent
		t.Helper()
		realtest.Eventually(t, wait, "the news", func() bool { v.settle(); return v.searchedSpaces() == 0 })
		v.mu.Lock()
		for _, sp := range v.netns.spaces {
			sp.searched = true
		}
		st := &v.netns.stacked
		st.again = false
		for id, n := range st.nests {
			if n.links = slices.DeleteFunc(n.links, func(l stackedLink) bool { return l.Name == name }); len(n.links) == 0 {
				delete(st.nests, id)
			}
		}
		v.mu.Unlock()
	}
	made := func(name string) {
		t.Helper()
		ns.Exec("ip", "link", "add", name, "link", "rt0", "type", "macvtap", "mode", "bridge")
		ns.Exec("ip", "link", "set", name, "netns", p.NS.Name())
	}
	made("tap0")
	p.NS.Up("tap0")
	// The kernel sends the news of its carrier up to a second later, which must not come
	// after all is taken for searched.
	realtest.Eventually(t, wait, "tap0's carrier", func() bool {
		return strings.Contains(p.NS.Exec("ip", "-o", "link", "show", "tap0"), "state UP")
	})
	lost("tap0")
	if err := v.searchStacked(t.Context()); err != nil {
		t.Fatal(err)
	}
	v.settle()
	if !v.named("tap0") {
		t.Errorf("what listens on the bridge is not named: %+v", v.Gaps())
	}

	made("tap1") // is down, and listens for nothing
	lost("tap1")
	find := func() bool {
		t.Helper()
		if err := v.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		return v.named("tap1")
	}
	if find() {
		t.Error("a search looked where there was no news")
	}
	v.mu.Lock()
	v.lost = true // the kernel has said that news is missing
	v.mu.Unlock()
	if !find() {
		t.Errorf("after news was lost the macvtap is not named: %+v", v.Gaps())
	}
	p.NS.Exec("ip", "link", "del", "tap1")
	v.settle()
	if find() {
		t.Error("the macvtap is gone, and named")
	}
	made("tap1")
	lost("tap1")
	v.mu.Lock()
	v.netns.stacked.searched = time.Now().Add(-searchAllEvery)
	v.mu.Unlock()
	if !find() || !v.named("tap0") {
		t.Errorf("when the time is over the macvtap is not named: %+v", v.Gaps())
	}

	made("tap2")
	lost("tap2")
	v.mu.Lock()
	v.lost = true // the kernel says so
	v.mu.Unlock()
	if find(); !v.named("tap2") {
		t.Errorf("news was lost, and the macvtap is not named: %+v", v.Gaps())
	}
}

// A namespace has a port and a link on the bridge. Its port goes, and the link's address
// is in use as before.
func TestF19ALinkOnTheBridgeOutlivesThePort(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	p := ns.Port("rt0", "10.8.0.7/24")
	v := open(t, ns)
	ns.Exec("ip", "link", "add", "m0", "link", "rt0", "type", "macvlan", "mode", "bridge")
	ns.Exec("ip", "link", "set", "m0", "netns", p.NS.Name())
	p.NS.AddAddr("m0", "10.8.0.9/24")
	if err := v.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	v.expect("10.8.0.9", "netns")
	ns.Exec("ip", "link", "del", p.HostName)
	realtest.Eventually(t, wait, "the port to go", func() bool { v.settle(); return len(v.PortNames()) == 0 })
	v.expect("10.8.0.7", "")
	v.expect("10.8.0.9", "netns")
	if s := v.about("10.8.0.9").Seen; len(s) > 0 && !strings.Contains(s[0].Note, "m0 is a macvlan on rt0") {
		t.Errorf("the sighting shows %+v", s[0])
	}
	v.noneSilent()
}
