package bridge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// openWithMacvlan opens a bridge with a macvlan in another namespace, which has 10.8.0.7.
func openWithMacvlan(t *testing.T) (v *view, nsid int) {
	t.Helper()
	ns, guest := nstest.New(t), nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	macvlanIn(ns, guest, "m0")
	guest.AddAddr("m0", "10.8.0.7/24")
	v = open(t, ns)
	v.expect("10.8.0.7", "netns")
	nsid, err := v.NetnsID(t.Context(), guest.Path())
	if err != nil {
		t.Fatal(err)
	}
	return v, nsid
}

// searchNow makes a search whose outcome is taken in later, or not at all.
func (v *view) searchNow() *search {
	v.t.Helper()
	v.mu.Lock()
	s := v.newSearch()
	v.mu.Unlock()
	if err := s.run(v.t.Context()); err != nil {
		v.t.Fatal(err)
	}
	return s
}

// settledSees reports whether an address is seen. It settles a few times: a machine that stands still
// for longer than inlineWithin leaves links to the next call.
func (v *view) settledSees(addr string) (seen bool, err error) {
	for range 5 {
		if err = v.Settle(v.t.Context()); err != nil || v.seen(addr) {
			return err == nil, err
		}
	}
	return false, nil
}

// hasUnsearched reports whether a link may be missing that neither a search nor news showed.
func (v *view) hasUnsearched() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return !v.netns.stacked.unsearched.IsZero()
}

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
	under := v.searchNow()
	v.mu.Lock()
	v.closeSockets()
	v.mu.Unlock()
	macvlanIn(ns, guest, "m0")
	guest.AddAddr("m0", "10.8.0.7/24")
	if err := v.openAgain(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := v.Settle(t.Context()); !v.seen("10.8.0.7") && err == nil {
			t.Error("the address is not seen, and the witness speaks")
		}
		if err := under.end(t.Context(), v.Bridge, nil); err != nil {
			t.Fatal(err)
		}
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
	if !v.hasUnsearched() {
		t.Error("that another link may be missing is no gap")
	}
	if err := v.searchStacked(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v.noneSilent(); v.hasUnsearched() {
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
	if seen, err := v.settledSees("10.8.0.7"); !seen || err != nil {
		t.Errorf("the other's address is seen: %v, %v", seen, err)
	}
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
	under := v.searchNow() // while the first one lived
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
		s := v.searchNow()
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

// While a search runs, a namespace ends, and the search gives its id to another one, where it finds
// a link. That is lost, and so searched for once more.
func TestF19AnIDThatASearchGivesAgain(t *testing.T) {
	t.Parallel()
	v, id := openWithMacvlan(t)
	under := v.searchNow()
	v.mu.Lock()
	v.netns.receiveEnd(id)
	delete(v.netns.spaces, id)
	v.netns.stacked.again = false
	v.netns.setStacked(v.wire(), under)
	again, missed, known := v.netns.stacked.again, !v.netns.stacked.unsearched.IsZero(), v.netns.stacked.nests[id] != nil
	v.mu.Unlock()
	if !again || !missed || known {
		t.Errorf("to be searched for again: %v, and a gap: %v; taken for what had the id before: %v", again, missed, known)
	}
	if err := v.searchStacked(t.Context()); err != nil {
		t.Fatal(err)
	}
	v.expect("10.8.0.7", "netns")
	if v.noneSilent(); v.hasUnsearched() {
		t.Error("all links were searched for, and one may be missing")
	}
}

// Guests have so many links looked up during a search that there is no room to note another.
// Those that are known stand.
func TestG1NoRoomToNoteALink(t *testing.T) {
	t.Parallel()
	ns, guest := nstest.New(t), nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	macvlanIn(ns, guest, "m0")
	v := open(t, ns)
	under := v.searchNow()
	v.mu.Lock()
	for i := range mostLinks {
		v.netns.stacked.correct(linkIn{-7, i}, true)
	}
	v.mu.Unlock()
	macvlanIn(ns, guest, "m1")
	guest.AddAddr("m1", "10.8.0.7/24")
	v.expect("10.8.0.7", "netns")
	links := func() (all []string) {
		for _, n := range v.netns.stacked.nests {
			for _, l := range n.links {
				all = append(all, l.Name)
			}
		}
		slices.Sort(all)
		return all
	}
	v.mu.Lock()
	v.netns.setStacked(v.wire(), under)
	known := links()
	for _, n := range v.netns.stacked.nests {
		n.links[len(n.links)-1].Index += 100 // one that went, and its news was lost
	}
	v.mu.Unlock()
	if want := []string{"m0", "m1"}; !slices.Equal(known, want) || !v.hasUnsearched() {
		t.Errorf("known are %v, want %v, and others may be missing: %v", known, want, v.hasUnsearched())
	}
	if err := v.searchStacked(t.Context()); err != nil {
		t.Fatal(err)
	}
	v.mu.Lock()
	known = links()
	v.mu.Unlock()
	if want := []string{"m0", "m1"}; !slices.Equal(known, want) || v.hasUnsearched() {
		t.Errorf("after a search that had room known are %v, want %v, and others may be missing: %v", known, want, v.hasUnsearched())
	}
}

// News of one link may have been lost while others were searched for: that search does not show it.
func TestF19NewsThatIsLostDuringASearch(t *testing.T) {
	t.Parallel()
	v, _ := openWithMacvlan(t)
	v.mu.Lock()
	v.netns.missSome()
	v.mu.Unlock()
	under := v.searchNow()
	v.mu.Lock()
	v.netns.stacked.again = false
	v.netns.setStacked(v.wire(), under)
	v.netns.missSome()
	v.mu.Unlock()
	under = v.searchNow()
	v.mu.Lock()
	v.netns.missSome()
	v.netns.stacked.again = false // another reason ended
	v.netns.setStacked(v.wire(), under)
	v.mu.Unlock()
	if !v.hasUnsearched() {
		t.Error("what was lost during the search is no gap")
	}
}

// The caller of a search goes away: that says nothing about the kernel, and all is searched again.
func TestASearchWhoseCallerGoesAway(t *testing.T) {
	t.Parallel()
	v, _ := openWithMacvlan(t)
	ctx, cancel := context.WithCancel(t.Context())
	v.mu.Lock()
	v.netns.stacked.home = true
	s := v.newSearch()
	v.mu.Unlock()
	cancel()
	if err := s.end(ctx, v.Bridge, s.run(ctx)); !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	v.mu.Lock()
	home, again := v.netns.stacked.home, v.netns.stacked.again
	v.mu.Unlock()
	if home || !again {
		t.Errorf("the bridge's own namespace counts as searched: %v, a search is wanted: %v", home, again)
	}
	v.noneSilent()
}

// A bridge goes, and it or another one comes. A call before the search of its links must not take one
// that was not searched for for none, and a search that was under way says nothing about them.
func TestF19LinksOfABridgeThatCameAreSearchedFor(t *testing.T) {
	t.Parallel()
	for name, comes := range map[string]string{"the same": "rt1", "another": "rt9"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns, guest := nstest.New(t), nstest.New(t)
			ns.Bridge("rt0", "10.8.0.1/24")
			ns.Bridge("rt9")
			v := open(t, ns)
			under := v.searchNow()
			ns.Exec("ip", "link", "set", "rt0", "name", "rt1")
			v.settle()
			macvlanOn(ns, guest, comes, "m0")
			guest.AddAddr("m0", "10.8.0.7/24")
			v.settle()
			ns.Exec("ip", "link", "set", comes, "name", "rt0")
			for _, when := range []string{"before the search ends", "after it"} {
				if err := v.Settle(t.Context()); !v.seen("10.8.0.7") && err == nil {
					t.Errorf("%s the address is not seen, and the witness speaks", when)
				}
				if err := under.end(t.Context(), v.Bridge, nil); err != nil {
					t.Fatal(err)
				}
			}
			if err := v.searchStacked(t.Context()); err != nil {
				t.Fatal(err)
			}
			v.expect("10.8.0.7", "netns")
			v.noneSilent()
		})
	}
}

// A link goes while a search that found it is under way.
func TestF19ALinkThatGoesDuringTheSearchThatFindsIt(t *testing.T) {
	t.Parallel()
	ns, guest := nstest.New(t), nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	v := open(t, ns)
	macvlanIn(ns, guest, "m0")
	v.mu.Lock()
	v.drain()
	clear(v.netns.stacked.came) // its news was lost
	v.netns.stacked.again = false
	v.mu.Unlock()
	under := v.searchNow()
	guest.Exec("ip", "link", "del", "m0")
	v.settle()
	v.mu.Lock()
	v.netns.setStacked(v.wire(), under)
	again, known := v.netns.stacked.again, len(v.netns.stacked.nests)
	v.mu.Unlock()
	if known > 0 && !again {
		t.Error("a link that went is known, and no search is wanted")
	}
}
