package storm_test

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
)

// A room says how many addresses can have been taken at a time, at the most:
// what is not known counts as taken.
type room struct {
	taken        map[netip.Addr][]span // in the order in which they begin; none ends before an earlier one
	begun, ended []moment              // of the calls that may have had an address besides; each sorted
}

// A span is a time, both ends included.
type span struct{ from, to moment }

// newRoom has an address taken from when its lease can have been made to the
// end of its least rest. That began before the answer of a list that was asked
// after the lease was shown, and has the address neither under that lease nor
// under way to its rest. A call that made no lease that is known may have been
// offered an address until it was answered, and one without an answer until
// ipamd was dead; what it took may then rest.
func newRoom(calls []call, r rest) *room {
	out := &room{taken: make(map[netip.Addr][]span)}
	lists := slices.DeleteFunc(slices.Clone(calls), func(c call) bool { return !c.lists() })
	slices.SortFunc(lists, func(a, b call) int { return cmp.Compare(a.Asked, b.Asked) })
	for _, t := range holdings(calls) {
		s := span{t.asked, never}
		first, _ := slices.BinarySearchFunc(lists, t.from, func(l call, at moment) int { return cmp.Compare(l.Asked, at) })
		for _, l := range lists[first:] {
			if l.Open[t.addr].Lease != t.lease && !slices.Contains(l.Ending, t.addr) {
				s.to = l.Answered + r.least
				break
			}
		}
		out.taken[t.addr] = append(out.taken[t.addr], s)
	}
	for _, all := range out.taken {
		slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.from, b.from) })
		for i := range all[1:] {
			all[i+1].to = max(all[i+1].to, all[i].to)
		}
	}
	for _, c := range calls {
		if c.besides() {
			out.begun = append(out.begun, c.Asked)
			out.ended = append(out.ended, c.releasedBy(r))
		}
	}
	slices.Sort(out.begun)
	slices.Sort(out.ended)
	return out
}

// besides says that no known lease stands for the call.
func (c call) besides() bool { return c.Verb == allocating && (!c.done() || c.Existing) }

// releasedBy is by when such a call has nothing any more.
func (c call) releasedBy(r rest) moment {
	switch {
	case c.lost() && c.over() == never:
		return never
	case c.lost():
		return c.over() + r.least
	case c.Refused != "" && c.Refused != api.PoolExhausted:
		return c.Answered + r.least // what it was refused for may have come last
	}
	return c.Answered
}

// most is how many addresses can have been taken at any moment of a call, its
// own offer apart.
func (o *room) most(c call) int {
	begun, _ := slices.BinarySearch(o.begun, c.Answered+1)
	ended, _ := slices.BinarySearch(o.ended, c.Asked)
	n := begun - ended
	if c.besides() {
		n--
	}
	for _, all := range o.taken {
		// Of those that begin in time, the last is the last to end.
		later, _ := slices.BinarySearchFunc(all, c.Answered+1, func(s span, at moment) int { return cmp.Compare(s.from, at) })
		if later > 0 && all[later-1].to >= c.Asked {
			n++
		}
	}
	return n
}

// cramped names the calls that were refused because a pool of that size is exhausted while
// it had room for them, and counts the answers that would have been a fault, had
// they been that one. It judges none while every address may rest anew.
func cramped(calls []call, r rest, anew []span, size int) (faults []string, checked int) {
	o := newRoom(calls, r)
	for _, c := range calls {
		rests := slices.ContainsFunc(anew, func(s span) bool {
			return s.from <= c.Answered && (s.to == never || c.Asked <= s.to+r.least)
		})
		switch {
		case c.Verb != allocating || c.lost() || rests:
		case c.Refused == api.PoolExhausted:
			if n := o.most(c); n < size {
				faults = append(faults, fmt.Sprintf("no room: %s asks at %v and gets %s, and %d of %d addresses can have been taken",
					c.UID, c.Asked, c.Refused, n, size))
			}
		case c.Refused == "" && !c.Existing && o.most(c) < size:
			checked++
		}
	}
	return faults, checked
}

// TestLinearKnowsWhenThereIsRoom has c refused in a pool of one address, which
// was a's.
func TestLinearKnowsWhenThereIsRoom(t *testing.T) {
	const ms = time.Millisecond
	lost := func(over moment) call {
		return call{Verb: allocating, UID: "b", Asked: 20 * ms, Answered: never, Left: 30 * ms, Over: over}
	}
	for name, c := range map[string]struct {
		spoil func([]call) []call
		want  string // how its words begin; "" for none
		anew  []span
	}{
		"long free":                                        {func(h []call) []call { return h }, "no room", nil},
		"a start has it rest anew":                         {func(h []call) []call { return h }, "", []span{{200 * ms, 300 * ms}}},
		"a start had it rest anew":                         {func(h []call) []call { return h }, "no room", []span{{20 * ms, 199 * ms}}},
		"a start behind it":                                {func(h []call) []call { return h }, "no room", []span{{411 * ms, 500 * ms}}},
		"at its least rest":                                {func(h []call) []call { h[4].Asked = 215 * ms; return h }, "", nil},
		"after its least rest":                             {func(h []call) []call { h[4].Asked = 216 * ms; return h }, "no room", nil},
		"no call saw the end of the removal":               {func(h []call) []call { return slices.Delete(h, 3, 4) }, "", nil},
		"a list that was asked before the lease was shown": {func(h []call) []call { h[3].Asked, h[3].Answered = 2*ms, 3*ms; return h }, "", nil},
		"a list that still has it":                         {func(h []call) []call { h[3].Open = map[netip.Addr]ownership{two: {"A", "a", true}}; return h }, "", nil},
		"a list that has another's lease there": {func(h []call) []call {
			h[3].Open = map[netip.Addr]ownership{two: {"B", "b", false}}
			return h
		}, "", nil},
		"a list that has another's lease there, and one that has none": {func(h []call) []call {
			h[3].Open = map[netip.Addr]ownership{two: {"B", "b", false}}
			return append(h, call{Verb: listingAll, Asked: 16 * ms, Answered: 17 * ms})
		}, "no room", nil},
		"a list that has it on its way":            {func(h []call) []call { h[3].Ending = []netip.Addr{two}; return h }, "", nil},
		"a list that was lost":                     {func(h []call) []call { h[3].Answered = never; return h }, "", nil},
		"a list that was refused":                  {func(h []call) []call { h[3].Refused = api.NotReady; return h }, "", nil},
		"never released, and the list has lost it": {func(h []call) []call { return slices.Delete(h, 2, 3) }, "no room", nil},
		"no sandbox ever had it":                   {func(h []call) []call { return h[4:] }, "no room", nil},
		"another call was given it": {func(h []call) []call {
			return append(h, call{Verb: allocating, UID: "b", Asked: 405 * ms, Answered: 500 * ms, Lease: "B", Addr: two})
		}, "", nil},
		"another call was given it later": {func(h []call) []call {
			return append(h, call{Verb: allocating, UID: "b", Asked: 411 * ms, Answered: 500 * ms, Lease: "B", Addr: two})
		}, "no room", nil},
		"another call without an answer":                      {func(h []call) []call { return append(h, lost(0)) }, "", nil},
		"another call without an answer, which died":          {func(h []call) []call { return append(h, lost(100*ms)) }, "no room", nil},
		"another call without an answer, which died just now": {func(h []call) []call { return append(h, lost(201*ms)) }, "", nil},
		"another call that was refused at the same time": {func(h []call) []call {
			return append(h, call{Verb: allocating, UID: "b", Asked: 390 * ms, Answered: 401 * ms, Refused: api.PoolExhausted})
		}, "", nil},
		"another call that was refused before": {func(h []call) []call {
			return append(h, call{Verb: allocating, UID: "b", Asked: 390 * ms, Answered: 399 * ms, Refused: api.PoolExhausted})
		}, "no room", nil},
		"another call that was refused for a reason of its own": {func(h []call) []call {
			return append(h, call{Verb: allocating, UID: "b", Asked: 390 * ms, Answered: 399 * ms, Refused: api.NotReady})
		}, "", nil},
		"another call that got its lease again": {func(h []call) []call {
			return append(h, call{Verb: allocating, UID: "a", Asked: 390 * ms, Answered: 401 * ms, Lease: "A", Addr: two, Existing: true})
		}, "", nil},
		"refused for another reason": {func(h []call) []call { h[4].Refused = api.NotReady; return h }, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			faults, _ := cramped(c.spoil([]call{
				0: {Verb: allocating, UID: "a", Asked: 1 * ms, Answered: 5 * ms, Lease: "A", Addr: two},
				1: {Verb: binding, UID: "a", Asked: 6 * ms, Answered: 7 * ms, Lease: "A", Addr: two},
				2: {Verb: releasing, UID: "a", Asked: 10 * ms, Answered: 11 * ms, Lease: "A", Addr: two},
				3: {Verb: listingAll, Asked: 12 * ms, Answered: 15 * ms},
				4: {Verb: allocating, UID: "c", Asked: 400 * ms, Answered: 410 * ms, Refused: api.PoolExhausted},
			}), tightRest, c.anew, 1)
			expect(t, faults, c.want)
		})
	}
	if faults, checked := cramped(sound(), tightRest, nil, 2); checked != 2 || len(faults) > 0 {
		t.Errorf("in a pool of two addresses %d answers count, want 2; %q", checked, faults)
	}
	if faults, checked := cramped(sound(), tightRest, nil, 1); checked != 0 || len(faults) > 0 {
		t.Errorf("in a pool of one address %d answers count, want none; %q", checked, faults)
	}
}
