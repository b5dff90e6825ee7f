package bridge

import (
	"fmt"
	"testing"
	"time"

	"github.com/ipamd/ipamd/bridge/rtnl"
	"github.com/ipamd/ipamd/internal/nstest"
)

// A guest has an address on a link of which there is more to say than is read of one
// answer, or than can be believed. No call waits for the rest, the address is seen, and the link is asked for once, until
// there is news of it.
func TestG1ALinkThatIsTooLong(t *testing.T) {
	t.Parallel()
	for _, sources := range []int{6_000, 12_000} {
		t.Run(fmt.Sprint(sources), func(t *testing.T) { linkThatIsTooLong(t, sources) })
	}
}

// A link of the host, which is no port, has more to say of it than is read, or can be believed.
func TestALongLinkOfTheHostSilencesNoWitness(t *testing.T) {
	t.Parallel()
	for _, sources := range []int{6_000, 12_000} {
		t.Run(fmt.Sprint(sources), func(t *testing.T) {
			t.Parallel()
			ns := nstest.New(t)
			ns.Bridge("rt0", "10.8.0.1/24")
			ns.Exec("ip", "link", "add", "d0", "type", "veth", "peer", "name", "d1")
			v := open(t, ns)
			ns.LongLink("d0", "m0", sources)
			v.settle()
			v.noneSilent()
			if err := v.netns.err(); err != nil {
				t.Error(err)
			}
		})
	}
}

func linkThatIsTooLong(t *testing.T, sources int) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	p := ns.Port("rt0", "10.8.0.7/24")
	p.NS.LongLink("eth0", "m0", sources)
	p.NS.Exec("ip", "address", "add", "10.8.0.8/24", "dev", "m0")
	quick := func(what string, do func()) {
		t.Helper()
		// Where a bridge is deleted, in any namespace, the kernel has all changes of links wait: 13 s were seen.
		done, stood := make(chan struct{}), make(chan time.Duration, 1)
		go func() {
			var sum time.Duration
			for {
				began := time.Now()
				ns.Exec("ip", "link", "set", "lo", "up")
				if took := time.Since(began); took > time.Second {
					sum += took
				}
				select {
				case <-done:
					stood <- sum
					return
				case <-time.After(100 * time.Millisecond):
				}
			}
		}()
		began := time.Now()
		do()
		took := time.Since(began)
		close(done)
		if still := <-stood; took-still > rtnl.ReplyTimeout*time.Second/2 {
			t.Errorf("%s took %v, and the kernel stood still for %v of it", what, took, still)
		}
	}
	var v *view
	quick("open", func() { v = open(t, ns) })
	v.expect("10.8.0.7", "netns")
	v.expect("10.8.0.8", "netns")
	if s := v.about("10.8.0.7").Seen[0]; s.MAC != p.MAC.String() {
		t.Errorf("the sighting of another link's address is %+v", s)
	}
	const lists = 2 // one of each family
	p.AddAddr("10.8.0.9/24")
	if asked := v.asks(v.settle); asked != lists {
		t.Errorf("another address was %d questions, want %d", asked, lists)
	}
	quick("settle", func() {
		p.NS.Exec("ip", "link", "set", "m0", "address", "02:00:00:00:00:08")
		const links = 1 // its MAC; whether it is on the bridge, which the news does not say, the search shows
		if asked := v.asks(v.settle); asked != lists+links {
			t.Errorf("news of the link was %d questions, want %d", asked, lists+links)
		}
	})
	v.noneSilent()
	// Short again, it is read.
	p.NS.Exec("ip", "link", "set", "m0", "type", "macvlan", "macaddr", "flush")
	p.NS.Exec("ip", "link", "set", "m0", "address", "02:00:00:00:00:09")
	v.settle()
	if s := v.about("10.8.0.8").Seen[0]; s.MAC != "02:00:00:00:00:09" {
		t.Errorf("the sighting is %+v, and the link is short", s)
	}
}

// News of a link on the bridge is longer than is read: the search that it asks for names the
// namespace, of whose links not all can be listed.
func TestG1AStackedLinkThatIsTooLong(t *testing.T) {
	t.Parallel()
	ns, guest, other := nstest.New(t), nstest.New(t), nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	macvlanIn(ns, guest, "m0")
	ns.Exec("ip", "netns", "set", other.Name(), "auto")
	v := open(t, ns)
	id, err := v.NetnsID(t.Context(), other.Path())
	if err != nil {
		t.Fatal(err)
	}
	guest.LongLink("m0", "m1", 12_000) // which is on rt0, too
	v.settle()
	if err := v.searchStacked(t.Context()); err != nil { // what was asked for when it was in there
		t.Fatal(err)
	}
	guest.Exec("ip", "link", "set", "m1", "netns", other.Name())
	other.Exec("ip", "address", "add", "10.8.0.9/24", "dev", "m1")
	v.settle()
	v.mu.Lock()
	again := v.netns.stacked.again
	v.mu.Unlock()
	if !again {
		t.Fatal("news of a link that cannot be read whole asks for no search")
	}
	if err := v.searchStacked(t.Context()); err != nil {
		t.Fatal(err)
	}
	v.settle()
	if !v.named(fmt.Sprint("nsid:", id)) {
		t.Errorf("the namespace is not named: %+v", v.Gaps())
	}
	v.noneSilent()
}
