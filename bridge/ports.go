package bridge

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ipamd/ipamd/bridge/rtnl"
)

// A port is a link that has the bridge as its master.
type port struct {
	link   *rtnl.Link
	space  *space    // the namespace behind it; nil when none can be read
	frozen time.Time // since when what is behind it cannot be read; zero: it can

	formerly []formerName
}

// A formerName is a name that a port had, and until when. The name is the next
// link's to take from then on, so it means this port only to who knew it before.
type formerName struct {
	name  string
	until time.Time
}

// had reports whether the port had a name at some time since then.
func (p *port) had(name string, since time.Time) bool {
	return slices.ContainsFunc(p.formerly, func(f formerName) bool { return f.name == name && !f.until.Before(since) })
}

// wholeScope is the scope of the namespace that a scope is of.
func wholeScope(scope string) string {
	kind, rest, _ := strings.Cut(scope, " ")
	id, _, _ := strings.Cut(rest, " ")
	return kind + " " + id
}

// scope names what could not be read of a port. An index outlives a change of name.
func scope(index int) string { return strconv.Itoa(index) }

// Changed returns a channel that is closed when a port came or went, got
// another name or MAC or leads elsewhere, after the board was told what that changed
// there. It carries no payload: look again. A port behind which no address was
// seen, such as a virtual machine's tap, changes nothing on the board, and
// this is how its end is noticed.
//
// It is closed when the board is brought up to date: by [Bridge.Run], or by [Bridge.Settle] and
// [Bridge.Refresh]. It is safe for concurrent use.
func (b *Bridge) Changed() <-chan struct{} {
	return b.moves.changed.Next()
}

// tellMoves wakes those who wait for a port to move.
func (b *Bridge) tellMoves() {
	if b.moved {
		b.moved = false
		b.moves.tell(b.ports)
	}
	b.showGaps()
}

// listPorts lists the bridge's ports anew.
func (b *Bridge) listPorts() error {
	found := make(map[int]*rtnl.Link)
	err := rtnl.Steady(func() error {
		return b.kernel.PortsOf(b.link.Index, func(l *rtnl.Link) { found[l.Index] = l })
	})
	if errors.Is(err, rtnl.ErrInterrupted) && b.netns.whole == nil {
		// Ports come and go faster than they can be listed. What is known is
		// complete, for every one of these changes is also news; so the list
		// may add to it, and what it lacks is looked up one by one.
		err = nil
	}
	if err != nil {
		return fmt.Errorf("list the ports of %s: %w", b.cfg.Name, err)
	}
	for index := range b.ports {
		if found[index] == nil {
			b.readPort(index)
		}
	}
	for _, l := range found {
		b.setPort(l)
	}
	b.forgetOthers()
	return nil
}

// forgetOthers drops what is told of ports that are none any more, and, once
// everything was read, of namespaces that no port leads to: what was seen stands
// until what is there is known.
func (b *Bridge) forgetOthers() {
	led := make(map[string]bool)
	for _, p := range b.ports {
		if p.space != nil {
			led[p.space.scope()] = true
		}
	}
	b.netns.keep(func(known string) bool {
		if index, err := strconv.Atoi(known); err == nil {
			return b.ports[index] != nil || b.linksAgain[index]
		}
		return led[wholeScope(known)] || b.netns.whole != nil || strings.HasPrefix(known, "nest")
	})
	b.dropAnswersFrom(func(o origin) bool { return o.port != 0 && b.ports[o.port] == nil })
}

// readPort looks one link up again: it may be a port now, or no longer, or
// lead elsewhere.
func (b *Bridge) readPort(index int) {
	l, err := b.kernel.Link(rtnl.NoNetns, index)
	switch {
	case rtnl.IsGone(err):
		b.dropPort(index)
	case err != nil:
		b.linksAgain[index] = true
		b.netns.fail(scope(index), fmt.Errorf("look up link %d: %w", index, err))
		return
	case l.Master != b.link.Index:
		b.dropPort(index)
	default:
		b.netns.drop(scope(index)) // that it could not be looked up
		b.setPort(l)
	}
	delete(b.linksAgain, index)
}

func (b *Bridge) setPort(l *rtnl.Link) {
	p := b.ports[l.Index]
	if p == nil {
		p = &port{link: l}
		b.ports[l.Index] = p
		b.moved = true
	}
	renamed := p.link.Name != l.Name
	if renamed {
		p.formerly = append(p.formerly, formerName{p.link.Name, time.Now()})
		p.formerly = p.formerly[max(0, len(p.formerly)-mostNames):]
	}
	b.moved = b.moved || renamed || p.link.Behind != l.Behind || !bytes.Equal(p.link.MAC, l.MAC)
	p.link = l
	switch {
	case l.Behind == rtnl.Unassigned:
		b.freeze(p)
	case l.Behind == rtnl.NoNetns:
		b.leave(p)
		b.thaw(p)
		b.netns.drop(scope(l.Index))
	case p.space != nil && p.space.frozen && p.space.id == l.Behind && b.isDead(l.Behind):
		// It is as it was: what was seen there stands.
	case p.space == nil || p.space.frozen || p.space.id != l.Behind:
		b.leave(p)
		b.enter(p, l.Behind)
	case renamed:
		p.space.leads = nil
		b.spacesAgain[l.Behind] = true
	}
}

// freeze keeps what was seen behind a port as it is, for the namespace there is
// being taken down: unknown is not gone. The ports to it follow, mostly within
// milliseconds, and end the matter; one that stays is a [Gap].
//
// It does not silence the witness, also where the port was never read: the
// kernel may keep such a namespace for as long as a socket of it lives, and a
// single one kept every pool from giving an address after a restart. No process
// is in there any more, a lease that records the port is not released, and an
// address that answers from there answers to a probe.
func (b *Bridge) freeze(p *port) {
	if p.space != nil {
		b.freezeSpace(p.space)
		return
	}
	b.netns.unfail(scope(p.link.Index))
	if p.frozen.IsZero() {
		p.frozen, b.gapsMoved = time.Now(), true
	}
}

func (b *Bridge) freezeSpace(s *space) {
	if b.spaces[s.id] == s {
		delete(b.spaces, s.id)
		delete(b.spacesAgain, s.id)
	}
	s.frozen = true
	b.netns.unfail(s.scope()) // the last try to read it
	for _, p := range s.ports {
		if p.frozen.IsZero() {
			p.frozen, b.gapsMoved = time.Now(), true
		}
	}
}

// thaw notes that what is behind a port was read, or that nothing is.
func (b *Bridge) thaw(p *port) {
	if !p.frozen.IsZero() {
		p.frozen, b.gapsMoved = time.Time{}, true
	}
}

func (b *Bridge) dropPort(index int) {
	b.netns.drop(scope(index))
	p := b.ports[index]
	if p == nil {
		return
	}
	b.leave(p)
	b.thaw(p)
	delete(b.ports, index)
	b.moved = true
	for addr, n := range b.neighbours {
		if n.port == index {
			b.neighbourAgain(addr)
		}
	}
	b.dropAnswersFrom(func(o origin) bool { return o.port == index })
}

// enter notes that a port leads to a namespace, which is to be read.
func (b *Bridge) enter(p *port, id int) {
	s := b.spaces[id]
	if s == nil {
		b.spacesMade++
		s = &space{id: id, serial: b.spacesMade, ports: make(map[int]*port), inside: inside{stock: b.stock}}
		b.spaces[id] = s
		b.unnamed = true
	}
	s.ports[p.link.Index] = p
	s.leads = nil
	p.space = s
	b.spacesAgain[id] = true
}

// leave forgets where a port led. What was seen there goes with its last port.
func (b *Bridge) leave(p *port) {
	s := p.space
	if s == nil {
		return
	}
	p.space = nil
	delete(s.ports, p.link.Index)
	s.leads = nil
	if len(s.ports) != 0 {
		return
	}
	b.dropInside(interior{inside: &s.inside, scope: s.scope()})
	b.gapsMoved = b.gapsMoved || !s.unsure.IsZero()
	if b.spaces[s.id] == s {
		delete(b.spaces, s.id)
		delete(b.spacesAgain, s.id)
	}
}
