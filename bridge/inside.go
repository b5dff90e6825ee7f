package bridge

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/ipamd/ipamd/bridge/rtnl"
)

const (
	// mostInside bounds the addresses that are known of one namespace. A guest
	// decides how many there are, and each is on the board.
	mostInside = 4096
	// mostKnown bounds the addresses that are known of all namespaces together, at
	// some 1.5 KB each. A namespace gets what the others have left, and leastInside in
	// any case: one with few addresses is known whole, whatever the others have.
	mostKnown   = 1 << 16
	leastInside = 64
	// mostInline is how many are listed with the lock held: the kernel lists
	// about 400 in one step, some 200 µs, and only between two steps can a list be
	// interrupted.
	mostInline = 512
	// mostMACs is how many links of a namespace have their MACs looked up in one
	// reading, beside the far ends of its ports.
	mostMACs = 64

	// inlineRate is how many addresses of a namespace may be listed a second with
	// the lock held, at some 2 µs each, and inlineBurst at once; a list counts for
	// inlineList more. A guest that adds and removes addresses without end has one
	// listed by each call otherwise.
	inlineRate, inlineBurst, inlineList = 10_000, 8 * mostInline, 16

	inlineTries, inlineWithin   = 10, 2 * time.Millisecond
	outsideTries, outsideWithin = 3, 30 * time.Millisecond
)

// A stock counts the addresses that are known of all namespaces.
type stock struct{ known, most int }

// An inside is what is known of the addresses in a namespace that guests may be
// root in. It is never less than what is there: an exact list, and every address
// that the kernel's news was about since. Where addresses come and go faster than
// they can be listed, it is all that any list and any news had since the last exact
// list; and where there are more than mostInside, so many of them.
type inside struct {
	stock    *stock
	counted  int    // of its addresses, in there
	scope    string // by which they are posted
	sighting func() sightingOf
	inline   *rate.Limiter // of addresses that are listed with the lock held; nil: none were yet

	addrs  []rtnl.Address        // of the last exact list, or of the first one
	listed map[rtnl.Address]bool // those; nil is to be made
	more   map[rtnl.Address]bool // beside those: may be gone again
	news   map[rtnl.Address]bool // that came since the last list began, and are not among more yet
	later  map[rtnl.Address]bool // that came since Run's list began; nil: none that is worth something is under way

	whole   bool      // there was an exact list, and no news was lost since
	tried   bool      // it was listed with the lock held, since news was lost
	crowded bool      // it is not to be listed with the lock held
	full    bool      // there may be more than are known
	unsure  time.Time // since when no list is exact; zero: the last one was
}

// moreScope names an address that may be gone again: a scope of its own is replaced
// without the thousand others.
func (in *inside) moreScope(a rtnl.Address) string {
	return fmt.Sprintf("%s %v@%d", in.scope, a.Prefix, a.Index)
}

// list makes a list with the lock held.
func (in *inside) list(k *rtnl.Socket, id int) (rtnl.AddressList, error) {
	most := mostInside
	if in.whole {
		most = mostInline // what is known is enough
	}
	in.tried = true
	in.fold() // before the list: posted with it
	got, err := k.AddressesOf(id, most, inlineTries, inlineWithin)
	if in.inline == nil {
		in.inline = rate.NewLimiter(inlineRate, inlineBurst)
	}
	in.inline.ReserveN(time.Now(), min(got.Cost+inlineList, inlineBurst))
	if errors.Is(err, rtnl.ErrCutShort) {
		got.Full, err = most == mostInside, nil
	}
	return got, err
}

// knows reports whether an address is among what is known.
func (in *inside) knows(addr netip.Addr) bool {
	for _, a := range in.addrs {
		if a.Prefix.Addr() == addr {
			return true
		}
	}
	for a := range in.more {
		if a.Prefix.Addr() == addr {
			return true
		}
	}
	return false
}

// receive takes in news of an address that came.
func (in *inside) receive(a rtnl.Address) {
	if !rtnl.Assignable(a.Prefix.Addr()) {
		return
	}
	if in.later != nil {
		in.later[a] = true
		if len(in.later) > mostInside {
			in.later = nil
		}
	}
	switch {
	case in.more[a] || in.news[a]:
		return
	case len(in.news) >= in.room():
		in.full = true
		return
	case in.news == nil:
		in.news = make(map[rtnl.Address]bool)
	}
	in.news[a] = true
	in.count()
}

// room is how many addresses may be known of the namespace now. What is known stays.
func (in *inside) room() int {
	return min(mostInside, max(leastInside, in.stock.most-(in.stock.known-in.counted)))
}

// count enters into the stock what is known now.
func (in *inside) count() {
	now := len(in.addrs) + len(in.more) + len(in.news)
	in.stock.known += now - in.counted
	in.counted = now
}

// isUsedUp reports that the namespace was listed enough with the lock held.
func (in *inside) isUsedUp() bool { return in.inline != nil && in.inline.Tokens() <= 0 }

// lose notes that news was lost: what is known may lack something.
func (in *inside) lose() { in.whole, in.tried, in.later = false, false, nil }

// fold adds what was in the news, and returns what is known by that alone.
func (in *inside) fold() (added []rtnl.Address) {
	for a := range in.news {
		if in.add(a) {
			added = append(added, a)
		}
	}
	in.news = nil
	in.count()
	return added
}

// add adds an address that may be gone again, unless there is no room.
func (in *inside) add(a rtnl.Address) bool {
	in.index()
	switch {
	case in.listed[a] || in.more[a]:
		return false
	case len(in.addrs)+len(in.more) >= in.room():
		in.full = true
		return false
	case in.more == nil:
		in.more = make(map[rtnl.Address]bool)
	}
	in.more[a] = true
	return true
}

// index makes listed.
func (in *inside) index() {
	if in.listed == nil {
		in.listed = make(map[rtnl.Address]bool, len(in.addrs))
		for _, l := range in.addrs {
			in.listed[l] = true
		}
	}
}

// take takes in a list. What came while it was made has been received by now.
func (in *inside) take(got rtnl.AddressList, now time.Time) {
	if most := in.room(); len(got.Addrs) > most && got.Exact {
		got = in.some(got.Addrs, most)
		in.addrs, in.listed, in.more = nil, nil, nil // it is known which of those are gone
	}
	if got.Exact {
		*in = inside{stock: in.stock, counted: in.counted, scope: in.scope, sighting: in.sighting, inline: in.inline,
			addrs: got.Addrs, news: in.news, whole: true, crowded: len(got.Addrs) > mostInline}
		in.fold()
		return
	}
	if in.unsure.IsZero() {
		in.unsure = now
	}
	in.crowded, in.full = true, in.full || got.Full
	if len(in.addrs)+len(in.more) == 0 {
		in.addrs, in.listed = got.Addrs[:min(len(got.Addrs), in.room())], nil
		in.full = in.full || len(in.addrs) < len(got.Addrs)
	}
	for _, a := range got.Addrs {
		in.add(a)
	}
	in.fold()
}

// some is what is taken of an exact list for which there is no room: those that are
// known come first.
func (in *inside) some(all []rtnl.Address, most int) rtnl.AddressList {
	in.index()
	var known, others []rtnl.Address
	for _, a := range all {
		if in.listed[a] || in.more[a] {
			known = append(known, a)
		} else {
			others = append(others, a)
		}
	}
	return rtnl.AddressList{Addrs: append(known, others...)[:most], Full: true}
}

// all are the addresses that are known.
func (in *inside) all() []rtnl.Address {
	return slices.AppendSeq(slices.Clone(in.addrs), maps.Keys(in.more))
}
