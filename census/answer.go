package census

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
)

// sightings returns those of an address that count, see [Board.counts].
func (b *Board) sightings(addr netip.Addr, entries []entry) []Sighting {
	if len(entries) == 0 {
		return nil
	}
	out := make([]Sighting, 0, len(entries))
	for _, e := range entries {
		if b.counts(e.from, addr) {
			out = append(out, e.seen)
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// counts reports whether a source's sighting of an address says something. One from a bridge
// that is gone counts for the addresses of that bridge only: no report would ever end it for
// others.
func (b *Board) counts(from source, addr netip.Addr) bool {
	if b.parts == 0 || from.bridge == "" || b.concerns(from, addr) {
		return true
	}
	return !errors.Is(b.records[from].err, ErrNoBridge)
}

// concerns reports whether a source has to answer about an address: it looks at the bridge
// that the address is on, or at all. Of an address that is on no bridge, each has to.
func (b *Board) concerns(from source, addr netip.Addr) bool {
	if b.parts == 0 || from.bridge == "" {
		return true
	}
	on := b.place(addr)
	return on == "" || on == from.bridge
}

// About returns all that is known about one address.
func (b *Board) About(addr netip.Addr) Answer {
	b.mu.RLock()
	defer b.mu.RUnlock()
	a := b.answer(addr)
	a.Seen = b.sightings(addr, b.byAddr[addr])
	return a
}

// answer says who has to answer about an address, and who can; the caller holds mu.
func (b *Board) answer(addr netip.Addr) Answer {
	a := Answer{Addr: addr, Silent: b.silent(func(s source) bool { return b.concerns(s, addr) })}
	for _, s := range b.order {
		if b.records[s].err == nil && b.concerns(s, addr) && !slices.Contains(a.Answered, s.witness) && !a.silent(s.witness) {
			a.Answered = append(a.Answered, s.witness)
		}
	}
	return a
}

// silent reports whether a witness could not answer, on whichever bridge.
func (a Answer) silent(w Witness) bool {
	return slices.ContainsFunc(a.Silent, func(s Silence) bool { return s.Witness == w })
}

// By returns all that one witness sees, in no order. It copies that, and
// nothing of the others'.
func (b *Board) By(w Witness) []Sighting {
	b.mu.RLock()
	defer b.mu.RUnlock()
	var out []Sighting
	for _, s := range b.order {
		if s.witness == w {
			for _, seen := range b.records[s].scopes {
				out = append(out, seen...)
			}
		}
	}
	return out
}

// Silent returns the witnesses that could not answer, on each bridge.
func (b *Board) Silent() []Silence {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.silent(func(source) bool { return true })
}

func (b *Board) silent(asked func(source) bool) []Silence {
	var out []Silence
	for _, s := range b.order {
		if r := b.records[s]; r.err != nil && asked(s) {
			out = append(out, Silence{Witness: s.witness, Bridge: s.bridge, Reason: r.err.Error(), Since: r.since})
		}
	}
	return out
}

// Census returns everything on the board. It copies, so it is for passes and
// people, not for the hot path.
func (b *Board) Census() Census {
	b.mu.RLock()
	defer b.mu.RUnlock()
	c := Census{Taken: b.now(), Seen: make(map[netip.Addr][]Sighting, len(b.byAddr)), Silent: b.silent(func(source) bool { return true }), place: b.place}
	for addr, entries := range b.byAddr {
		if seen := b.sightings(addr, entries); len(seen) > 0 {
			c.Seen[addr] = seen
		}
	}
	return c
}

// LocateBy says on which bridge an address is, "" where that is not known: its witnesses have to
// answer about it, and those of other bridges need not. It is called with the board's lock
// held, so it takes none that is held while the board is asked.
func (b *Board) LocateBy(on func(addr netip.Addr) string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.place = on
	b.changed.Send()
}

// A Part is where the witnesses of one bridge report.
type Part struct {
	board  *Board
	bridge string
}

// Part returns the part of a bridge, on which the kernel's witnesses are expected.
func (b *Board) Part(bridge string) *Part {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.parts++
	for _, w := range []Witness{Netns, Host, Neighbour} {
		b.record(source{w, bridge}).err = notReported{}
	}
	return &Part{b, bridge}
}

// Replace is [Board.Replace] of what is on the bridge.
func (p *Part) Replace(w Witness, scopes map[string][]Sighting, incomplete error) {
	p.board.replace(source{w, p.bridge}, scopes, incomplete)
}

// ReplaceScope is [Board.ReplaceScope] of what is on the bridge.
func (p *Part) ReplaceScope(w Witness, scope string, seen []Sighting) {
	p.board.replaceScope(source{w, p.bridge}, scope, seen)
}

// Silence is [Board.Silence] of what is on the bridge.
func (p *Part) Silence(w Witness, reason error) { p.board.silence(source{w, p.bridge}, reason) }

// Leave takes the part off the board, with all that was seen there: no owner has an address
// on that bridge any more. Nothing may report by it afterwards.
func (p *Part) Leave() {
	b := p.board
	b.mu.Lock()
	defer b.mu.Unlock()
	for from, r := range b.records {
		if from.bridge != p.bridge {
			continue
		}
		for _, scope := range slices.Collect(maps.Keys(r.scopes)) {
			b.setScope(from, r, scope, nil, false)
		}
		delete(b.records, from)
	}
	b.order = slices.DeleteFunc(b.order, func(s source) bool { return s.bridge == p.bridge })
	b.parts--
	b.changed.Send()
}
