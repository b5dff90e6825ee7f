package bridge

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// A Gap is a place on the wire where an address may be in use and where the
// witness that should see it cannot look. It silences no witness: what is known of
// all other places stands, and a probe asks the wire itself.
type Gap struct {
	Kind   string // one of the kinds below
	Link   string // name of the port, or of the link
	Detail string // one sentence for a person
	Next   string // what a person does about it
	Since  time.Time
}

// The kinds of gaps.
const (
	// PortUnreadable is a port behind which a network namespace is being taken
	// down and does not end, or has more addresses than are read, or such as come
	// and go faster than they can be listed.
	PortUnreadable = "port_unreadable"
	// LinkHidden is a link that is stacked on the bridge and whose addresses no
	// witness sees: a macvlan in a namespace that cannot be found, or a macvtap.
	LinkHidden = "link_hidden"
)

// gapAfter is how long a port may take to follow its namespace, or a namespace not
// be listed exactly, before it is a gap: each container that ends has one such for
// some milliseconds.
const gapAfter = 5 * time.Second

// Gaps lists what cannot be read now, by kind and name. It is safe for concurrent
// use and never waits.
func (b *Bridge) Gaps() []Gap { return b.netns.gapsAt(time.Now()) }

func (s *namespaces) gapsAt(now time.Time) (out []Gap) {
	if all := s.gaps.Load(); all != nil {
		for _, g := range *all {
			if g.Kind != PortUnreadable || now.Sub(g.Since) >= gapAfter {
				out = append(out, g)
			}
		}
	}
	return out
}

// showGaps has [Bridge.Gaps] return what is known now.
func (s *namespaces) showGaps() {
	if !s.gapsMoved {
		return
	}
	s.gapsMoved = false
	var out []Gap
	for _, p := range s.ports {
		if g, is := p.gap(); is {
			out = append(out, g)
		}
	}
	for g, since := range s.stacked.hidden {
		g.Since = since
		out = append(out, g)
	}
	slices.SortFunc(out, func(a, b Gap) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Link, b.Link)) })
	s.gaps.Store(&out)
}

// gap is what a person has to know of a port behind which not all can be read.
func (p *port) gap() (g Gap, is bool) {
	name := p.link.Name
	if !p.frozen.IsZero() {
		return Gap{PortUnreadable, name,
			fmt.Sprintf("the namespace behind port %s is being taken down and cannot be read; what was seen there last still counts", name),
			"ip link del " + name + ", once its sandbox is gone", p.frozen}, true
	}
	if p.space == nil || p.space.unsure.IsZero() {
		return g, false
	}
	in := p.space.inside
	g = Gap{Kind: PortUnreadable, Link: name, Since: in.unsure, Next: "bridge link show dev " + name}
	switch known := len(in.addrs) + len(in.more); {
	case in.full && known < mostInside:
		g.Detail = fmt.Sprintf("the namespace behind port %s has more addresses than the %d that are read of it, because other namespaces have so many; of the others only a probe and the neighbour table show anything", name, known)
		g.Next = "look at what runs behind the ports with most addresses, and remove what is hostile"
	case in.full:
		g.Detail = fmt.Sprintf("the namespace behind port %s has more addresses than the %d that are read of one; of the others only a probe and the neighbour table show anything", name, mostInside)
	case !in.whole:
		g.Detail = fmt.Sprintf("the addresses in the namespace behind port %s change faster than they can be listed; one of them may have been missed", name)
	default:
		g.Detail = fmt.Sprintf("the addresses in the namespace behind port %s change faster than they can be listed; those that are gone still count", name)
	}
	return g, true
}
