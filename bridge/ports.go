package bridge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/rtnl"
	"github.com/ipamd/ipamd/census"
)

// A port is a link that has the bridge as its master.
type port struct {
	link   *rtnl.Link
	space  *space    // the namespace behind it; nil when none can be read
	frozen time.Time // since when what is behind it cannot be read; zero: it can
	unsure time.Time // since when no list of what is behind it was exact, in whatever namespace that was

	formerly []formerName
}

// A formerName is a name that a port had, and until when. The name is the next
// link's to take from then on, so it means this port only to a caller who knew it before.
type formerName struct {
	name  string
	until time.Time
}

// mostNames bounds how many former names of a port are remembered.
const mostNames = 8

// had reports whether the port had a name at some time since then.
func (p *port) had(name string, since time.Time) bool {
	return slices.ContainsFunc(p.formerly, func(f formerName) bool { return f.name == name && !f.until.Before(since) })
}

// poses reports that the namespace behind the port has the MAC that is seen with an
// address, and not the address.
func (p *port) poses(mac string, addr netip.Addr) bool {
	if p.space == nil || p.space.knows(addr) {
		return false
	}
	for _, m := range p.space.macs {
		if m == mac {
			return true
		}
	}
	return false
}

// scope names what could not be read of a port. An index outlives a change of name.
func scope(index int) string { return strconv.Itoa(index) }

// A portList is what subscribers see of the ports, by name. It is replaced as a whole.
type portList struct {
	names map[string]bool
	macs  map[string]string
	links map[string]census.Port
	own   census.Bridge
}

// Changed returns a channel that is closed when a port came or went, got
// another name or MAC or leads elsewhere, or when [Bridge.Own] changed, after the board shows what that changed
// there. It carries no payload: look again. A port behind which no address was
// seen, such as a virtual machine's tap, changes nothing on the board, and
// this is how its end is noticed.
//
// It is closed when the board is brought up to date: by [Bridge.Run], or by [Bridge.Settle] and
// [Bridge.Refresh]. It is safe for concurrent use.
func (b *Bridge) Changed() <-chan struct{} { return b.netns.changed.Next() }

// PortNames returns the names of the bridge's ports, as of the last [Bridge.Changed];
// the map is not to be changed. It reads memory and never waits.
func (b *Bridge) PortNames() map[string]bool { return b.netns.shown.Load().names }

// PortMACs returns the MACs of the ports themselves, the host's ends, by their
// names, otherwise as [Bridge.PortNames] does.
func (b *Bridge) PortMACs() map[string]string { return b.netns.shown.Load().macs }

// PortLinks returns the ports' links by their names, otherwise as [Bridge.PortNames] does.
func (b *Bridge) PortLinks() map[string]census.Port { return b.netns.shown.Load().links }

// Own is what the bridge itself is, as of the last [Bridge.Changed]; its addresses are not to be changed. It reads memory
// and never waits.
func (b *Bridge) Own() census.Bridge { return b.netns.shown.Load().own }

// setOwn takes in what the bridge itself is.
func (s *namespaces) setOwn(d *device) {
	now := census.Bridge{Name: d.name}
	if d.isThere() {
		now.Index, now.MAC, now.Learns = d.link.Index, d.link.MAC.String(), !d.link.NoGroupLearn
		for _, a := range d.addrs {
			if a.Index == now.Index {
				now.Addrs = append(now.Addrs, a.Prefix.Addr())
			}
		}
	}
	if now.Index != s.own.Index || now.MAC != s.own.MAC || now.Learns != s.own.Learns || !slices.Equal(now.Addrs, s.own.Addrs) {
		s.own, s.moved = now, true
	}
}

// LearnNoGroups has the bridge not learn where the senders of frames to 01-80-C2-00-00-00 to -0F
// are: no hook of nftables sees such a frame before that. A link that is gone is no error. It
// is safe for concurrent use.
func (s *lookups) LearnNoGroups(ctx context.Context, index int) error {
	err := s.plugs.Ask(ctx, func(k *rtnl.Socket) error { return k.SetNoGroupLearn(index) })
	if err != nil && !rtnl.IsGone(err) {
		return fmt.Errorf("have bridge %d learn nothing from frames to group addresses: %w", index, err)
	}
	return nil
}

// allGroups are the group addresses but that of PAUSE frames, which the kernel drops.
const allGroups = 0xfffd

// SetGroups has frames of a port to the group addresses go the way of all of its frames, or
// else as the kernel has it, by the port into the host's own stack: such a frame may carry
// any protocol, passes no rule of nftables for bridges, and the kernel learns where its
// source is. A link that is gone is no error. It is safe for concurrent use.
func (s *lookups) SetGroups(ctx context.Context, index int, on bool) error {
	var mask uint16
	if on {
		mask = allGroups
	}
	err := s.plugs.Ask(ctx, func(k *rtnl.Socket) error { return k.SetGroupForward(index, mask) })
	if err != nil && !rtnl.IsGone(err) {
		return fmt.Errorf("set which group addresses link %d forwards: %w", index, err)
	}
	return nil
}

// Unlearn has the bridge forget which MACs it has learned to be at a port: the next frame shows
// it where they are. A link that is gone, or is no port, is no error. It is safe for concurrent use.
func (s *lookups) Unlearn(ctx context.Context, index int) error {
	err := s.plugs.Ask(ctx, func(k *rtnl.Socket) error { return k.Unlearn(index) })
	if err != nil && !rtnl.IsGone(err) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("forget what was learned at link %d: %w", index, err)
	}
	return nil
}

// show wakes the subscribers of [Bridge.Changed], and has [Bridge.Gaps] return what is
// known now.
func (s *namespaces) show() {
	if s.moved {
		s.moved = false
		now := &portList{make(map[string]bool), make(map[string]string), make(map[string]census.Port), s.own}
		for _, p := range s.ports {
			now.names[p.link.Name], now.macs[p.link.Name] = true, p.link.MAC.String()
			now.links[p.link.Name] = census.Port{Index: p.link.Index, Name: p.link.Name, Bridge: s.bridge, Groups: p.link.GroupForward == allGroups}
		}
		s.shown.Store(now)
		s.changed.Send()
		if s.onPorts != nil {
			s.onPorts()
		}
	}
	s.showGaps()
}

// replacePorts takes in a list of the ports that is as of now.
func (s *namespaces) replacePorts(w wire, found map[int]*rtnl.Link) {
	for index := range s.ports {
		if found[index] == nil {
			s.readPort(w, index)
		}
	}
	for _, l := range found {
		s.setPort(w, l)
	}
}

// comparePorts has all looked up of which memory and a list, which may be old, do not agree.
func (s *namespaces) comparePorts(found map[int]*rtnl.Link) {
	for index, p := range s.ports {
		if l := found[index]; l == nil || !p.link.Same(l) || !p.frozen.IsZero() {
			s.linksAgain[index] = true
		}
	}
	for index := range found {
		if s.ports[index] == nil {
			s.linksAgain[index] = true
		}
	}
}

// readPort looks one link up again: it may be a port now, or no longer, or
// lead elsewhere.
func (s *namespaces) readPort(w wire, index int) {
	l, err := w.Link(rtnl.NoNetns, index)
	switch {
	case err != nil && !rtnl.IsGone(err):
		s.linksAgain[index] = true
		s.fail(scope(index), fmt.Errorf("look up link %d: %w", index, err))
		return
	case err != nil || l.Master != w.link.Index:
		s.dropPort(index)
	default:
		s.drop(scope(index)) // that it could not be looked up
		s.setPort(w, l)
	}
	delete(s.linksAgain, index)
}

func (s *namespaces) setPort(w wire, l *rtnl.Link) {
	p := s.ports[l.Index]
	if p == nil {
		p = &port{link: l}
		s.ports[l.Index] = p
		s.moved = true
	}
	renamed := p.link.Name != l.Name
	if renamed {
		p.formerly = append(p.formerly, formerName{p.link.Name, time.Now()})
		p.formerly = p.formerly[max(0, len(p.formerly)-mostNames):]
	}
	s.moved = s.moved || renamed || p.link.GroupForward != l.GroupForward || p.link.Behind != l.Behind || !bytes.Equal(p.link.MAC, l.MAC)
	p.link = l
	switch {
	case l.Behind == rtnl.Unassigned:
		s.freeze(p)
	case l.Behind == rtnl.NoNetns:
		s.leave(p)
		s.thaw(p)
		s.drop(scope(l.Index))
	case p.space != nil && p.space.frozen && p.space.id == l.Behind && rtnl.IsDead(w.Socket, l.Behind):
		// It is as it was: what was seen there stands.
	case p.space == nil || p.space.frozen || p.space.id != l.Behind:
		s.leave(p)
		s.enter(p, l.Behind)
	case renamed:
		p.space.leads = nil
		s.again[l.Behind] = true
	}
}

func (s *namespaces) dropPort(index int) {
	s.drop(scope(index))
	p := s.ports[index]
	if p == nil {
		return
	}
	s.leave(p)
	s.thaw(p)
	delete(s.ports, index)
	s.moved = true
	s.portGone(index)
}

// freeze keeps what was seen behind a port as it is, for the namespace there is
// being taken down: unknown is not gone. The ports to it follow, mostly within
// milliseconds, and end the matter; one that stays is a [Gap].
//
// It does not silence the witness, also where the port was never read: the
// kernel may keep such a namespace for as long as a socket of it lives, and a
// single one would keep every pool from giving an address after a restart. No process
// is in there any more, a lease that records the port is not released, and an
// address that answers from there answers to a probe.
func (s *namespaces) freeze(p *port) {
	if p.space != nil {
		s.freezeSpace(p.space)
		return
	}
	s.unfail(scope(p.link.Index))
	if p.frozen.IsZero() {
		p.frozen, s.gapsMoved = time.Now(), true
	}
}

func (s *namespaces) freezeSpace(old *space) {
	s.forget(old)
	old.frozen = true
	s.unfail(old.scope) // the last try to read it
	for _, p := range old.ports {
		if p.frozen.IsZero() {
			p.frozen, s.gapsMoved = time.Now(), true
		}
	}
}

// thaw notes that what is behind a port was read, or that nothing is.
func (s *namespaces) thaw(p *port) {
	if !p.frozen.IsZero() {
		p.frozen, s.gapsMoved = time.Time{}, true
	}
}

// enter notes that a port leads to a namespace, which is to be read.
func (s *namespaces) enter(p *port, id int) {
	to := s.spaces[id]
	if to == nil {
		s.made++
		to = &space{id: id, ports: make(map[int]*port)}
		to.inside = &inside{stock: s.stock, scope: fmt.Sprintf("netns %d", s.made), sighting: func() sightingOf { return to.sighting(s.bridge) }}
		s.spaces[id] = to
		s.unnamed = true
	}
	to.ports[p.link.Index] = p
	to.leads = nil
	p.space = to
	s.again[id] = true
}

// leave forgets where a port led. What was seen there goes with its last port.
func (s *namespaces) leave(p *port) {
	from := p.space
	if from == nil {
		return
	}
	p.space = nil
	if p.unsure.IsZero() { // a guest that moves its link to and fro must not have the clock begin anew
		p.unsure = from.unsure
	}
	delete(from.ports, p.link.Index)
	from.leads = nil
	switch {
	case len(from.ports) == 0:
		s.dropInside(from.inside)
		s.gapsMoved = s.gapsMoved || !from.unsure.IsZero()
		s.forget(from)
		if s.stacked.nests[from.id] != nil { // what is stacked on the bridge in there is still on it
			s.again[from.id] = true
		}
	case !from.frozen: // what was seen at this port is at another now
		s.again[from.id] = true
	}
}

// forget ends that a namespace is read by its id.
func (s *namespaces) forget(old *space) {
	if s.spaces[old.id] == old {
		delete(s.spaces, old.id)
		delete(s.again, old.id)
	}
}
