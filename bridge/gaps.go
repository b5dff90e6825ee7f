package bridge

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/ipamd/ipamd/census"
)

// A Gap is a place on the wire where an address may be in use and where the
// witness that should see it cannot look. It silences no witness: what is known of
// all other places stands, and a probe asks the wire itself.
type Gap struct {
	Kind   string // one of the kinds below
	Link   string // name of the port, or of the link
	Detail string // one sentence for a person
	Next   string // the command with which a person looks into it
	Since  time.Time
}

// The kinds of gaps.
const (
	// PortUnreadable is a port behind which a network namespace is being taken
	// down and does not end, or has more addresses than are read, or such as come
	// and go faster than they can be listed.
	PortUnreadable = "port_unreadable"
	// LinkHidden is a link that is stacked on the bridge and whose addresses no
	// witness sees, or not all: a macvlan in a namespace that cannot be found, or that
	// has more addresses than are read, or a macvtap. It has the bridge's own name where
	// news was lost that may have been of such a link, and the search for them takes longer than gapAfter.
	LinkHidden = "link_hidden"
)

// gapAfter is how long a port may take to follow its namespace, or a namespace not
// be listed exactly, before it is a gap: each container that ends has one such for
// some milliseconds.
const gapAfter = 5 * time.Second

// Gaps lists what cannot be read now, by kind and name. It is safe for concurrent
// use and never waits.
func (b *Bridge) Gaps() []Gap { return gapsAt(b.netns.gaps.Load(), time.Now()) }

func gapsAt(found *[]foundGap, now time.Time) (out []Gap) {
	if found == nil {
		return nil
	}
	for _, g := range *found {
		if !g.brief || now.Sub(g.Since) >= gapAfter {
			out = append(out, g.Gap)
		}
	}
	return out
}

// A foundGap is a gap that is one at once, or, if it may be brief, after gapAfter.
type foundGap struct {
	Gap
	brief bool
}

// showGaps has [Bridge.Gaps] return what is known now.
func (s *namespaces) showGaps() {
	if !s.gapsMoved {
		return
	}
	s.gapsMoved = false
	var out []foundGap
	for _, p := range s.ports {
		if g, is := p.gap(); is {
			out = append(out, foundGap{g, true})
		}
	}
	for _, n := range s.stacked.nests {
		if g, is := n.gap(); is && s.spaces[n.id] == nil { // else its port is
			out = append(out, foundGap{g, true})
		}
	}
	if since := s.stacked.unsearched; !since.IsZero() {
		out = append(out, foundGap{Gap{LinkHidden, s.bridge,
			fmt.Sprintf("news of links was lost, or comes faster than it can be read; a link that is stacked on %s may be missing, and its addresses", s.bridge),
			"ipamctl explain " + LinkHidden + " # find what makes links so fast, and stop it", since}, true})
	}
	for g, since := range s.stacked.hidden {
		g.Since = since
		out = append(out, foundGap{g, false})
	}
	slices.SortFunc(out, func(a, b foundGap) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Link, b.Link)) })
	s.gaps.Store(&out)
}

// gap is what a person has to know of a port behind which not all can be read.
func (p *port) gap() (g Gap, is bool) {
	name := p.link.Name
	if !p.unreadable.IsZero() {
		return Gap{PortUnreadable, name,
			fmt.Sprintf("the namespace behind port %s is being taken down and cannot be read; what was seen there last still counts", name),
			"ipamctl explain " + PortUnreadable + " # once its sandbox is gone: ip link del " + name, p.unreadable}, true
	}
	if p.space == nil {
		return g, false
	}
	g, is = p.space.gap("behind port " + name)
	g.Kind, g.Link = PortUnreadable, name
	if !p.unsure.IsZero() && p.unsure.Before(g.Since) {
		g.Since = p.unsure
	}
	if g.Next == "" {
		g.Next = "bridge link show dev " + name
	}
	return g, is
}

// gap is what a person has to know of a nest of which not all can be read.
func (n *nest) gap() (g Gap, is bool) {
	if n.inside == nil || len(n.links) == 0 {
		return g, false
	}
	l := n.links[0]
	g, is = n.inside.gap("of " + l.Name + " (" + l.where() + ")")
	g.Kind, g.Link = LinkHidden, l.Name
	if g.Next == "" {
		g.Next = "ipamctl explain " + LinkHidden + " # look at what runs in network namespace " + census.NewNetnsID(n.id, n.file).String()
	}
	return g, is
}

// gap is why not all addresses in a namespace are read. Kind and link are the caller's to
// say, and the next step where it is empty.
func (in *inside) gap(which string) (g Gap, is bool) {
	if in.unsure.IsZero() {
		return g, false
	}
	g.Since = in.unsure
	switch known := len(in.addrs) + len(in.more); {
	case in.full && in.room() < mostInside:
		g.Detail = fmt.Sprintf("the namespace %s has more addresses than the %d that are read of it, because other namespaces have so many; of the others only a probe and the neighbour table show anything", which, known)
		g.Next = "ipamctl explain " + PortUnreadable + " # look at what runs behind the ports with most addresses"
	case in.full:
		g.Detail = fmt.Sprintf("the namespace %s has more addresses than the %d that are read of one; of the others only a probe and the neighbour table show anything", which, mostInside)
	case !in.whole:
		g.Detail = fmt.Sprintf("the addresses in the namespace %s change faster than they can be listed; one of them may have been missed", which)
	default:
		g.Detail = fmt.Sprintf("the addresses in the namespace %s change faster than they can be listed; those that are gone still count", which)
	}
	return g, true
}
