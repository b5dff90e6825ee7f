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
	links []stackedLink // by index, one at least
	*inside
}

// find is where a link is among those of a nest, or would be.
func (n *nest) find(index int) (at int, known bool) { return findLink(n.links, index) }

func findLink(links []stackedLink, index int) (at int, known bool) {
	return slices.BinarySearchFunc(links, index, func(l stackedLink, index int) int { return cmp.Compare(l.Index, index) })
}

const nestPrefix = "nest "

// A linkIn is a link in another namespace, by that one's nsid and by its index there.
type linkIn struct{ nsid, index int }

// mostNews bounds the links of one namespace that wait to be looked up by their news; the search
// that is wanted by then shows the others.
const mostNews = 32

// longNews is how long the news of a link may be, in bytes, for it to be looked up: that of a macvlan
// has some 1 500. To look a longer one up takes as long as its guest likes, up to 13 ms with the lock held,
// and other guests' links would wait for it.
const longNews = 8 << 10

// sighting makes the sighting of an address, at the stacked link that has it, or at the
// first.
func (n *nest) sighting(bridge string) sightingOf {
	return func(a rtnl.Address) census.Sighting {
		l := n.links[0]
		if at, known := n.find(a.Index); known {
			l = n.links[at]
		}
		return census.Sighting{Addr: a.Prefix.Addr(), Bridge: bridge, Port: l.Name, Netns: census.NewNetnsID(n.id, n.file), MAC: l.MAC.String(), Note: l.where()}
	}
}

// stackedLinks is what is known of the links on the bridge that are no ports.
type stackedLinks struct {
	nests map[int]*nest // by nsid, of those that were found
	// ended are nests that the kernel takes down, whose ids may be others' by now. What was seen
	// there stands until a search that began later ends; nothing new is read or received for them.
	ended []*nest
	over  map[int]bool // by nsid, namespaces that ended since the last search began

	again      bool                 // they are to be searched for
	came       map[int]map[int]bool // those that there was news of, to be looked up, by nsid and index
	until      time.Time            // when no more are looked up; zero: none were since news was taken in
	unsearched time.Time            // since when links may be there that neither a search nor news showed; zero: none
	missed     bool                 // some such came since the last search began
	early      map[linkIn]bool      // whether those are there that were looked up since the last search began
	earlyFull  bool                 // there was no room for another

	partly    map[int]error      // by nsid, why not all links there were listed
	strangers map[int]bool       // by nsid, others that got an address since the last search began
	listeners []net.HardwareAddr // on the bridge, for links that were not found
	hidden    map[Gap]time.Time  // what cannot be read of those, and since when; the gaps without a date
	searched  time.Time          // when all namespaces were searched last, or began to be
	home      bool               // the bridge's own was, and no news of such a link came since
}

func newStackedLinks(again bool) stackedLinks {
	return stackedLinks{again: again, nests: make(map[int]*nest), over: make(map[int]bool), strangers: make(map[int]bool),
		came: make(map[int]map[int]bool), early: make(map[linkIn]bool)}
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

// missSome notes that a link may have come without being looked up: a search is to show it.
func (s *namespaces) missSome() {
	s.stacked.missed = true
	if s.stacked.unsearched.IsZero() {
		s.stacked.unsearched, s.gapsMoved = time.Now(), true
	}
	s.searchAgain()
}

// setStacked makes a search's outcome what is known.
func (s *namespaces) setStacked(w wire, found *search) {
	st := &s.stacked
	st.ended = slices.DeleteFunc(st.ended, func(n *nest) bool {
		before := slices.Contains(found.ended, n)
		if before {
			s.dropInside(n.inside)
		}
		return before
	})
	for id := range st.over {
		if found.nests[id] == nil && found.partly[id] == nil {
			continue
		}
		delete(found.nests, id) // it was found before its namespace ended, or in the next one of that id
		delete(found.partly, id)
		s.missSome()
	}
	for at, there := range st.early {
		if n := found.nests[at.nsid]; n != nil && !there {
			n.remove(at.index)
		}
	}
	for id, n := range st.nests {
		next := found.nests[id]
		switch {
		case found.skipped[id], st.over[id]:
			next = n
		case found.partly[id] != nil: // what was found before may be there still
			next = next.with(n, func(int) bool { return true })
		default: // what came since the search began is not in it
			next = next.with(n, func(index int) bool {
				there, noted := st.early[linkIn{id, index}]
				return there || !noted && st.earlyFull
			})
		}
		if next == nil {
			s.dropInside(n.inside)
			continue
		}
		next.inside, found.nests[id] = n.inside, next
	}
	st.nests = found.nests
	for id := range found.partly {
		if sp := s.spaces[id]; sp != nil {
			sp.searched = false
		}
	}
	live := make(map[string]bool)
	for id, n := range st.nests {
		n.postBy(s)
		live[n.scope] = true
		s.read(w, id)
	}
	for _, n := range st.ended {
		live[n.scope] = true
	}
	s.keep(func(known string) bool { // else it is of a bridge that went, and of its links
		return !strings.HasPrefix(known, nestPrefix) || live[wholeScope(known)]
	})
	if !st.missed {
		st.unsearched = time.Time{}
	}
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

// isDue reports that there are links to be looked up by their news, and time for it.
func (st *stackedLinks) isDue() bool {
	return len(st.came) > 0 && (st.until.IsZero() || time.Now().Before(st.until))
}

// readStacked looks up the stacked links that there was news of, so that their addresses
// are seen at once: the search that the news asks for takes as long as guests make it. It is one of each
// namespace in turn, at some 10 µs each, for inlineWithin since news was taken in; what is left waits
// until news is taken in once more.
func (s *namespaces) readStacked(w wire) {
	st := &s.stacked
	if st.until.IsZero() {
		st.until = time.Now().Add(inlineWithin)
	}
	if w.self == rtnl.Unassigned { // no link elsewhere is known to lead here: without CAP_NET_ADMIN a search shows them
		clear(st.came)
	}
	for len(st.came) > 0 {
		for id, indices := range st.came {
			if time.Now().After(st.until) {
				s.missSome()
				return
			}
			for index := range indices {
				s.readStackedLink(w, linkIn{id, index})
				if delete(indices, index); len(indices) == 0 {
					delete(st.came, id)
				}
				break
			}
		}
	}
}

// readStackedLink looks up one. What it cannot say the search shows.
func (s *namespaces) readStackedLink(w wire, at linkIn) {
	st := &s.stacked
	l, err := w.Link(at.nsid, at.index)
	if err != nil && !rtnl.IsGone(err) || at.nsid == w.self {
		return
	}
	n := st.nests[at.nsid]
	if err != nil || !stackedKinds[l.Kind] || l.Behind != w.self || w.parent(l.Peer) == "" {
		if n != nil {
			n.remove(at.index)
		}
		if !st.correct(at, false) {
			s.missSome()
		}
		return
	}
	if n == nil {
		n = &nest{id: at.nsid}
		n.postBy(s)
		st.nests[at.nsid] = n
	}
	n.add(stackedLink{l, w.parent(l.Peer)})
	if s.again[at.nsid] = true; !st.correct(at, true) {
		s.missSome()
	}
}

// correct has a search that is under way corrected by what was looked up. Where there is no room
// for more, what was known stands until the next search.
func (st *stackedLinks) correct(at linkIn, there bool) (noted bool) {
	if _, noted = st.early[at]; noted || len(st.early) < mostLinks {
		st.early[at] = there
		return true
	}
	st.earlyFull = true
	return false
}

// add takes in a link as it is now, unless there are too many.
func (n *nest) add(l stackedLink) {
	switch at, known := n.find(l.Index); {
	case known:
		n.links[at] = l
	case len(n.links) < mostLinks:
		n.links = slices.Insert(n.links, at, l)
	}
}

// remove takes out a link that went, but for the last one: what is seen in the namespace stands
// until a search shows that no link is there.
func (n *nest) remove(index int) {
	if at, known := n.find(index); known && len(n.links) > 1 {
		n.links = slices.Delete(n.links, at, at+1)
	}
}

// with returns the nest, nil for none, with those links of an older one beside that are wanted.
func (n *nest) with(older *nest, wanted func(index int) bool) *nest {
	next := &nest{id: older.id, file: older.file}
	if n != nil {
		*next = *n
	}
	found := len(next.links)
	for _, l := range older.links {
		if len(next.links) < mostLinks && wanted(l.Index) {
			if _, known := findLink(next.links[:found], l.Index); !known {
				next.links = append(next.links, l)
			}
		}
	}
	if len(next.links) == 0 {
		return nil
	}
	slices.SortFunc(next.links, func(a, b stackedLink) int { return cmp.Compare(a.Index, b.Index) })
	return next
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
		s.searchAgain() // what was seen stands until then
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
			"ipamctl explain "+LinkHidden+" # find it: ip -d link, in each namespace")
	}
	for id := range found.partly {
		if s.spaces[id] == nil { // else its addresses are read, on whatever link
			add(fmt.Sprintf("nsid:%d", id), fmt.Sprintf("the links in namespace nsid:%d cannot all be listed; one that is stacked on %s may be missing, and its addresses", id, s.bridge),
				fmt.Sprintf("ipamctl explain "+LinkHidden+" # find what makes so many links, or so fast, in nsid:%d", id))
		}
		if s.stacked.strangers[id] { // a call received the news while this was searched for
			s.searchAgain()
		}
	}
	for _, n := range found.nests {
		for _, l := range n.links {
			if l.Kind == "macvtap" || l.Kind == "ipvtap" { // the addresses behind it are on no link here
				add(l.Name, fmt.Sprintf("%s; no witness sees the addresses of the virtual machine behind it", l.where()),
					"ipamctl explain "+LinkHidden+" # give the machine a tap that is a port of "+s.bridge)
			}
		}
	}
	s.gapsMoved = true
}
