package bridge

import (
	"context"
	"net/netip"
	"strconv"
	"testing"

	"github.com/ipamd/ipamd/bridge/rtnl"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/nstest"
)

// A whole reading is the backstop: it corrects what memory has wrong though no
// news ever spoke of it.
func TestRefreshCorrectsWhatNoNewsSaid(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	ns.Port("rt0", "10.8.0.7/24")
	ns.Port("rt0", "10.8.0.8/24")
	v := open(t, ns)
	const none = 4711
	v.mu.Lock()
	names := make(map[int]string)
	for index, p := range v.netns.ports {
		names[index] = p.link.Name
		if len(names) == 1 { // forgotten
			v.netns.leave(p)
			delete(v.netns.ports, index)
			v.netns.drop(scope(index))
			continue
		}
		wrong := *p.link
		wrong.Name = "wrong"
		p.link = &wrong
	}
	v.netns.ports[none] = &port{link: &rtnl.Link{Index: none, Name: "none", Behind: rtnl.NoNetns}}
	v.netns.see(scope(none), []census.Sighting{{Addr: netip.MustParseAddr("10.8.0.9")}})
	v.host.see(hostScope, nil)
	v.host.all = nil
	v.mu.Unlock()

	if err := v.Refresh(context.Background()); err != nil {
		t.Fatal(err)
	}
	v.expect("10.8.0.1", "host")
	v.expect("10.8.0.7", "netns")
	v.expect("10.8.0.8", "netns")
	v.expect("10.8.0.9", "")
	v.mu.Lock()
	defer v.mu.Unlock()
	for index, p := range v.netns.ports {
		if names[index] != p.link.Name {
			t.Errorf("port %d is %q, want %q", index, p.link.Name, names[index])
		}
	}
	if len(v.netns.ports) != len(names) {
		t.Errorf("%d ports, want %d", len(v.netns.ports), len(names))
	}
}

// Stale never wins: what a listing still has, or has not yet, is looked up.
func TestAnOldListingIsNotBelieved(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	goes := ns.Port("rt0", "10.8.0.7/24")
	v := open(t, ns)
	old, err := v.list(context.Background(), v.device.link)
	if err != nil {
		t.Fatal(err)
	}
	if len(old.ports) != 1 || len(old.hosts) == 0 {
		t.Fatalf("listed %d ports and %d addresses", len(old.ports), len(old.hosts))
	}
	goes.Close()
	ns.Port("rt0", "10.8.0.8/24")
	ns.Bridge("other", "10.8.0.2/24")
	v.expect("10.8.0.7", "")
	v.expect("10.8.0.8", "netns")
	v.expect("10.8.0.2", "host")

	v.mu.Lock()
	v.compare(old)
	for index := range old.ports {
		if v.netns.ports[index] != nil || v.netns.scopes[strconv.Itoa(index)] != nil {
			t.Errorf("port %d is there again", index)
		}
	}
	v.mu.Unlock()
	v.expect("10.8.0.7", "")
	v.expect("10.8.0.8", "netns")
	v.expect("10.8.0.2", "host")
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.netns.ports) != 1 {
		t.Errorf("%d ports, want 1", len(v.netns.ports))
	}
}
