package bridge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ipamd/ipamd/bridge/rtnl"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/broadcast"
)

// namespaces is the netns witness: the ports, the namespaces that they lead to, and those
// that have links stacked on the bridge.
type namespaces struct {
	*report
	bridge   string           // its name
	wake     func()           // has Run look again
	notice   func(netip.Addr) // an address came to a namespace, or went
	portGone func(index int)

	ports      map[int]*port
	own        census.Bridge
	linksAgain map[int]bool // links to be looked up again
	moved      bool         // a port did, or own, which is to be shown
	spaces     map[int]*space
	made       int  // how many there ever were
	unnamed    bool // one came since names were looked up
	bridges    int  // how often a bridge came under its name or went, or the sockets were opened anew
	stacked    stackedLinks
	again      map[int]bool // ids of namespaces to be listed again
	crowds     map[int]bool // ids of those that Run is to list
	stock      *stock       // of the addresses in all of those
	gapsMoved  bool         // what cannot be read did

	changed broadcast.Signal // of the next move
	onPorts func()           // see Config.OnPorts
	shown   atomic.Pointer[portList]
	gaps    atomic.Pointer[[]foundGap] // what cannot be read, also for less than gapAfter
}

// A sightingOf makes the sighting of an address in one namespace.
type sightingOf func(rtnl.Address) census.Sighting

// A space is a network namespace behind one or more ports. What is in it is posted once,
// however many ports lead there.
type space struct {
	id int // nsid, as the bridge's namespace knows it
	// dying: the kernel takes it down, and its id may be another's by now. What
	// was seen there stands until its ports go.
	dying bool
	name  spaceName // under /run/netns; zero when none is known
	ports map[int]*port
	leads *census.Ports  // names of ports, where there are several; nil is to be made
	macs  map[int]string // by link index, "" where it cannot be read; nil after news was lost
	// searched: what is stacked on the bridge in there was found, and no news of such a link came since.
	searched bool
	*inside
}

func (s *space) as() census.NetnsID { return census.NewNetnsID(s.id, s.name.file) }

// sighting makes the sightings of the addresses in a namespace. Each is posted once, at
// the port whose far end has it; one of a link that is no port's far end at
// the port of the lowest index.
func (s *space) sighting(bridge string) sightingOf {
	as, at := s.as(), make(map[int]*port, len(s.ports))
	for _, p := range s.ports {
		at[p.link.Peer] = p
	}
	if s.leads == nil && len(s.ports) > 1 {
		s.leads = s.portNames()
	}
	first := s.first()
	return func(a rtnl.Address) census.Sighting {
		p := at[a.Index]
		if p == nil {
			p = first
		}
		return census.Sighting{
			Addr: a.Prefix.Addr(), Bridge: bridge, Port: p.link.Name, Leads: s.leads, Netns: as, MAC: s.macs[a.Index],
			Index: p.link.Index, Inode: s.name.inode,
		}
	}
}

func (s *space) portNames() *census.Ports {
	var names []string
	for _, p := range s.ports {
		names = append(names, p.link.Name)
	}
	return census.NewPorts(names...)
}

// first is the port of the lowest index.
func (s *space) first() *port { return s.ports[slices.Min(slices.Collect(maps.Keys(s.ports)))] }

// insideOf is what is known of a namespace; nil where it is not looked at.
func (s *namespaces) insideOf(id int) *inside {
	if sp := s.spaces[id]; sp != nil {
		return sp.inside
	}
	if n := s.stacked.nests[id]; n != nil && id != rtnl.NoNetns {
		return n.inside
	}
	return nil
}

// ids are those of the namespaces that are looked at.
func (s *namespaces) ids() []int {
	return slices.AppendSeq(slices.Collect(maps.Keys(s.spaces)), maps.Keys(s.stacked.nests))
}

// lose notes that news was lost: what is known may lack something.
func (s *namespaces) lose() {
	s.stacked.home = false
	s.missSome()
	for _, sp := range s.spaces {
		sp.macs, sp.searched = nil, false
		sp.lose()
	}
	for _, n := range s.stacked.nests {
		n.lose()
	}
}

// forgetOthers drops what was seen of ports that are none any more, and, once
// everything was read, of namespaces that no port leads to: what was seen stands
// until what is there is known.
func (s *namespaces) forgetOthers() {
	led := make(map[string]bool)
	for _, p := range s.ports {
		if p.space != nil {
			led[p.space.scope] = true
		}
	}
	s.keep(func(known string) bool {
		if index, err := strconv.Atoi(known); err == nil {
			return s.ports[index] != nil || s.linksAgain[index]
		}
		return led[wholeScope(known)] || s.whole != nil || strings.HasPrefix(known, nestPrefix) || known == nestsScope
	})
}

// settle reads again the links and namespaces that the kernel's news was about.
func (s *namespaces) settle(ctx context.Context, w wire) {
	for index := range s.linksAgain {
		if ctx.Err() == nil {
			s.readPort(w, index)
		}
	}
	if ctx.Err() == nil {
		s.readStacked(w) // behind the ports, on which they may be
	}
	for id := range s.again {
		if ctx.Err() == nil {
			s.read(w, id)
		}
	}
}

// read lists the addresses in a namespace, on whatever link they are,
// once for all ports that lead there. One with too many of them, or where they do not
// stand still, is left to Run.
func (s *namespaces) read(w wire, id int) {
	delete(s.again, id)
	if s.spaces[id] != nil {
		s.readSpace(w, id)
	}
	if n := s.stacked.nests[id]; n != nil && id != rtnl.NoNetns {
		s.readNest(w, n)
	}
}

func (s *namespaces) readSpace(w wire, id int) {
	sp := s.spaces[id]
	if s.leaveCrowd(id) {
		return
	}
	got, err := sp.list(w.Socket, id)
	if rtnl.IsVanishing(w.Socket, id, err) {
		// The namespace, or the port to it, went in between. Looking at
		// the ports again shows that; if one still leads there, list once more.
		for index := range sp.ports {
			s.readPort(w, index)
		}
		if s.spaces[id] != sp {
			return
		}
		got, err = sp.list(w.Socket, id)
	}
	if rtnl.IsVanishing(w.Socket, id, err) {
		// The last that held the namespace released it, and the kernel has
		// yet to take it down: the ports still name it, but it cannot be read any more.
		s.markDying(sp)
		return
	}
	if err != nil {
		s.again[id] = true
		s.fail(sp.scope, fmt.Errorf("list the addresses behind %s (%s): %w", sp.first().link.Name, sp.as(), err))
		return
	}
	for index, p := range sp.ports {
		s.markReadable(p)
		s.drop(scope(index))
	}
	s.take(w, id, got)
}

// readMACs fills in the MACs that are not known yet: of those links that are the far
// ends of ports, and of mostMACs others that have addresses, as many as can be had within
// inlineWithin: a guest decides how long the kernel's answer about each is.
func (s *space) readMACs(k *rtnl.Socket) {
	if s.macs == nil {
		s.macs = make(map[int]string)
	}
	for _, p := range s.ports {
		if _, known := s.macs[p.link.Peer]; !known {
			s.readMAC(k, p.link.Peer)
		}
	}
	most, until := len(s.macs)+mostMACs, time.Now().Add(inlineWithin)
	for _, a := range s.addrs {
		if _, known := s.macs[a.Index]; known {
			continue
		}
		if len(s.macs) >= most || time.Now().After(until) {
			return
		}
		s.readMAC(k, a.Index)
	}
}

// readMAC looks a link's MAC up. Which address is there matters more than its MAC: a link
// whose answer is too long, or cannot be believed, has an unknown one, and is asked for again when there is news of it.
func (s *space) readMAC(k *rtnl.Socket, index int) {
	switch l, err := k.Link(s.id, index); {
	case err == nil:
		s.macs[index] = l.MAC.String()
	case errors.Is(err, rtnl.ErrTruncated), errors.Is(err, rtnl.ErrUnreadable):
		s.macs[index] = ""
	}
}

// receiveLink notes news of a link: one in another namespace, or a link that may be a port.
func (s *namespaces) receiveLink(nsid int, gone bool, index int) {
	if nsid == rtnl.NoNetns {
		for _, p := range s.ports { // perhaps its far end, which moved to a namespace
			if gone && p.link.Behind == rtnl.NoNetns && p.link.Peer == index {
				s.linksAgain[p.link.Index] = true
			}
		}
		s.linksAgain[index] = true
		return
	}
	if sp := s.spaces[nsid]; sp != nil {
		delete(sp.macs, index)
		s.again[nsid] = true
		for port, p := range sp.ports { // perhaps it moved on to another namespace
			if gone && p.link.Peer == index {
				s.linksAgain[port] = true
			}
		}
	}
}

// receiveStacked notes news of a link that may be stacked on the bridge, or was: a search that is
// under way may have found one that is gone. A namespace that was searched, and a port leads to, is
// searched once more.
func (s *namespaces) receiveStacked(nsid, index int, body []byte) {
	st, sp, n := &s.stacked, s.spaces[nsid], s.stacked.nests[nsid]
	known := false
	if n != nil {
		s.again[nsid] = true
		_, known = n.find(index)
	}
	l, err := rtnl.ParseLink(body)
	// What a guest stacks on a link of its own is no matter here: the bridge is in another namespace.
	// Of news that was too long to be read whole it is not known.
	stacked := err != nil || stackedKinds[l.Kind] && (sp == nil || l.Behind != rtnl.NoNetns)
	if !known && !stacked {
		return
	}
	if sp != nil {
		sp.searched = false
	}
	switch came := st.came[nsid]; {
	case nsid == rtnl.NoNetns:
		st.home = false
	case err != nil || len(body) > longNews:
		if sp == nil { // else its addresses are read on any link
			s.missSome()
		}
	case came == nil:
		st.came[nsid] = map[int]bool{index: true}
	case len(came) < mostNews:
		came[index] = true
	case !came[index]:
		s.missSome()
	}
	s.searchAgain()
}

// receiveAddress notes that a namespace is to be listed again, and that an address was
// there: when the list is read it may be gone.
func (s *namespaces) receiveAddress(nsid int, came bool, a rtnl.Address, err error) {
	switch in := s.insideOf(nsid); {
	case in != nil:
		s.again[nsid] = true
		if came && err == nil {
			in.receive(a)
		}
	case came && (err != nil || rtnl.Assignable(a.Prefix.Addr())):
		s.stacked.strangers[nsid] = true
		if s.stacked.partly[nsid] != nil { // the link that has it may be one of those that were not listed
			s.searchAgain()
		}
	}
}

// receiveEnd notes that the kernel takes a namespace down and may give its id to
// another: from here on the id says nothing about the ports that led there.
func (s *namespaces) receiveEnd(id int) {
	st := &s.stacked
	st.over[id] = true
	delete(st.came, id)
	if n := st.nests[id]; n != nil {
		delete(st.nests, id)
		st.ended = append(st.ended, n)
		s.searchAgain()
	}
	if sp := s.spaces[id]; sp != nil {
		s.markDying(sp)
		for index := range sp.ports {
			s.linksAgain[index] = true
		}
	}
}

// wholeScope is the scope of the namespace that a scope is of.
func wholeScope(scope string) string {
	kind, rest, _ := strings.Cut(scope, " ")
	id, _, _ := strings.Cut(rest, " ")
	return kind + " " + id
}

// readAll lists every namespace after news was lost. The crowded ones come last,
// for crowdsInline, and Run lists the others: what news was lost of them is not known
// until then, and only guests in there could be hit by it.
func (s *namespaces) readAll(ctx context.Context, w wire) error {
	var crowded []int
	for _, id := range s.ids() {
		switch in := s.insideOf(id); {
		case in == nil || in.tried:
		case in.crowded:
			crowded = append(crowded, id)
		default:
			s.read(w, id)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	until := time.Now().Add(crowdsInline)
	for _, id := range crowded {
		if in := s.insideOf(id); in != nil && time.Now().After(until) {
			in.tried = true
		}
		if s.read(w, id); ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}
