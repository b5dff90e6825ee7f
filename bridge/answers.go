package bridge

import (
	"container/list"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/probe"
	"github.com/ipamd/ipamd/census"
)

const (
	// placeEvery is the least time between two looks for the port that one
	// address is answered from.
	placeEvery = 100 * time.Millisecond
	// placeWithin is how long one drain may look for ports, everybody waiting,
	// once it has asked placeLeast times. A question takes some 10 µs, and
	// twenty times as long beside a flood.
	placeWithin = 2 * time.Millisecond
	placeLeast  = 16
)

// mostLooksFor bounds how often it is looked for by which port a suspected answer came.
const mostLooksFor = 5

// mostAnswers bounds the answers by one port that are on the board: a guest may
// answer for a whole /64. One that gives way to a later one is asked for again
// before its address is given.
const mostAnswers = 1024

// An origin is where an answer came from, by index: names change.
type origin struct {
	bridge int
	port   int // 0 when the forwarding table did not say
}

// An answering is the answer for an address that is on the board.
type answering struct {
	probe.Reply
	origin
	placed time.Time // when its port was looked for; zero: not yet
	looks  int       // how often it was looked for in vain by which port it came
	// proxied: it came by that port, whose namespace does not have the address.
	proxied bool
	share   *list.Element // of those by the same port
}

// answered takes in the last of the answers that came for an address. What it
// tells anew is posted by placeAnswers. A silence ends with any of them.
func (b *Bridge) answered(addr netip.Addr, s probe.Reply) {
	if b.link == nil {
		return // of a bridge that went meanwhile
	}
	delete(b.doubts, addr)
	if h, old := b.heard[addr]; old && h.Reply == s && h.looks == 0 && time.Since(h.placed) < placeEvery {
		delete(b.unplaced, addr)
		return
	}
	b.unplaced[addr] = s
}

// placeAnswers posts the answers that came, each with the port that it came by: the
// one where the bridge last saw the frame's source, which it learned from this
// very frame or a later one. What an answer says inside is only a claim
// of its sender: a flooder that spoke of another's MAC had another's port named, or
// none.
//
// Every address that was answered for is on the board when it returns.
// Where to find who did may have to wait for the next drain, once the time is
// up: a flooder that sent 50 000 answers a second, with one question to the
// kernel for each, held up the allocations of all pools for up to 2 s. An answer
// that was placed stands until the next one is.
func (b *Bridge) placeAnswers(until time.Time) {
	if b.link == nil || len(b.unplaced) == 0 {
		return
	}
	now := time.Now()
	if b.ingress != nil {
		b.ingress.Read(b.isPort)
	}
	asks := ingressAsks
	search := portSearch{until: until, least: placeLeast, found: make(map[probe.MAC]int)}
	for addr, s := range b.unplaced {
		h, old := b.heard[addr]
		if now.Sub(h.placed) < placeEvery {
			continue
		}
		if !b.search(&search, s) {
			if !old {
				b.postUnplaced(addr, s)
			}
			continue
		}
		at := search.found[s.From]
		says := search.found[s.Says]
		note, looks := "", 0
		came, checked := b.unmask(addr, s, at, &asks)
		proxied := checked && came == at
		if checked && !proxied {
			note = forged(b.ports[at].link.Name)
			if at, says = came, 0; came == 0 {
				note += "; by which port the answer came is not known"
				if h.Reply == s {
					looks = h.looks
				}
				looks++
			}
		}
		b.post(addr, answering{Reply: s, origin: origin{b.link.Index, at}, placed: now, looks: looks, proxied: proxied}, says, note)
		if looks == 0 || looks > mostLooksFor { // else the answer to the question of just now may tell
			delete(b.unplaced, addr)
		}
	}
}

// postUnplaced posts an answer of which is not known yet where it came from.
func (b *Bridge) postUnplaced(addr netip.Addr, s probe.Reply) {
	b.post(addr, answering{Reply: s, origin: origin{bridge: b.link.Index}}, 0, "")
}

// post puts an answer on the board; says is the port of the MAC that it speaks
// of, 0 when none is known, and note what else there is to say.
func (b *Bridge) post(addr netip.Addr, h answering, says int, note string) {
	s := census.Sighting{Addr: addr, Bridge: b.cfg.Name, MAC: h.From.String(), Note: note}
	if h.port != 0 {
		s.Port = b.ports[h.port].link.Name
	}
	if h.From != h.Says && note == "" {
		s.Note = fmt.Sprintf("it says that the address is at %s", h.Says)
		switch {
		case says != 0 && says != h.port:
			s.Note += ", which is behind " + b.ports[says].link.Name
		case h.placed.IsZero(): // it may be another's
		case says != 0 || addr.Is4(): // as a bond's or a proxy's may be
			s.Says = h.Says.String()
		}
	}
	b.keepAnswer(addr, h)
	b.answers.see(addr.String(), []census.Sighting{s})
}

// keepAnswer remembers an answer among those by its port, of which the oldest
// gives way.
func (b *Bridge) keepAnswer(addr netip.Addr, h answering) {
	b.leaveShare(addr)
	of := b.shares[h.port]
	if of == nil {
		of = list.New()
		b.shares[h.port] = of
	}
	h.share = of.PushBack(addr)
	b.heard[addr] = h
	if of.Len() > mostAnswers {
		b.dropAnswer(of.Front().Value.(netip.Addr))
	}
}

func (b *Bridge) leaveShare(addr netip.Addr) {
	h := b.heard[addr]
	if h.share == nil {
		return
	}
	of := b.shares[h.port]
	of.Remove(h.share)
	if of.Len() == 0 {
		delete(b.shares, h.port)
	}
}

// A portSearch is what one drain asks the kernel about MACs: once about each,
// and not for long.
type portSearch struct {
	until time.Time
	least int
	found map[probe.MAC]int
}

// search looks for both MACs of an answer; false is that there is no time.
func (b *Bridge) search(p *portSearch, s probe.Reply) bool {
	for _, m := range []probe.MAC{s.From, s.Says} {
		if _, known := p.found[m]; known {
			continue
		}
		if p.least <= 0 && !time.Now().Before(p.until) {
			return false
		}
		p.least--
		p.found[m] = b.behind(m)
	}
	return true
}

// behind is the port that the bridge last saw a MAC behind, by index; 0 when it
// knows of none. The MAC of the host's own end of a port is in the table, too,
// and nobody behind the port has it.
func (b *Bridge) behind(m probe.MAC) int {
	f, err := b.kernel.Forwarding(b.link.Index, b.link.VLAN, m[:])
	if err != nil || f.State&unix.NUD_PERMANENT != 0 || b.ports[f.Index] == nil {
		return 0
	}
	return f.Index
}

func (b *Bridge) dropAnswer(addr netip.Addr) {
	b.leaveShare(addr)
	delete(b.heard, addr)
	delete(b.doubts, addr)
	delete(b.unplaced, addr)
	b.answers.drop(addr.String())
}

// dropAnswersFrom takes answers off the board whose origin went: the port, or
// the whole bridge, and who answered with it. Another sender's later answer,
// which was not placed yet, stands in for it.
func (b *Bridge) dropAnswersFrom(gone func(origin) bool) {
	for addr, h := range b.heard {
		if !gone(h.origin) {
			continue
		}
		next, other := b.unplaced[addr]
		if other && next.From != h.From && h.bridge == b.link.Index {
			b.postUnplaced(addr, next)
			continue
		}
		b.dropAnswer(addr)
	}
}
