package bridge

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// The kernel could not be asked which links are on the bridge. The witness is silent until it
// was, whatever else is read meanwhile.
func TestF19AFailedSearchStaysASilence(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	v := open(t, ns)
	failed := errors.New("the kernel did not answer")
	v.mu.Lock()
	v.netns.fail(nestsScope, failed)
	v.complete() // as a whole reading ends
	v.lost = true
	v.mu.Unlock()
	if err := v.Settle(t.Context()); !errors.Is(err, failed) {
		t.Errorf("after all else was read: %v", err)
	}
	if err := v.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	v.noneSilent()
}

// The sockets were opened again: what came meanwhile is in no news. A call before the search
// ends must not take a link that it does not know for none.
func TestF19NewSocketsKnowOfNoLink(t *testing.T) {
	t.Parallel()
	ns, guest := nstest.New(t), nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	v := open(t, ns)
	v.mu.Lock()
	under := v.newSearch()
	v.mu.Unlock()
	if err := under.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	v.mu.Lock()
	v.closeSockets()
	v.mu.Unlock()
	macvlanIn(ns, guest, "m0")
	guest.AddAddr("m0", "10.8.0.7/24")
	if err := v.openAgain(); err != nil {
		t.Fatal(err)
	}
	if err := v.Settle(t.Context()); !v.seen("10.8.0.7") && err == nil {
		t.Error("the address is not seen, and the witness speaks")
	}
	if err := v.searchStacked(t.Context()); err != nil {
		t.Fatal(err)
	}
	v.expect("10.8.0.7", "netns")
	v.noneSilent()
}

// News was lost, and with it perhaps the news of another link. That of this one was not.
func TestF19ALinkIsSeenThoughNewsWasLost(t *testing.T) {
	t.Parallel()
	ns, guest := nstest.New(t), nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	v := open(t, ns)
	macvlanIn(ns, guest, "m0")
	guest.AddAddr("m0", "10.8.0.7/24")
	v.mu.Lock()
	v.lost = true
	v.mu.Unlock()
	v.expect("10.8.0.7", "netns")
	v.settle()
	hasGap := func() bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		return !v.netns.stacked.unsearched.IsZero()
	}
	if !hasGap() {
		t.Error("that another link may be missing is no gap")
	}
	if err := v.searchStacked(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v.noneSilent(); hasGap() {
		t.Error("all links were searched for, and one may be missing")
	}
}

// A guest has so many links come at once that not all are looked up by one call. Another
// guest's is.
func TestG1ManyLinksKeepNoOtherAway(t *testing.T) {
	t.Parallel()
	ns, many, other := nstest.New(t), nstest.New(t), nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	v := open(t, ns)
	for i := range 130 {
		macvlanIn(ns, many, fmt.Sprint("m", i))
	}
	macvlanIn(ns, other, "m0")
	other.AddAddr("m0", "10.8.0.7/24")
	v.expect("10.8.0.7", "netns")
}

// The kernel gives a namespace the id of one that has ended, before a search has shown
// what became of that. What comes in the new one is seen at once.
func TestF19AnIDThatIsGivenAgain(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	v := open(t, ns)
	idOf := func(guest *nstest.NS) int {
		t.Helper()
		id, err := v.NetnsID(t.Context(), guest.Path())
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	first := nstest.New(t)
	macvlanIn(ns, first, "m0")
	first.AddAddr("m0", "10.8.0.7/24")
	v.expect("10.8.0.7", "netns")
	id := idOf(first)
	v.mu.Lock()
	under := v.newSearch() // began while the first one lived
	v.mu.Unlock()
	if err := under.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	first.Delete()
	realtest.Eventually(t, wait, "the first one's end", func() bool {
		v.settle()
		v.mu.Lock()
		defer v.mu.Unlock()
		return len(v.netns.stacked.nests) == 0
	})
	v.expect("10.8.0.7", "netns") // until a search has looked
	second := nstest.New(t)
	macvlanIn(ns, second, "m1")
	second.AddAddr("m1", "10.8.0.8/24")
	if now := idOf(second); now != id {
		t.Fatalf("the kernel gave the id %d, and the first one's was %d", now, id)
	}
	v.expect("10.8.0.8", "netns")
	v.mu.Lock()
	v.netns.setStacked(v.wire(), under)
	v.mu.Unlock()
	v.expect("10.8.0.7", "netns") // which began before it ended
	v.expect("10.8.0.8", "netns")
	if err := v.searchStacked(t.Context()); err != nil {
		t.Fatal(err)
	}
	v.expect("10.8.0.7", "")
	v.expect("10.8.0.8", "netns")
	v.noneSilent()
}

// A namespace gets a link on the bridge and loses its port before the search that the link's news
// asks for.
func TestF19ALinkOutlivesThePortBeforeTheSearch(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	p := ns.Port("rt0", "10.8.0.7/24")
	v := open(t, ns)
	macvlanIn(ns, p.NS, "m0")
	p.NS.AddAddr("m0", "10.8.0.9/24")
	v.expect("10.8.0.9", "netns")
	ns.Exec("ip", "link", "del", p.HostName)
	realtest.Eventually(t, wait, "the port to go", func() bool { v.settle(); return len(v.PortNames()) == 0 })
	v.expect("10.8.0.7", "")
	v.expect("10.8.0.9", "netns")
	v.noneSilent()
}

// A guest has links come and go without end, in a namespace of which no search can list all:
// what is known of it does not grow.
func TestG1LinksThatComeAndGoAreForgotten(t *testing.T) {
	t.Parallel()
	ns, guest := nstest.New(t), nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	macvlanIn(ns, guest, "m0")
	v := open(t, ns)
	for i := range 20 {
		name := fmt.Sprint("x", i)
		macvlanIn(ns, guest, name)
		v.settle()
		v.mu.Lock()
		s := v.newSearch()
		v.mu.Unlock()
		if err := s.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		guest.Exec("ip", "link", "del", name)
		v.settle()
		v.mu.Lock()
		for id := range s.nests {
			s.partly[id] = errEndsEarly
		}
		v.netns.setStacked(v.wire(), s)
		v.mu.Unlock()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, n := range v.netns.stacked.nests {
		if len(n.links) > 3 { // the last search may have found one that has gone since
			t.Errorf("%d links are known, and there is one", len(n.links))
		}
	}
}

// What went before its MAC was asked for is not remembered: no news of it comes again.
func TestG1NoMACOfALinkThatWent(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	ns.Port("rt0", "10.8.0.7/24")
	v := open(t, ns)
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, sp := range v.netns.spaces {
		before := len(sp.macs)
		if sp.readMAC(v.kernel, 9999); len(sp.macs) != before {
			t.Errorf("known are %v", sp.macs)
		}
	}
}
