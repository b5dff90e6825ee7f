package bridge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ipamd/ipamd/bridge/rtnl"
	"github.com/ipamd/ipamd/census"
)

// A guest decides what is in its namespace. One guest's thousands
// of addresses, and loops that add and remove them, must cost nobody else an
// answer: while everybody waits a namespace is listed for inlineWithin, and what
// cannot be listed by then is listed by Run, on a socket of its own. Until that is
// exact, every address that a list or the news ever showed counts as there.

const (
	// crowdsEvery is the least time between two rounds of Run through crowded
	// namespaces; nine tenths of its time are for everything else.
	crowdsEvery = 20 * time.Millisecond
	crowdsShare = 9
	// crowdsInline is how long they are listed while everybody waits, all together,
	// after news was lost.
	crowdsInline = 5 * time.Millisecond
)

// An interior is an inside with how it is posted.
type interior struct {
	*inside
	scope string
	see   func(rtnl.Address) census.Sighting
}

// moreScope names an address that may be gone again: a scope of its own is replaced
// without the thousand others.
func (i interior) moreScope(a rtnl.Address) string {
	return fmt.Sprintf("%s %v@%d", i.scope, a.Prefix, a.Index)
}

// interior finds what is known of a namespace; none where it is not looked at.
func (b *Bridge) interior(id int) interior {
	if s := b.spaces[id]; s != nil {
		return interior{&s.inside, s.scope(), s.sighting(b.cfg.Name)}
	}
	if n := b.nests[id]; n != nil && !n.ended && id != rtnl.NoNetns {
		return interior{n.inside, n.scope(), func(a rtnl.Address) census.Sighting { return n.sighting(a, b.cfg.Name) }}
	}
	return interior{}
}

// insideOf is what is known of a namespace; nil where it is not looked at.
func (b *Bridge) insideOf(id int) *inside {
	if s := b.spaces[id]; s != nil {
		return &s.inside
	}
	if n := b.nests[id]; n != nil && !n.ended && id != rtnl.NoNetns {
		return n.inside
	}
	return nil
}

// leaveCrowd reports that a namespace is not to be listed while everybody waits. What
// news told of it is on the board then, and Run lists it.
func (b *Bridge) leaveCrowd(id int) bool {
	if in := b.insideOf(id); !in.crowded && !in.isUsedUp() || !in.whole && !in.tried {
		return false
	}
	b.foldNews(b.interior(id))
	b.crowd(id)
	return true
}

// readInsides lists every namespace after news was lost. The crowded ones come last,
// for crowdsInline, and Run lists the others: what news was lost of them is not known
// until then, and only guests in there could be hit by it.
func (b *Bridge) readInsides(ctx context.Context) error {
	var crowded []int
	read := func(id int) error {
		b.readSpace(id)
		b.readNest(id)
		return ctx.Err()
	}
	for _, id := range slices.AppendSeq(slices.Collect(maps.Keys(b.spaces)), maps.Keys(b.nests)) {
		in := b.insideOf(id)
		switch {
		case in == nil || in.tried:
		case in.crowded:
			crowded = append(crowded, id)
		default:
			if err := read(id); err != nil {
				return err
			}
		}
	}
	until := time.Now().Add(crowdsInline)
	for _, id := range crowded {
		if in := b.insideOf(id); in != nil && time.Now().After(until) {
			in.tried = true
		}
		if err := read(id); err != nil {
			return err
		}
	}
	return nil
}

// crowd has Run list a namespace.
func (b *Bridge) crowd(id int) {
	if !b.crowds[id] {
		b.crowds[id] = true
		b.alarm.ring()
	}
}

// foldNews posts the addresses that news told of.
func (b *Bridge) foldNews(in interior) {
	full := in.full
	for _, a := range in.fold() {
		b.netns.see(in.moreScope(a), []census.Sighting{in.see(a)})
		b.noteMoves(nil, []rtnl.Address{a})
	}
	b.gapsMoved = b.gapsMoved || full != in.full
}

// listInside lists a namespace while everybody waits.
func (b *Bridge) listInside(id int, in *inside) (rtnl.AddressList, error) {
	most := mostInside
	if in.whole {
		most = mostInline // what is known is enough
	}
	in.tried = true
	in.fold() // before the list: posted with it
	got, err := b.kernel.AddressesOf(id, most, inlineTries, inlineWithin)
	in.use(got.Cost)
	if errors.Is(err, rtnl.ErrCutShort) {
		got.Full, err = most == mostInside, nil
	}
	return got, err
}

// takeInside takes in a list, and posts what is known by it.
func (b *Bridge) takeInside(id int, got rtnl.AddressList) {
	in := b.interior(id)
	before, more := in.all(), in.more
	in.take(got, time.Now())
	b.gapsMoved = true
	if s := b.spaces[id]; s != nil {
		b.readMACs(s)
		in = b.interior(id)
	}
	b.noteMoves(before, in.all())
	seen := make([]census.Sighting, 0, len(in.addrs))
	for _, a := range in.addrs {
		seen = append(seen, in.see(a))
	}
	b.netns.see(in.scope, seen)
	for a := range in.more {
		b.netns.see(in.moreScope(a), []census.Sighting{in.see(a)})
	}
	for a := range more {
		if !in.more[a] {
			b.netns.drop(in.moreScope(a))
		}
	}
	if !in.unsure.IsZero() || len(in.more) > 0 {
		b.crowd(id)
	}
}

// dropInside takes what is known of a namespace off the board.
func (b *Bridge) dropInside(in interior) {
	in.discount()
	b.netns.drop(in.scope)
	for a := range in.more {
		b.netns.drop(in.moreScope(a))
	}
}

// readCrowd lists a namespace without the lock.
func (b *Bridge) readCrowd(ctx context.Context, id int) error {
	b.crowding.Lock()
	defer b.crowding.Unlock()
	var in interior
	err := b.locked(ctx, func() error {
		delete(b.crowds, id)
		if in = b.interior(id); in.inside != nil {
			b.foldNews(in)
			in.later = make(map[rtnl.Address]bool)
		}
		return nil
	})
	if err != nil || in.inside == nil {
		return err
	}
	var got rtnl.AddressList
	err = b.outside.Ask(ctx, func(k *rtnl.Socket) (err error) {
		got, err = k.AddressesOf(id, mostInside, outsideTries, outsideWithin)
		return err
	})
	return b.locked(ctx, func() error {
		b.drain()
		later := in.later
		in.later = nil
		switch {
		case b.insideOf(id) != in.inside:
		case err != nil && !errors.Is(err, rtnl.ErrCutShort):
			in.tried, in.whole = false, false // to be asked what is wrong
			b.spacesAgain[id] = b.spaces[id] != nil
			b.nestsAgain[id] = b.spaces[id] == nil
		case later == nil: // a call has listed it since, or news was lost
			b.crowd(id)
		default:
			in.told = later // calls have taken in some of it
			b.takeInside(id, got)
			b.showGaps()
		}
		return nil
	})
}

// crowdedSpaces lists the namespaces that Run or a whole reading has to list: those that
// wait for it, or all.
func (b *Bridge) crowdedSpaces(all bool) (ids []int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id := range b.crowds {
		if b.insideOf(id) == nil {
			delete(b.crowds, id)
			continue
		}
		ids = append(ids, id)
	}
	if !all {
		return ids
	}
	add := func(id int, in *inside) {
		if in.crowded && !b.crowds[id] {
			ids = append(ids, id)
		}
	}
	for id, s := range b.spaces {
		add(id, &s.inside)
	}
	for id, n := range b.nests {
		if b.spaces[id] == nil {
			add(id, n.inside)
		}
	}
	return ids
}

// readCrowds is Run's part of the crowded namespaces: those that wait, in no order,
// for a tenth of the time.
func (b *Bridge) readCrowds(ctx context.Context, t *timetable) error {
	if time.Now().Before(t.crowds) {
		return nil
	}
	var err error
	began := time.Now()
	for _, id := range b.crowdedSpaces(false) {
		if err = b.readCrowd(ctx, id); err != nil || time.Since(began) > outsideWithin {
			break
		}
	}
	t.crowds = time.Now().Add(max(crowdsEvery, crowdsShare*time.Since(began)))
	return err
}
