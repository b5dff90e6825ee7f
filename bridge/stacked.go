package bridge

import (
	"cmp"
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

// A linkIn is a link in another namespace, by that one's nsid and by its index there.
type linkIn struct{ nsid, index int }

// mostAtOnce bounds how many stacked links are looked up with the lock held, at some 10 µs
// each and for inlineWithin; the search that is wanted by then shows the others.
const mostAtOnce = 128

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
	came      map[linkIn]bool    // those that there was news of, to be looked up
	early     map[int]bool       // by nsid, nests that got a link by news since the last search began
	partly    map[int]error      // by nsid, why not all links there were listed
	strangers map[int]bool       // by nsid, others that got an address since the last search began
	listeners []net.HardwareAddr // on the bridge, for links that were not found
	hidden    map[Gap]time.Time  // what cannot be read of those, and since when; the gaps without a date
	searched  time.Time          // when all namespaces were searched last, or began to be
	home      bool               // the bridge's own was, and no news of such a link came since
}

func newStackedLinks(again bool) stackedLinks {
	return stackedLinks{again: again, nests: make(map[int]*nest), strangers: make(map[int]bool), came: make(map[linkIn]bool), early: make(map[int]bool)}
}

// macs are those that the bridge receives for stacked links: one that is down has none. The
// kernel lets no second macvlan on a link come up with the MAC of the first; a guest that
// takes its own one down may have another listen in its place, in a namespace that only a
// MAC that nothing explains has searched for.
func macs(nests map[int]*nest) map[string]bool {
	all := make(map[string]bool)
	for _, n := range nests {
		for _, l := range n.links {
			if l.Up() {
				all[l.MAC.String()] = true
			}
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
		// What was found before may be there still, and what came since the search began is not in it.
		if (found.partly[id] != nil || s.stacked.early[id]) && !n.ended {
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
	live := make(map[string]bool)
	for id, n := range found.nests {
		n.postBy(s)
		live[n.scope] = true
		s.read(w, id)
	}
	s.keep(func(known string) bool { // else it is of a bridge that went, and of its links
		return !strings.HasPrefix(known, nestPrefix) || live[wholeScope(known)]
	})
	s.setHidden(found)
}

// postBy has a nest's addresses posted by a witness. Their scope is no other nest's, also
// after the kernel gave its nsid again.
func (n *nest) postBy(s *namespaces) {
	if n.inside == nil {
		s.made++
		n.inside = &inside{stock: s.stock, scope: nestPrefix + strconv.Itoa(s.made)}
	}
	n.inside.sighting = func() sightingOf { return n.sighting(s.bridge) }
}

// readStacked looks up the stacked links that there was news of, so that their addresses
// are seen at once: the search that the news asks for takes as long as guests make it.
func (s *namespaces) readStacked(w wire) {
	until := time.Now().Add(inlineWithin)
	for came := range s.stacked.came {
		delete(s.stacked.came, came)
		if time.Now().After(until) || w.self == rtnl.Unassigned || came.nsid == w.self {
			continue
		}
		l, err := w.Link(came.nsid, came.index)
		if err != nil || !stackedKinds[l.Kind] || l.Behind != w.self || w.parent(l.Peer) == "" {
			continue // the search shows what became of it
		}
		found := &nest{id: came.nsid, links: []stackedLink{{l, w.parent(l.Peer)}}}
		if n := s.stacked.nests[came.nsid]; n != nil && !n.ended {
			found = n.with(found)
			found.file, found.inside = n.file, n.inside
		} else if n != nil {
			continue // its addresses stand until the search
		}
		found.postBy(s)
		s.stacked.nests[came.nsid], s.stacked.early[came.nsid] = found, true
		s.again[came.nsid] = true
	}
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
	slices.SortFunc(found.links, func(a, b stackedLink) int { return cmp.Compare(a.Index, b.Index) })
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
