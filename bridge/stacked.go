package bridge

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ipamd/ipamd/bridge/rtnl"
	"github.com/ipamd/ipamd/census"
)

// A stackedLink is a macvlan, macvtap, ipvlan, ipvtap or vlan on the bridge or on a port of
// it. It is no port, and frames from the bridge do not reach it, so
// neither the ports nor a probe show who is there; its namespace does.
type stackedLink struct {
	*rtnl.Link
	parent string
}

// stackedKinds are the kinds of links that are on another one, with frames of its own.
var stackedKinds = map[string]bool{"macvlan": true, "macvtap": true, "ipvlan": true, "ipvtap": true, "vlan": true}

func (l stackedLink) where() string {
	return fmt.Sprintf("%s is a %s on %s, and no port", l.Name, l.Kind, l.parent)
}

// A nest is a namespace that has stacked links, and that no port may lead to.
type nest struct {
	id    int // nsid; rtnl.NoNetns is the bridge's own
	file  string
	links []stackedLink // by index
	// ended: the kernel takes it down, and its id may be another's by now. What was
	// seen there stands until the next search; nothing new is read or received for it.
	ended bool
	*inside
}

const nestPrefix = "nest "

// sighting makes the sighting of an address, at the stacked link that has it, or at the
// first.
func (n *nest) sighting(bridge string) sightingOf {
	return func(a rtnl.Address) census.Sighting {
		l := n.links[max(0, slices.IndexFunc(n.links, func(l stackedLink) bool { return l.Index == a.Index }))]
		return census.Sighting{Addr: a.Prefix.Addr(), Bridge: bridge, Port: l.Name, Netns: census.NewSpace(n.id, n.file), MAC: l.MAC.String(), Note: l.where()}
	}
}

// stackedLinks is what is known of the links on the bridge that are no ports.
type stackedLinks struct {
	nests     map[int]*nest      // by nsid, of those that were found
	again     bool               // they are to be searched for
	partly    map[int]error      // by nsid, why not all links there were listed
	strangers map[int]bool       // by nsid, others that got an address since the last search began
	listeners []net.HardwareAddr // on the bridge, for links that were not found
	hidden    map[Gap]time.Time  // what cannot be read of those, and since when; the gaps without a date
	searched  time.Time          // when all namespaces were searched last, or began to be
	home      bool               // the bridge's own was, and no news of such a link came since
}

// macs are those of the stacked links.
func macs(nests map[int]*nest) map[string]bool {
	all := make(map[string]bool)
	for _, n := range nests {
		for _, l := range n.links {
			all[l.MAC.String()] = true
		}
	}
	return all
}

// searchAgain has Run search for stacked links: no caller waits for that.
func (s *namespaces) searchAgain() {
	if !s.stacked.again {
		s.stacked.again = true
		s.wake()
	}
}

// setStacked makes a search's outcome what is known.
func (s *namespaces) setStacked(w wire, found *search) {
	for id, n := range s.stacked.nests {
		if found.skipped[id] {
			found.nests[id] = n
			continue
		}
		next := found.nests[id]
		if found.partly[id] != nil && !n.ended { // what was found before may be there still
			next = n.with(next)
			found.nests[id] = next
		}
		if next != nil && !n.ended {
			next.inside = n.inside
		} else {
			s.dropInside(n.inside)
		}
	}
	s.stacked.nests = found.nests
	for id := range found.partly {
		if sp := s.spaces[id]; sp != nil {
			sp.searched = false
		}
	}
	for id, n := range found.nests {
		if n.inside == nil {
			n.inside = &inside{stock: s.stock, scope: nestPrefix + strconv.Itoa(id)}
		}
		n.inside.sighting = func() sightingOf { return n.sighting(s.bridge) }
		s.read(w, id)
	}
	s.keep(func(known string) bool { // else it is of a bridge that went, and of its links
		id, is := strings.CutPrefix(wholeScope(known), nestPrefix)
		nsid, _ := strconv.Atoi(id)
		return !is || found.nests[nsid] != nil || found.partly[nsid] != nil
	})
	s.setHidden(found)
}

// with returns the nest with the links that another search found, nil for none.
func (n *nest) with(found *nest) *nest {
	if found == nil {
		return n
	}
	for _, l := range n.links {
		if !slices.ContainsFunc(found.links, func(o stackedLink) bool { return o.Index == l.Index }) {
			found.links = append(found.links, l)
		}
	}
	return found
}

// readNest lists the addresses of a namespace that has stacked links. What a port leads
// to is read as that, and the host's own by the host witness.
func (s *namespaces) readNest(w wire, n *nest) {
	if s.spaces[n.id] != nil {
		s.dropInside(n.inside)
		n.inside = &inside{stock: s.stock, scope: n.scope, sighting: n.inside.sighting}
		return
	}
	if s.leaveCrowd(n.id) {
		return
	}
	got, err := n.list(w.Socket, n.id)
	switch {
	case rtnl.IsVanishing(w.Socket, n.id, err):
		s.stacked.again = true // what was seen stands until the search shows more
	case err != nil:
		s.again[n.id] = true
		s.fail(n.scope, fmt.Errorf("list the addresses of nsid %d: %w", n.id, err))
	default:
		s.take(w, n.id, got)
	}
}

// setHidden notes what cannot be read of the stacked links.
func (s *namespaces) setHidden(found *search) {
	before := s.stacked.hidden
	s.stacked.listeners, s.stacked.partly = found.hidden, found.partly
	s.stacked.hidden = make(map[Gap]time.Time)
	add := func(link, detail, next string) {
		g := Gap{Kind: LinkHidden, Link: link, Detail: detail, Next: next}
		if s.stacked.hidden[g] = before[g]; before[g].IsZero() {
			s.stacked.hidden[g] = time.Now()
		}
	}
	for _, m := range found.hidden {
		add(m.String(), fmt.Sprintf("a link with MAC %s is stacked on %s, in a namespace that cannot be found; no witness sees its addresses", m, s.bridge),
			"find it (ip -d link, in each namespace) and remove it, or exclude its addresses from the pool")
	}
	for id := range found.partly {
		if s.spaces[id] == nil { // else its addresses are read, on whatever link
			add(fmt.Sprintf("nsid:%d", id), fmt.Sprintf("the links in namespace nsid:%d cannot all be listed; one that is stacked on %s may be missing, and its addresses", id, s.bridge),
				"find what makes so many links, or so fast, in that namespace, and stop it")
		}
		if s.stacked.strangers[id] { // a call received the news while this was searched for
			s.searchAgain()
		}
	}
	for _, n := range found.nests {
		for _, l := range n.links {
			if l.Kind == "macvtap" || l.Kind == "ipvtap" { // the addresses behind it are on no link here
				add(l.Name, fmt.Sprintf("%s; no witness sees the addresses of the virtual machine behind it", l.where()),
					"give it a tap that is a port of "+s.bridge+", or exclude its addresses from the pool")
			}
		}
	}
	s.gapsMoved = true
}
