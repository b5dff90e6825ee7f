package bridge

import (
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
	// mostInline is how many are listed while everybody waits: the kernel lists
	// about 400 in one step, some 200 µs, and only between two steps can a list be
	// interrupted.
	mostInline = 512
	// mostMACs is how many links of a namespace are asked for their MACs in one
	// reading, beside the far ends of its ports.
	mostMACs = 64

	// inlineRate is how many addresses of a namespace may be listed a second while
	// everybody waits, at some 2 µs each, and inlineBurst at once; a list counts for
	// inlineList more. A guest that adds and removes addresses without end has one
	// listed by each call otherwise.
	inlineRate, inlineBurst, inlineList = 10_000, 8 * mostInline, 16

	inlineTries, inlineWithin   = 10, 2 * time.Millisecond
	outsideTries, outsideWithin = 3, 30 * time.Millisecond
)

// A stock counts the addresses that are known of all namespaces. The Bridge's lock
// guards it.
type stock struct{ known, most int }

// An inside is what is known of the addresses in a namespace that guests may be
// root in. It is never less than what is there: an exact list, and every address
// that the kernel's news told of since. Where addresses come and go faster than
// they can be listed, it is all that any list and any news had since the last exact
// list; and where there are more than mostInside, so many of them.
type inside struct {
	stock   *stock // nil: nothing is known of it yet
	counted int    // of its addresses, in there

	addrs  []rtnl.Address        // of the last exact list, or of the first one
	listed map[rtnl.Address]bool // those; nil is to be made
	more   map[rtnl.Address]bool // beside those: may be gone again
	told   map[rtnl.Address]bool // by news since the last list began, and not among more yet
	later  map[rtnl.Address]bool // by news since Run's list began; nil: none that is worth something is under way

	whole   bool      // there was an exact list, and no news was lost since
	tried   bool      // it was listed while everybody waited, since news was lost
	crowded bool      // it is not to be listed while everybody waits
	full    bool      // there may be more than are known
	unsure  time.Time // since when no list is exact; zero: the last one was

	inline *rate.Limiter // of addresses that are listed while everybody waits; nil: none were yet
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

// tell takes in news of an address that came.
func (in *inside) tell(a rtnl.Address) {
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
	case in.more[a] || in.told[a]:
		return
	case len(in.told) >= in.room():
		in.full = true
		return
	case in.told == nil:
		in.told = make(map[rtnl.Address]bool)
	}
	in.told[a] = true
	in.count()
}

// room is how many addresses may be known of the namespace now. What is known stays.
func (in *inside) room() int {
	return min(mostInside, max(leastInside, in.stock.most-(in.stock.known-in.counted)))
}

// count enters into the stock what is known now.
func (in *inside) count() {
	now := len(in.addrs) + len(in.more) + len(in.told)
	in.stock.known += now - in.counted
	in.counted = now
}

// discount takes it out of the stock: the namespace is of no interest any more.
func (in *inside) discount() {
	if in.stock != nil {
		in.stock.known -= in.counted
		in.counted = 0
	}
}

// isUsedUp reports that the namespace was listed enough while everybody waited.
func (in *inside) isUsedUp() bool { return in.inline != nil && in.inline.Tokens() <= 0 }

// use counts a list that was made while everybody waited.
func (in *inside) use(cost int) {
	if in.inline == nil {
		in.inline = rate.NewLimiter(inlineRate, inlineBurst)
	}
	in.inline.ReserveN(time.Now(), min(cost+inlineList, inlineBurst))
}

// lose notes that news was lost: what is known may lack something.
func (in *inside) lose() { in.whole, in.tried, in.later = false, false, nil }

// fold adds what news told, and returns what is known by that alone.
func (in *inside) fold() (added []rtnl.Address) {
	for a := range in.told {
		if in.add(a) {
			added = append(added, a)
		}
	}
	in.told = nil
	in.count()
	return added
}

// add adds an address that may be gone again, unless there is no room.
func (in *inside) add(a rtnl.Address) bool {
	in.list()
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

// list makes listed.
func (in *inside) list() {
	if in.listed == nil {
		in.listed = make(map[rtnl.Address]bool, len(in.addrs))
		for _, l := range in.addrs {
			in.listed[l] = true
		}
	}
}

// take takes in a list. What came while it was made has been told by now.
func (in *inside) take(got rtnl.AddressList, now time.Time) {
	if most := in.room(); len(got.Addrs) > most && got.Exact {
		got = in.some(got.Addrs, most)
		in.addrs, in.listed, in.more = nil, nil, nil // it is known which of those are gone
	}
	if got.Exact {
		*in = inside{stock: in.stock, counted: in.counted, inline: in.inline,
			addrs: got.Addrs, told: in.told, whole: true, crowded: len(got.Addrs) > mostInline}
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
	in.list()
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

// gap is what a person has to know of a namespace behind a port that cannot be
// listed; nothing where it can.
func (in *inside) gap(port string) (g Gap, is bool) {
	g = Gap{Kind: PortUnreadable, Link: port, Since: in.unsure,
		Next: "bridge link show dev " + port}
	switch {
	case in.unsure.IsZero():
		return g, false
	case in.full && len(in.addrs)+len(in.more) < mostInside:
		g.Detail = fmt.Sprintf("the namespace behind port %s has more addresses than the %d that are read of it, because other namespaces have so many; of the others only a probe and the neighbour table tell", port, len(in.addrs)+len(in.more))
		g.Next = "look at what runs behind the ports with most addresses, and remove what is hostile"
	case in.full:
		g.Detail = fmt.Sprintf("the namespace behind port %s has more addresses than the %d that are read of one; of the others only a probe and the neighbour table tell", port, mostInside)
	case !in.whole:
		g.Detail = fmt.Sprintf("the addresses in the namespace behind port %s change faster than they can be listed; one of them may have been missed", port)
	default:
		g.Detail = fmt.Sprintf("the addresses in the namespace behind port %s change faster than they can be listed; those that are gone still count", port)
	}
	return g, true
}
