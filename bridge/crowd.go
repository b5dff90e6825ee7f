package bridge

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/ipamd/ipamd/bridge/rtnl"
	"github.com/ipamd/ipamd/census"
)

// A guest decides what is in its namespace. One guest's thousands
// of addresses, and loops that add and remove them, must cost no other an
// answer: with the lock held a namespace is listed for inlineWithin, and what
// cannot be listed by then is listed by Run, on a socket of its own. Until that is
// exact, every address that a list or the news ever showed counts as there.

const (
	// crowdsEvery is the least time between two rounds of Run through crowded
	// namespaces; nine tenths of its time are for everything else.
	crowdsEvery = 20 * time.Millisecond
	crowdsShare = 9
	// crowdsInline is how long they are listed with the lock held, all together,
	// after news was lost.
	crowdsInline = 5 * time.Millisecond
)

// leaveCrowd reports that a namespace is not to be listed with the lock held. What
// was in the news of it is on the board then, and Run lists it.
func (s *namespaces) leaveCrowd(id int) bool {
	in := s.insideOf(id)
	if !in.crowded && !in.isUsedUp() || !in.whole && !in.tried {
		return false
	}
	s.foldNews(in)
	s.crowd(id)
	return true
}

// crowd has Run list a namespace.
func (s *namespaces) crowd(id int) {
	if !s.crowds[id] {
		s.crowds[id] = true
		s.wake()
	}
}

// foldNews posts the addresses that were in the news.
func (s *namespaces) foldNews(in *inside) {
	full, sighting := in.full, in.sighting()
	for _, a := range in.fold() {
		s.see(in.moreScope(a), []census.Sighting{sighting(a)})
		s.notice(a.Prefix.Addr())
	}
	s.gapsMoved = s.gapsMoved || full != in.full
}

// take takes in a list, and posts what is known by it.
func (s *namespaces) take(w wire, id int, got rtnl.AddressList) {
	in := s.insideOf(id)
	moved, more := make(map[netip.Addr]bool), in.more
	for _, a := range in.all() {
		moved[a.Prefix.Addr()] = true
	}
	in.take(got, time.Now())
	s.gapsMoved = true
	if sp := s.spaces[id]; sp != nil {
		sp.readMACs(w.Socket)
		for _, p := range sp.ports {
			if in.unsure.IsZero() {
				p.unsure = time.Time{}
			}
		}
	}
	for _, a := range in.all() {
		moved[a.Prefix.Addr()] = !moved[a.Prefix.Addr()]
	}
	for addr, did := range moved {
		if did {
			s.notice(addr)
		}
	}
	sighting := in.sighting()
	seen := make([]census.Sighting, 0, len(in.addrs))
	for _, a := range in.addrs {
		seen = append(seen, sighting(a))
	}
	s.see(in.scope, seen)
	for a := range in.more {
		s.see(in.moreScope(a), []census.Sighting{sighting(a)})
	}
	for a := range more {
		if !in.more[a] {
			s.drop(in.moreScope(a))
		}
	}
	if !in.unsure.IsZero() || len(in.more) > 0 {
		s.crowd(id)
	}
}

// dropInside takes what is known of a namespace off the board.
func (s *namespaces) dropInside(in *inside) {
	in.stock.known -= in.counted
	in.counted = 0
	s.drop(in.scope)
	for a := range in.more {
		s.drop(in.moreScope(a))
	}
}

// crowded lists the ids of the namespaces that Run or a whole reading has to list: those
// that wait for it, or all.
func (s *namespaces) crowded(all bool) (ids []int) {
	for id := range s.crowds {
		if s.insideOf(id) == nil {
			delete(s.crowds, id)
			continue
		}
		ids = append(ids, id)
	}
	if !all {
		return ids
	}
	for _, id := range s.ids() {
		if in := s.insideOf(id); in != nil && in.crowded && !s.crowds[id] {
			ids = append(ids, id)
		}
	}
	return ids
}

// readCrowd lists a namespace without the lock.
func (b *Bridge) readCrowd(ctx context.Context, id int) error {
	b.crowding.Lock()
	defer b.crowding.Unlock()
	var in *inside
	err := b.locked(ctx, func() error {
		delete(b.netns.crowds, id)
		if in = b.netns.insideOf(id); in != nil {
			b.netns.foldNews(in)
			in.later = make(map[rtnl.Address]bool)
		}
		return nil
	})
	if err != nil || in == nil {
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
		case b.netns.insideOf(id) != in:
		case err != nil && !errors.Is(err, rtnl.ErrCutShort):
			in.tried, in.whole = false, false // listed once more with the lock held, to see what is wrong
			b.netns.again[id] = true
		case later == nil: // a call has listed it since, or news was lost
			b.netns.crowd(id)
		default:
			in.news = later // calls have taken in some of it
			b.netns.take(b.wire(), id, got)
			b.netns.showGaps()
		}
		return nil
	})
}
