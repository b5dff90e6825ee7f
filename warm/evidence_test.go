package warm

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/plumb"
	"github.com/ipamd/ipamd/watchdog"
	"github.com/ipamd/ipamd/workload"
)

// A scene is what a keeper is shown of the book and by witnesses.
type scene struct {
	Book
	leases   map[netip.Addr]*ipam.Lease
	withheld []ipam.Withheld
	seen     []census.Sighting
	blockers []string

	given *allocator.Result
	err   error // of an allocation
	asked allocator.Request
	ended []string // leases of slots
}

func (s *scene) At(a netip.Addr) (*ipam.Lease, bool) { l, has := s.leases[a]; return l, has }
func (s *scene) Withheld() []ipam.Withheld           { return s.withheld }
func (s *scene) Identity() ipam.BookIdentity         { return ipam.BookIdentity{RunnerUID: "one"} }

func (s *scene) BreakSlot(_ context.Context, _ ipam.Who, id, _ string) (*ipam.Lease, error) {
	s.ended = append(s.ended, id)
	return nil, nil
}

func (s *scene) Allocate(_ context.Context, r allocator.Request) (*allocator.Result, error) {
	s.asked = r
	return s.given, s.err
}

func (s *scene) About(a netip.Addr) census.Answer {
	return census.Answer{Seen: slices.DeleteFunc(slices.Clone(s.seen), func(x census.Sighting) bool { return x.Addr != a })}
}
func (s *scene) AboutRange(netip.Addr, netip.Addr) census.Answer { return census.Answer{Seen: s.seen} }
func (s *scene) By(w census.Witness) []census.Sighting {
	return slices.DeleteFunc(slices.Clone(s.seen), func(x census.Sighting) bool { return x.Witness != w })
}

func (s *scene) Blockers(*ipam.Lease) (out []watchdog.Blocker) {
	for _, kind := range s.blockers {
		out = append(out, watchdog.Blocker{Kind: kind})
	}
	return out
}

var _ workload.Board = (*scene)(nil)

func (s *scene) keeper() *Keeper {
	return New(Config{Book: s, Allocator: s, Board: s, Watchdog: s})
}

// A namespace that no slot of the book has is taken down only where no address of another is
// seen in it.
func TestInUse(t *testing.T) {
	netns := plumb.SlotPath("one", "lost")
	addr := netip.MustParseAddr("10.8.64.7")
	port := plumb.HostName(ipam.SlotPort(netns))
	at := func(w census.Witness, port string) []census.Sighting {
		return []census.Sighting{{Witness: w, Addr: addr, Port: port}}
	}
	holds := func(uid string) map[netip.Addr]*ipam.Lease {
		return map[netip.Addr]*ipam.Lease{addr: {Addr: addr, UID: uid}}
	}
	withheldOf := func(uid string) []ipam.Withheld { return []ipam.Withheld{{Addr: addr, UID: uid}} }
	for name, c := range map[string]struct {
		scene
		want bool
	}{
		"nothing is seen":                  {scene{leases: holds("a")}, false},
		"a sandbox's address":              {scene{leases: holds("a"), seen: at(census.Netns, port)}, true},
		"a slot's address":                 {scene{leases: holds(ipam.SlotUID("lost")), seen: at(census.Netns, port)}, false},
		"an address without a lease":       {scene{seen: at(census.Netns, port)}, false},
		"a withheld address":               {scene{withheld: withheldOf("a"), seen: at(census.Netns, port)}, true},
		"a withheld one of a slot":         {scene{withheld: withheldOf(ipam.SlotUID("lost")), seen: at(census.Netns, port)}, false},
		"an address behind another port":   {scene{leases: holds("a"), seen: at(census.Netns, "veth9")}, false},
		"an address that a container says": {scene{leases: holds("a"), seen: at(census.Runtime, port)}, false},
	} {
		if got := c.scene.keeper().inUse(netns); got != c.want {
			t.Errorf("%s: in use is %v", name, got)
		}
	}
}

// A sandbox's slot is taken down once nothing but its port keeps its release from its end.
func TestHoldsOnlyItsPort(t *testing.T) {
	l := &ipam.Lease{Addr: netip.MustParseAddr("10.8.64.7"), UID: "a"}
	runs := []census.Sighting{{Witness: census.Runtime, Addr: l.Addr}}
	for name, c := range map[string]struct {
		scene
		want bool
	}{
		"the port":                       {scene{blockers: []string{watchdog.KindPort}}, true},
		"two ports":                      {scene{blockers: []string{watchdog.KindPort, watchdog.KindPort}}, true},
		"the port and a container":       {scene{blockers: []string{watchdog.KindPort, watchdog.KindContainer}}, false},
		"the port and a silent witness":  {scene{blockers: []string{watchdog.KindPort, watchdog.KindSilent}}, false},
		"the port, and a container runs": {scene{blockers: []string{watchdog.KindPort}, seen: runs}, false},
		"nothing that is known":          {scene{}, false},
	} {
		if got := c.scene.keeper().holdsOnlyItsPort(l); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// An address for a slot is asked for as a sandbox asks, of the pool's own family; one that has not
// cooled is a sandbox's, and the slot ends.
func TestReserve(t *testing.T) {
	lease := &ipam.Lease{ID: "l", Addr: netip.MustParseAddr("10.8.64.7")}
	full := errors.New("it is full")
	for name, c := range map[string]struct {
		scene
		prefix string
		family allocator.Family
		says   string // of the error; "" it is given
		ended  []string
	}{
		"IPv4":                          {scene{given: &allocator.Result{Leases: []*ipam.Lease{lease}}}, "10.8.64.0/24", allocator.V4, "", nil},
		"IPv6":                          {scene{given: &allocator.Result{Leases: []*ipam.Lease{lease}}}, "fd00::/64", allocator.V6, "", nil},
		"refused":                       {scene{err: full}, "10.8.64.0/24", allocator.V4, full.Error(), nil},
		"before its cooldown has ended": {scene{given: &allocator.Result{Leases: []*ipam.Lease{lease}, EarlyReuse: true}}, "10.8.64.0/24", allocator.V4, "has cooled", []string{"l"}},
	} {
		p := &ipam.Pool{PoolSpec: ipam.PoolSpec{Name: "lab", Prefix: netip.MustParsePrefix(c.prefix)}}
		l, err := c.scene.keeper().reserve(t.Context(), p, ipam.NewSlot{ID: "s"})
		if (err == nil) != (c.says == "") || (l == nil) != (err != nil) || err != nil && !strings.Contains(err.Error(), c.says) || !slices.Equal(c.scene.ended, c.ended) {
			t.Errorf("%s: %v, %v, ended are %v", name, l, err, c.scene.ended)
		}
		if a := c.scene.asked; a.Family != c.family || a.Pool != "lab" || a.UID != ipam.SlotUID("s") || a.Slot == nil || a.Slot.ID != "s" {
			t.Errorf("%s: asked for %+v", name, a)
		}
	}
}

// TestIsOurs: no other file is ever taken down.
func TestIsOurs(t *testing.T) {
	k := new(scene).keeper()
	for path, want := range map[string]bool{plumb.SlotPath("one", "s"): true, plumb.SlotPath("two", "s"): false, "": false, "/run/netns/mine": false,
		plumb.SlotPath("one", "s") + "/../x": false} {
		if k.isOurs(path) != want {
			t.Errorf("%q: %v", path, !want)
		}
	}
}
