package bridge

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// A guest with many addresses, or links, that come and go while they are listed
// costs no other an answer: the witnesses speak, what others add or remove is
// seen at once, most calls take less time than one list of that namespace, and the
// guest's port is named. What may be there counts as there; and once it stands
// still, what is gone is gone. To add 12 000 addresses takes the kernel six
// seconds, and 6 000 are past the bound as well.
func TestG1ARestlessGuestSilencesNoOther(t *testing.T) {
	realtest.Long(t)
	t.Parallel()
	for _, c := range []struct {
		addresses, links int
	}{{3000, 0}, {6000, 0}, {700, 700}} {
		t.Run(fmt.Sprint(c.addresses, " addresses, ", c.links, " links"), func(t *testing.T) {
			ns := nstest.New(t)
			ns.Bridge("rt0", "10.8.0.1/16")
			quiet, hostile := ns.Port("rt0", "10.8.0.7/16"), ns.Port("rt0", "10.8.0.8/16")
			hostile.NS.Fill(c.addresses, c.links)
			stop := hostile.NS.Restless()
			v := open(t, ns)
			v.run(t)
			full := c.addresses > mostInside
			var waits []time.Duration
			settle := func() {
				began := time.Now()
				if err := v.Settle(t.Context(), netip.MustParseAddr("10.8.0.99")); err != nil {
					t.Fatal(err)
				}
				waits = append(waits, time.Since(began))
			}
			for i := range 20 {
				addr := fmt.Sprintf("10.8.1.%d", i+1)
				quiet.AddAddr(addr + "/16")
				settle()
				if !v.seen(addr) {
					t.Fatalf("%s, which another has, is not seen", addr)
				}
				quiet.DelAddr(addr + "/16")
				settle()
				if v.seen(addr) {
					t.Fatalf("%s, which another had, is seen", addr)
				}
				addr = fmt.Sprintf("10.8.2.%d", i+1)
				hostile.AddAddr(addr + "/32")
				settle()
				if !full && !v.seen(addr) || !v.seen("10.8.0.8") || !v.seen("10.8.0.7") {
					t.Fatalf("%s, or what was there before, is not seen", addr)
				}
				hostile.DelAddr(addr + "/32")
				v.noneSilent()
				v.wantReady()
				if i%10 == 0 {
					if err := v.Refresh(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}
			slices.Sort(waits)
			if most, list := waits[len(waits)/2], v.listTime(hostile.HostName); most > list {
				t.Errorf("half of the calls took %v and more, and one list takes %v", most, list)
			}
			named := func() (gaps []Gap) { return gapsAt(v.netns.gaps.Load(), time.Now().Add(gapAfter)) }
			if full && len(named()) != 1 {
				t.Errorf("%d addresses behind %s, and named is %v", c.addresses, hostile.HostName, named())
			}
			for _, g := range named() {
				if g.Kind != PortUnreadable || g.Link != hostile.HostName {
					t.Errorf("named is %+v", g)
				}
			}
			stop()
			if full {
				return
			}
			realtest.Eventually(t, wait, "what is gone is not seen", func() bool {
				return v.who("10.8.2.1") == "" && v.who("10.8.246.1") == "" && len(named()) == 0
			})
			v.expect("10.8.0.8", "netns")
			v.expect("10.8.100.1", "netns")
		})
	}
}

// A guest that adds and removes an address before each call is listed by a few of the
// calls, and by Run. What it adds is seen at once; and another, with few addresses,
// is listed by each call that has to.
func TestG1CallsDoNotListARestlessGuest(t *testing.T) {
	t.Parallel()
	const calls, own = 300, "10.8.3.7"
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/16")
	quiet, hostile := ns.Port("rt0", "10.8.0.7/16"), ns.Port("rt0", "10.8.0.8/16")
	hostile.NS.Fill(mostInline-10, 0)
	v := open(t, ns)
	add := func() {
		hostile.AddAddr(own + "/32")
		v.settle()
		if !v.seen(own) {
			t.Fatalf("%s, which was added, is not seen", own)
		}
		hostile.DelAddr(own + "/32")
	}
	began := time.Now()
	asked := v.asks(func() {
		for range calls {
			add()
		}
	})
	took := time.Since(began)
	// A list is two questions, and more are due in the time that a slow machine takes.
	if most := calls + 2*uint32(took.Seconds()*inlineRate/mostInline); asked > most {
		t.Errorf("%d calls in %v were %d questions to the kernel, want %d at most", calls, took, asked, most)
	}
	for range 20 {
		quiet.AddAddr("10.8.3.1/16")
		v.expect("10.8.3.1", "netns")
		quiet.DelAddr("10.8.3.1/16")
		v.expect("10.8.3.1", "")
		add()
	}
	v.noneSilent()
	v.run(t)
	v.await(own, "")
}

// Guests with many addresses each are known in part once all together have more than
// are kept. A guest with few is known whole, what comes and goes there is seen at
// once, and no witness is silent; the ports of the others alone are named. Those that
// fit when one of them ends are known whole again.
func TestG1AddressesOfAllNamespacesAreBounded(t *testing.T) {
	t.Parallel()
	const most, many, few = 1300, 600, leastInside
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/16")
	v := open(t, ns)
	v.mu.Lock()
	v.netns.stock.most = most
	v.mu.Unlock()
	v.run(t)
	known := func() map[string]int {
		of := make(map[string]int)
		for _, s := range v.board.By(census.Netns) {
			of[s.Port]++
		}
		return of
	}
	hostile := make(map[string]*nstest.Port)
	for i := range 3 {
		p := ns.Port("rt0")
		p.NS.Fill(many, 0)
		hostile[p.HostName] = p
		if i < 2 { // filled at once, all three share what there is
			realtest.Eventually(t, wait, "one with many to be known whole", func() bool { return known()[p.HostName] == many })
		}
	}
	quiet := ns.Port("rt0")
	for i := range few - 1 {
		quiet.AddAddr(fmt.Sprintf("10.8.0.%d/16", 100+i))
	}
	named := func() (gaps []Gap) { return gapsAt(v.netns.gaps.Load(), time.Now().Add(gapAfter)) }
	realtest.Eventually(t, wait, "one of them to be known in part", func() bool { return len(named()) > 0 })
	for i := range 10 {
		addr := fmt.Sprintf("10.8.1.%d", 1+i)
		quiet.AddAddr(addr + "/16")
		v.expect(addr, "netns")
		quiet.DelAddr(addr + "/16")
		v.expect(addr, "")
		if i == 5 {
			if err := v.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	all := 0
	for port, n := range known() {
		all += n
		if want := few - 1; port == quiet.HostName && n != want {
			t.Errorf("%d addresses of %d are known of the guest with few", n, want)
		}
	}
	if all > most+few {
		t.Errorf("%d addresses are known, of at most %d", all, most)
	}
	gaps := named()
	for _, g := range gaps {
		if hostile[g.Link] == nil || !strings.Contains(g.Detail, "because other namespaces have so many") {
			t.Errorf("named is %+v", g)
		}
	}
	if len(gaps) == 0 {
		t.Fatal("none is named")
	}
	v.noneSilent()
	// Who is read again, as after news that was lost, gets what the others have left by
	// then: each of the three may lack some.
	for link, p := range hostile {
		if link != gaps[0].Link {
			p.Close()
		}
	}
	realtest.Eventually(t, wait, "the last of them to be known whole", func() bool { return len(named()) == 0 && known()[gaps[0].Link] == many })
}

// A guest gives a link 64 KiB of alternative names. The kernel's answer about it is
// longer than any other, and who reads it waits for nothing.
func TestG1ALinkOfManyNames(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	p := ns.Port("rt0", "10.8.0.7/24")
	manyNames(t, p.NS, "eth0")
	v := open(t, ns)
	v.expect("10.8.0.7", "netns")
	if s := v.about("10.8.0.7").Seen[0]; s.MAC != p.MAC.String() {
		t.Errorf("the sighting is %+v", s)
	}
}

// manyNames gives a link as many alternative names as the kernel takes.
func manyNames(t *testing.T, ns *nstest.NS, name string) {
	t.Helper()
	l, err := ns.Netlink().LinkByName(name)
	for i := 0; err == nil; i++ {
		err = ns.Netlink().LinkAddAltName(l, fmt.Sprintf("%0127d", i))
	}
	if !errors.Is(err, unix.EINVAL) { // no more are taken
		t.Fatal(err)
	}
}

// A macvlan on the bridge is in a namespace whose root gives another link 64 KiB of
// alternative names: the kernel ends its list of the links in there before that link,
// without an error. The macvlan's addresses are seen all the same, by a daemon that
// knew it and by one that starts then; a link without an address is not forgotten for
// it, the namespace is named, and no other's answer is missing.
func TestG1ALinkOfManyNamesHidesNoOther(t *testing.T) {
	t.Parallel()
	for _, long := range []string{"lo", "br0"} {
		t.Run(long, func(t *testing.T) {
			t.Parallel()
			ns, guest := nstest.New(t), nstest.New(t)
			ns.Bridge("rt0", "10.8.0.1/24")
			ns.Port("rt0", "10.8.0.8/24")
			guest.Exec("ip", "link", "add", "br0", "type", "bridge")
			for _, m := range []string{"m0", "m1"} {
				ns.Exec("ip", "link", "add", m, "link", "rt0", "type", "macvlan", "mode", "bridge")
				ns.Exec("ip", "link", "set", m, "netns", guest.Name())
			}
			guest.AddAddr("m0", "10.8.0.7/24")
			v := open(t, ns)
			v.expect("10.8.0.7", "netns")
			if gaps := v.Gaps(); len(gaps) != 0 {
				t.Errorf("all of it is listed, and a gap: %+v", gaps)
			}
			manyNames(t, guest, long)
			if err := v.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			v.expect("10.8.0.7", "netns")
			guest.AddAddr("m1", "10.8.0.9/24")
			v.expect("10.8.0.9", "netns")
			if err := v.Close(); err != nil {
				t.Fatal(err)
			}
			v = open(t, ns)
			for _, addr := range []string{"10.8.0.7", "10.8.0.8", "10.8.0.9"} {
				v.expect(addr, "netns")
			}
			if s := v.about("10.8.0.7").Seen; len(s) == 1 && s[0].Port != "m0" {
				t.Errorf("the sighting is %+v", s)
			}
			if gaps := v.Gaps(); len(gaps) != 1 || gaps[0].Kind != LinkHidden {
				t.Errorf("the gaps are %+v", gaps)
			}
			v.noneSilent()
			guest.Exec("ip", "link", "del", "m0")
			v.expect("10.8.0.9", "netns")
			realtest.Eventually(t, wait, "what is gone is not seen", func() bool {
				return v.Refresh(t.Context()) == nil && v.who("10.8.0.7") == ""
			})
		})
	}
}

// A macvlan without an address is alone in a namespace whose list of links ends before it.
// It is not known, and the namespace is named. An address that it gets is seen by the
// search that the news of it asks for, and not by the next one that the clock does.
func TestG1AHiddenLinkGetsAnAddress(t *testing.T) {
	t.Parallel()
	ns, guest := nstest.New(t), nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	ns.Exec("ip", "link", "add", "m0", "link", "rt0", "type", "macvlan", "mode", "bridge")
	ns.Exec("ip", "link", "set", "m0", "netns", guest.Name())
	guest.Up("m0")
	manyNames(t, guest, "lo")
	quiet := ns.Port("rt0")
	v := open(t, ns, func(c *Config) { c.Every = time.Hour })
	v.run(t)
	for _, addr := range []string{"10.8.0.20", "10.8.0.21"} { // the second by Run's first reading at the earliest, after its search
		quiet.AddAddr(addr + "/24")
		realtest.Eventually(t, wait, addr+" to be seen", func() bool { return v.seen(addr) })
	}
	realtest.Eventually(t, wait, "the namespace to be named", func() bool {
		return slices.ContainsFunc(v.Gaps(), func(g Gap) bool { return g.Kind == LinkHidden && strings.HasPrefix(g.Link, "nsid:") })
	})
	for _, addr := range []string{"10.8.0.7", "10.8.0.9"} {
		guest.AddAddr("m0", addr+"/24")
		v.settle()
		realtest.Eventually(t, wait, addr+" to be seen", func() bool { return v.seen(addr) })
	}
	v.noneSilent()
}

// The same, while the first search that such a namespace is in is under way: a call takes
// in the news of the address before it is known that not all links there are listed.
func TestG1AHiddenLinkGetsAnAddressDuringASearch(t *testing.T) {
	t.Parallel()
	ns, guest := nstest.New(t), nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	v := open(t, ns)
	manyNames(t, guest, "lo")
	ns.Exec("ip", "link", "add", "m0", "link", "rt0", "type", "macvlan", "mode", "bridge")
	ns.Exec("ip", "link", "set", "m0", "netns", guest.Name())
	guest.Up("m0")
	v.settle()
	v.mu.Lock()
	v.netns.stacked.again = false
	found := v.newSearch() // as searchStacked does
	v.mu.Unlock()
	if err := found.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	guest.AddAddr("m0", "10.8.0.7/24")
	v.settle()
	v.mu.Lock()
	v.netns.setStacked(v.wire(), found)
	v.mu.Unlock()
	v.settle()
	v.mu.Lock()
	again := v.netns.stacked.again
	v.mu.Unlock()
	if again {
		if err := v.searchStacked(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	v.expect("10.8.0.7", "netns")
}

// A namespace with many addresses ends, and another that has a link on the bridge gets
// its id: what was known of the first is not taken for what is in the second.
func TestG1AnIDThatIsUsedAgain(t *testing.T) {
	for range 20 { // a search gives ids to all namespaces of the machine, those of other tests too
		if idUsedAgain(t) {
			return
		}
	}
	t.Error("the kernel gave no id again")
}

// idUsedAgain reports whether the second namespace got the id of the first.
func idUsedAgain(t *testing.T) bool {
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/16")
	v := open(t, ns)
	next := func(addr string) (*nstest.NS, int) {
		guest := nstest.New(t)
		ns.Exec("ip", "link", "add", "m0", "link", "rt0", "type", "macvlan", "mode", "bridge")
		ns.Exec("ip", "link", "set", "m0", "netns", guest.Name())
		guest.AddAddr("m0", addr+"/16")
		id, err := v.NetnsID(t.Context(), guest.Path())
		if err != nil {
			t.Fatal(err)
		}
		return guest, id
	}
	first, was := next("10.8.0.7")
	first.Fill(600, 1)
	if err := v.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	v.expect("10.8.0.7", "netns")
	v.expect("10.8.102.1", "netns")
	first.Delete()
	realtest.Eventually(t, wait, "the kernel takes it down", func() bool {
		there, err := v.kernel.HasNetns(was)
		return err == nil && !there
	})
	if _, id := next("10.8.0.8"); id != was {
		t.Logf("the id is %d, and was %d", id, was)
		return false
	}
	v.settle()
	if err := v.searchStacked(t.Context()); err != nil {
		t.Fatal(err)
	}
	v.expect("10.8.0.8", "netns")
	v.expect("10.8.0.7", "")
	v.expect("10.8.102.1", "")
	v.noneSilent()
	return true
}

// After news was lost all is read again with the lock held: the quiet guests at
// once, and a link on the bridge that is no port; of many guests with many addresses a
// part, and Run does the rest.
func TestG1LostNewsBesideCrowds(t *testing.T) {
	realtest.Long(t)
	t.Parallel()
	ns, guest := nstest.New(t), nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/16")
	quiet := ns.Port("rt0", "10.8.0.7/16")
	ns.Exec("ip", "link", "add", "m0", "link", "rt0", "type", "macvlan", "mode", "bridge")
	ns.Exec("ip", "link", "set", "m0", "netns", guest.Name())
	var hostile []*nstest.Port
	for range 8 {
		p := ns.Port("rt0")
		p.NS.Fill(1200, 0)
		hostile = append(hostile, p)
	}
	v := open(t, ns)
	lose := func(i int) {
		quiet.AddAddr(fmt.Sprintf("10.8.0.%d/16", 20+i))
		guest.AddAddr("m0", fmt.Sprintf("10.8.0.%d/16", 40+i))
		hostile[i].AddAddr(fmt.Sprintf("10.8.0.%d/32", 60+i))
		v.mu.Lock()
		defer v.mu.Unlock()
		v.drain()
		v.lost = true
		clear(v.netns.again)
		for _, s := range v.netns.spaces {
			s.news = nil
		}
		for _, n := range v.netns.stacked.nests {
			n.news = nil
		}
	}
	var waits []time.Duration
	for i := range hostile {
		lose(i)
		began := time.Now()
		v.settle()
		waits = append(waits, time.Since(began))
		if len(v.crowded(false)) == 0 {
			t.Errorf("all %d namespaces were listed in one call, which took %v", len(hostile), waits[i])
		}
		for _, at := range []int{20, 40} {
			if addr := fmt.Sprintf("10.8.0.%d", at+i); !v.seen(addr) {
				t.Errorf("%s is not seen", addr)
			}
		}
	}
	slices.Sort(waits)
	t.Logf("half of the calls took %v and less", waits[len(waits)/2])
	v.run(t)
	realtest.Eventually(t, wait, "all is seen", func() bool {
		for i := range hostile {
			if !v.seen(fmt.Sprintf("10.8.0.%d", 60+i)) {
				return false
			}
		}
		return true
	})
	v.noneSilent()
}

// listTime is how long one list of the namespace behind a port takes.
func (v *view) listTime(name string) time.Duration {
	v.t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, p := range v.netns.ports {
		if p.link.Name == name {
			began := time.Now()
			if _, err := v.kernel.AddressesOf(p.space.id, 1<<20, 1, 0); err != nil {
				v.t.Fatal(err)
			}
			return time.Since(began)
		}
	}
	v.t.Fatalf("no port %s", name)
	return 0
}
