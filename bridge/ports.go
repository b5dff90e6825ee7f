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
	link       *rtnl.Link
	space      *space    // the namespace that it leads to; nil when it leads to none, or to one that cannot be read
	unreadable time.Time // since when that one cannot be read, for the kernel takes it down; zero: it can be read. See markUnreadable
	unsure     time.Time // since when no list of the addresses behind it was exact, also where it led to other namespaces meanwhile

	formerly []formerName
}

// A formerName is a name that a port had, and until when. From then on another link may have the
// name, so it means this port only to a caller that learned it before.
type formerName struct {
	name  string
	until time.Time
}

// mostNames bounds how many former names of a port are remembered.
const mostNames = 8

// had reports whether the port had a name, and has it no more, at some time after since.
func (p *port) had(name string, since time.Time) bool {
	return slices.ContainsFunc(p.formerly, func(f formerName) bool { return f.name == name && !f.until.Before(since) })
}

// hasMACOnly reports whether the namespace behind the port has a MAC that is seen with an address, but
// not that address. Then another guest may have forged the MAC, or this one is a proxy for the address.
func (p *port) hasMACOnly(mac string, addr netip.Addr) bool {
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

// scope is the scope of a port in the report of the netns witness: under it stands that the port could
// not be read. It is the index, which stays when the name changes.
func scope(index int) string { return strconv.Itoa(index) }

// A portList is what subscribers see of the ports, by name. It is replaced as a whole.
type portList struct {
	names map[string]bool
	macs  map[string]string
	links map[string]census.Port
	own   census.Bridge
}

// Changed returns a channel that is closed when a port came or went, got another name or MAC, leads
// to another namespace or treats group addresses otherwise (see [Bridge.SetGroups]), and when
// [Bridge.Own] changed. By then the board is up to date. It carries no payload: look again. A port
// behind which no address was seen, such as a virtual machine's tap, changes nothing on the board, so
// only this shows that it is gone.
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
		now.Index, now.MAC, now.LearnsGroups = d.link.Index, d.link.MAC.String(), !d.link.NoGroupLearn
		for _, a := range d.addrs {
			if a.Index == now.Index {
				now.Addrs = append(now.Addrs, a.Prefix.Addr())
			}
		}
	}
	if now.Index != s.own.Index || now.MAC != s.own.MAC || now.LearnsGroups != s.own.LearnsGroups || !slices.Equal(now.Addrs, s.own.Addrs) {
		s.own, s.moved = now, true
	}
}

// LearnNoGroups has the bridge enter no sender of a frame to the group addresses 01-80-C2-00-00-00
// to -0F (IEEE 802.1D, section 7.12.6) into its forwarding table. It does so before any hook of nftables
// sees the frame, so no rule could prevent a port from claiming another's MAC by one. index is the
// bridge's. A link that is gone is no error. It is safe for concurrent use.
func (s *lookups) LearnNoGroups(ctx context.Context, index int) error {
	err := s.plugs.Ask(ctx, func(k *rtnl.Socket) error { return k.SetNoGroupLearn(index) })
	if err != nil && !rtnl.IsGone(err) {
		return fmt.Errorf("have bridge %d learn nothing from frames to group addresses: %w", index, err)
	}
	return nil
}

// allGroups is the mask of these group addresses, a bit for each, but for 01-80-C2-00-00-01: frames to
// that one are PAUSE frames, which the kernel drops.
const allGroups = 0xfffd

// SetGroups has the bridge treat frames that come by a port and go to the group addresses of
// [Bridge.LearnNoGroups] as it treats all others, if on. Else the kernel's default holds: it hands them
// to the host's own stack as frames of the port, whatever protocol they carry. There no rule of
// nftables for bridges sees them, and their sender enters the forwarding table all the same. A link
// that is gone is no error. It is safe for concurrent use.
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

// Unlearn deletes the entries of the forwarding table that the bridge has learned for a port. It learns
// each again from the next frame. A link that is gone, or is no port, is no error. It is safe for
// concurrent use.
func (s *lookups) Unlearn(ctx context.Context, index int) error {
	err := s.plugs.Ask(ctx, func(k *rtnl.Socket) error { return k.Unlearn(index) })
	if err != nil && !rtnl.IsGone(err) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("forget what was learned at link %d: %w", index, err)
	}
	return nil
}

// show publishes what is known now: for [Bridge.PortNames] and its like, whose subscribers it wakes
// where anything changed (see [Bridge.Changed]), and for [Bridge.Gaps].
func (s *namespaces) show() {
	if s.moved {
		s.moved = false
		now := &portList{make(map[string]bool), make(map[string]string), make(map[string]census.Port), s.own}
		for _, p := range s.ports {
			now.names[p.link.Name], now.macs[p.link.Name] = true, p.link.MAC.String()
			now.links[p.link.Name] = census.Port{Index: p.link.Index, Name: p.link.Name, Bridge: s.bridge, ForwardsGroups: p.link.GroupForward == allGroups}
		}
		s.shown.Store(now)
		s.changed.Send()
		if s.onPorts != nil {
			s.onPorts()
		}
	}
	s.showGaps()
}

// replacePorts takes in a list of the ports that was made with the lock held, so that it is right. A
// port that it lacks is looked up before it counts as gone.
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

// comparePorts notes which links are to be looked up: those of which memory and a list differ. The list
// was made without the lock and may be old, so nothing else is taken from it.
func (s *namespaces) comparePorts(found map[int]*rtnl.Link) {
	for index, p := range s.ports {
		if l := found[index]; l == nil || !p.link.Same(l) || !p.unreadable.IsZero() {
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
	if s.ports[index] == nil && (errors.Is(err, rtnl.ErrUnreadable) || errors.Is(err, rtnl.ErrTruncated)) {
		l, err = w.listedPort(index) // most likely it is none, and what it is does not matter
	}
	switch {
	case err != nil && !rtnl.IsGone(err):
		s.linksAgain[index] = true
		s.fail(scope(index), fmt.Errorf("look up link %d: %w", index, err))
		return
	case err != nil || l.Master != w.link.Index:
		s.dropPort(index)
	default:
		s.drop(scope(index)) // it could be looked up now
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
		s.markUnreadable(p)
	case l.Behind == rtnl.NoNetns:
		s.leave(p)
		s.markReadable(p)
		s.drop(scope(l.Index))
	case p.space != nil && p.space.dying && p.space.id == l.Behind && rtnl.IsDead(w.Socket, l.Behind):
		// It is still being taken down: what was seen there stands.
	case p.space == nil || p.space.dying || p.space.id != l.Behind:
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
	s.markReadable(p)
	delete(s.ports, index)
	s.moved = true
	s.portGone(index)
}

// markUnreadable is for a port whose namespace the kernel is taking down and lets no one read any more. What
// was seen there stands: unknown is not gone. Mostly the port goes within milliseconds too, and its
// sightings with it; one that stays is a [Gap].
//
// The netns witness is not silent for that, even if the port was never read: the
// kernel may keep such a namespace for as long as a socket of it lives, and a
// single one would keep every pool from giving an address after a restart. No process
// is in there any more, a lease that records the port is not released, and an
// address that is still answered for there is seen by the probe witness.
func (s *namespaces) markUnreadable(p *port) {
	if p.space != nil {
		s.markDying(p.space)
		return
	}
	s.unfail(scope(p.link.Index))
	if p.unreadable.IsZero() {
		p.unreadable, s.gapsMoved = time.Now(), true
	}
}

func (s *namespaces) markDying(old *space) {
	s.forget(old)
	old.dying = true
	s.unfail(old.scope) // that the last try to read it failed silences no witness
	for _, p := range old.ports {
		if p.unreadable.IsZero() {
			p.unreadable, s.gapsMoved = time.Now(), true
		}
	}
}

// markReadable ends markUnreadable: the port leads to a namespace that can be read, to none, or is gone.
func (s *namespaces) markReadable(p *port) {
	if !p.unreadable.IsZero() {
		p.unreadable, s.gapsMoved = time.Time{}, true
	}
}

// enter notes that a port leads to the namespace with an id, and that this one is to be read.
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

// leave notes that a port leads to its namespace no more. What was seen in that one is dropped with the
// last port that leads there.
func (s *namespaces) leave(p *port) {
	from := p.space
	if from == nil {
		return
	}
	p.space = nil
	if p.unsure.IsZero() { // else a guest that moves its link from namespace to namespace would restart the time
		p.unsure = from.unsure
	}
	delete(from.ports, p.link.Index)
	from.leads = nil
	switch {
	case len(from.ports) == 0:
		s.dropInside(from.inside)
		s.gapsMoved = s.gapsMoved || !from.unsure.IsZero()
		s.forget(from)
		if s.stacked.nests[from.id] != nil { // links in there are stacked on the bridge: they need no port
			s.again[from.id] = true
		}
	case !from.dying: // its sightings are to name one of the other ports
		s.again[from.id] = true
	}
}

// forget ends that a namespace is read by its id, which another may get.
func (s *namespaces) forget(old *space) {
	if s.spaces[old.id] == old {
		delete(s.spaces, old.id)
		delete(s.again, old.id)
	}
}
