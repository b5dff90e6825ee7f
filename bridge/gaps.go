package bridge

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// A Gap is a place on the wire where an address may be in use and where the
// witness that should see it cannot look. It silences nobody: what is known of
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
func (b *Bridge) Gaps() []Gap { return b.gapsAt(time.Now()) }

func (b *Bridge) gapsAt(now time.Time) (out []Gap) {
	if all := b.unread.Load(); all != nil {
		for _, g := range *all {
			if g.Kind != PortUnreadable || now.Sub(g.Since) >= gapAfter {
				out = append(out, g)
			}
		}
	}
	return out
}

// showGaps has [Bridge.Gaps] tell what is known now.
func (b *Bridge) showGaps() {
	if !b.gapsMoved {
		return
	}
	b.gapsMoved = false
	var out []Gap
	for _, p := range b.ports {
		if !p.frozen.IsZero() {
			out = append(out, p.gap())
		} else if p.space != nil {
			if g, is := p.space.gap(p.link.Name); is {
				out = append(out, g)
			}
		}
	}
	for g, since := range b.hidden {
		g.Since = since
		out = append(out, g)
	}
	slices.SortFunc(out, func(a, b Gap) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Link, b.Link)) })
	b.unread.Store(&out)
}

func (p *port) gap() Gap {
	return Gap{PortUnreadable, p.link.Name,
		fmt.Sprintf("the namespace behind port %s is being taken down and cannot be read; what was seen there last still counts", p.link.Name),
		"ip link del " + p.link.Name + ", once its sandbox is gone", p.frozen}
}
