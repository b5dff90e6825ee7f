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
	slots    []*ipam.Slot
	changed  chan struct{}

	ports     map[string]int
	noPort    bool
	elsewhere string // the bridge that a port is on
	linkErr   error
	settleErr error
	silent    []census.Witness

	given *allocator.Result
	err   error // of an allocation
	asked allocator.Request
	ended []string // leases of slots
}

func (s *scene) At(a netip.Addr) (*ipam.Lease, bool) { l, has := s.leases[a]; return l, has }
func (s *scene) Withheld() []ipam.Withheld           { return s.withheld }
func (s *scene) Slots() []*ipam.Slot                 { return s.slots }
func (s *scene) Changed() <-chan struct{}            { return s.changed }
func (s *scene) PortIndexes() map[string]int         { return s.ports }
func (s *scene) Identity() ipam.BookIdentity         { return ipam.BookIdentity{RunnerUID: "one"} }

func (s *scene) Settle(context.Context, ...netip.Addr) error { return s.settleErr }

func (s *scene) Elsewhere(context.Context, string) (string, error) { return s.elsewhere, s.linkErr }

func (s *scene) IsPort(context.Context, string, int) (bool, error) { return !s.noPort, s.linkErr }

func (s *scene) Silent() (out []census.Silence) {
	for _, w := range s.silent {
		out = append(out, census.Silence{Witness: w, Reason: "it was told so"})
	}
	return out
}

func (s *scene) Slot(lease string) *ipam.Slot {
	for _, slot := range s.slots {
		if slot.LeaseID == lease {
			return slot
		}
	}
	return nil
}

func (s *scene) Lease(id string) (*ipam.Lease, error) {
	for _, l := range s.leases {
		if l.ID == id {
			return l, nil
		}
	}
	return nil, ipam.ErrGone
}

func (s *scene) BreakSlot(_ context.Context, _ ipam.Who, id, _ string) (*ipam.Lease, error) {
	s.ended = append(s.ended, id)
	if l, err := s.Lease(id); err == nil {
		l.State = ipam.Releasing
	}
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

// present is a helper that is there.
type present struct{ Helper }

func (present) Present() bool { return true }

func (s *scene) keeper() *Keeper {
	return New(Config{Book: s, Allocator: s, Board: s, Watchdog: s, Ports: s, Helper: present{}})
}

// A namespace that no slot of the book has is taken down only where it is known that no address is used
// in it, but for a slot's own.
func TestKeeps(t *testing.T) {
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
	is := map[string]int{port: 7}
	unsaid := errors.New("unsaid")
	for name, c := range map[string]struct {
		scene
		says string // "": it is taken down
	}{
		"nothing is seen":                    {scene{leases: holds("a"), ports: is}, ""},
		"a sandbox's address":                {scene{leases: holds("a"), seen: at(census.Netns, port), ports: is}, "in use"},
		"a slot's address":                   {scene{leases: holds(ipam.SlotUID("lost")), seen: at(census.Netns, port), ports: is}, ""},
		"an address of which no row says":    {scene{seen: at(census.Netns, port), ports: is}, "in use"},
		"a withheld address":                 {scene{withheld: withheldOf("a"), seen: at(census.Netns, port), ports: is}, "in use"},
		"a withheld one of a slot":           {scene{withheld: withheldOf(ipam.SlotUID("lost")), seen: at(census.Netns, port), ports: is}, ""},
		"an address behind another port":     {scene{leases: holds("a"), seen: at(census.Netns, "veth9"), ports: is}, ""},
		"an address that a container says":   {scene{leases: holds("a"), seen: at(census.Runtime, port), ports: is}, ""},
		"it has no port on a bridge":         {scene{noPort: true, silent: []census.Witness{census.Netns}}, ""},
		"its port is on another bridge":      {scene{elsewhere: "br9"}, "br9, which is not looked after"},
		"its port was not read yet":          {scene{}, "not been read"},
		"the witness is silent":              {scene{ports: is, silent: []census.Witness{census.Netns}}, "cannot answer"},
		"another witness is silent":          {scene{ports: is, silent: []census.Witness{census.Runtime}}, ""},
		"the kernel does not say its bridge": {scene{linkErr: unsaid, ports: is}, "not known"},
		"the kernel's news are not read":     {scene{settleErr: unsaid, ports: is}, "could not be read"},
	} {
		if says := c.scene.keeper().cfg.keeps(t.Context(), netns); (says == "") != (c.says == "") || !strings.Contains(says, c.says) {
			t.Errorf("%s: it is kept because %q, want %q", name, says, c.says)
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

// TestOwner: a port is marked by the slot only where it is the slot's own.
func TestOwner(t *testing.T) {
	one, two := plumb.SlotPath("one", "s"), plumb.SlotPath("two", "s")
	for _, c := range []struct{ netns, host, want string }{
		{one, plumb.HostName(ipam.SlotPort(one)), ipam.SlotPort(one)},
		{one, plumb.HostName("uid/eth1"), ""},
		{one, "", ""},
		{two, plumb.HostName(ipam.SlotPort(two)), ""},
		{"/run/netns/mine", plumb.HostName("mine"), ""},
	} {
		if got := Owner("one", c.netns, c.host); got != c.want {
			t.Errorf("%s in %s: %q", c.host, c.netns, got)
		}
	}
}
