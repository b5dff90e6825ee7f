package storm_test

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// A verb is what a call asks for.
type verb string

const (
	allocating verb = "allocate"
	binding    verb = "bind"
	releasing  verb = "release"
	listingAll verb = "list"
)

// A call is one try of a client, and what it was answered. Refusals that say
// that nothing was done are not written down.
type call struct {
	Client          int
	Verb            verb
	UID             string
	Asked, Answered moment // answered never: nobody knows what became of it
	Lease           string
	Addr            netip.Addr
	Existing, Early bool
	Gone            bool                     `json:",omitempty"` // a bind or a release: the lease is not its owner's any more
	Open            map[netip.Addr]ownership `json:",omitempty"` // a list: who has what
}

// An ownership is one open lease of a list.
type ownership struct{ Lease, UID string }

// A rest is how long an address that was bound, or that was given before it had
// rested, waits for its next owner.
type rest struct {
	cooldown, least time.Duration
}

func (r rest) of(early bool) time.Duration {
	if early {
		return r.least
	}
	return r.cooldown
}

// unseen stands for a lease that was made by a call without an answer.
const unseen = "?"

// A slot is the state of one address, or of one sandbox: both have one owner,
// or none, and the same calls move both. That makes a history of thousands of
// calls one that can be judged: each address and each sandbox by itself.
type slot struct {
	uid, lease  string
	addr        netip.Addr
	held, bound bool
	cut         bool   // it was given before it had rested; false where nobody knows
	before      string // while nobody holds it: whose lease was the last; "" when no rest is due
	let         moment // when the call that did so was asked
}

// step says whether a call can have had its answer in this state, and what the
// state is then. A call without an answer did what it could, or nothing: it may
// come after all others.
func (r rest) step(s slot, c call) (bool, slot) {
	mine := s.held && s.uid == c.UID && (s.lease == c.Lease && s.addr == c.Addr || s.lease == unseen)
	switch c.Verb {
	case allocating:
		switch {
		case c.Answered == never:
			if !s.held {
				s = slot{uid: c.UID, lease: unseen, held: true}
			}
			return true, s
		case c.Existing:
			s.lease, s.addr = c.Lease, c.Addr
			return mine, s
		default:
			free := !s.held && (s.before == "" || s.before == c.UID || c.Answered-s.let >= r.of(c.Early))
			cut := s.before != "" && c.Answered-s.let < r.cooldown
			return free, slot{uid: c.UID, lease: c.Lease, addr: c.Addr, held: true, cut: cut}
		}
	case binding, releasing:
		switch {
		case c.Gone:
			return !mine, s
		case c.Verb == binding:
			s.bound = true
			return mine && s.lease == c.Lease, s
		case s.held && s.lease == c.Lease:
			s.held, s.before = false, ""
			if s.bound || s.cut {
				s.before, s.let = s.uid, c.Asked
			}
		}
		return true, s
	default: // a list, of which c has this address alone
		if c.Lease == "" {
			return !s.held, s
		}
		s.lease, s.addr = c.Lease, c.Addr
		return mine, s
	}
}

// model is what porcupine asks.
func (r rest) model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return slot{} },
		Step: func(state, input, _ any) (bool, any) { return r.step(state.(slot), input.(call)) },
		DescribeOperation: func(input, _ any) string {
			return input.(call).String()
		},
		DescribeState: func(state any) string {
			s := state.(slot)
			switch {
			case s.held:
				return fmt.Sprintf("%s's, lease %s", s.uid, s.lease)
			case s.before == "":
				return "free"
			}
			return fmt.Sprintf("%s's until %v", s.before, s.let)
		},
	}
}

func (c call) String() string {
	what := fmt.Sprintf("%s %s", c.Verb, c.UID)
	switch {
	case c.Verb == listingAll && c.Lease == "":
		return fmt.Sprintf("list: %s has no owner", c.Addr)
	case c.Verb == allocating && c.Answered == never:
		return what + ": no answer"
	case c.Gone:
		return fmt.Sprintf("%s: lease %s is gone", what, c.Lease)
	}
	what = fmt.Sprintf("%s: %s by lease %s", what, c.Addr, c.Lease)
	if c.Answered == never {
		what += ", no answer"
	}
	if c.Existing {
		what += ", existing"
	}
	if c.Early {
		what += ", early reuse"
	}
	return what
}

// parts divides a history by address and by sandbox.
func parts(calls []call) map[string][]porcupine.Operation {
	out := make(map[string][]porcupine.Operation)
	add := func(key string, c call) {
		out[key] = append(out[key], porcupine.Operation{ClientId: c.Client, Input: c, Call: int64(c.Asked), Return: int64(c.Answered)})
	}
	born := births(calls)
	for _, c := range calls {
		switch {
		case c.Verb == listingAll:
		case c.Verb == allocating && c.Answered == never:
			// It can have made any lease of its sandbox that no answer made. To
			// have made none explains nothing, so that is left out.
			made := false
			for _, b := range born[c.UID] {
				if c.Asked < b.Answered {
					add(b.Addr.String(), c)
					made = true
				}
			}
			if made {
				add(c.UID, c)
			}
		default:
			add(c.Addr.String(), c)
			add(c.UID, c)
		}
	}
	used := make(map[netip.Addr]bool)
	for _, c := range calls {
		used[c.Addr] = true
		for addr := range c.Open {
			used[addr] = true
		}
	}
	delete(used, netip.Addr{})
	for _, c := range calls {
		if c.Verb == listingAll {
			for addr := range used {
				o := c.Open[addr]
				add(addr.String(), call{Client: c.Client, Verb: c.Verb, Asked: c.Asked, Answered: c.Answered, Addr: addr, UID: o.UID, Lease: o.Lease})
			}
		}
	}
	return out
}

// births are the leases that calls without an answer must have made, by their
// sandbox: each as the first answer that knows it.
func births(calls []call) map[string][]call {
	seen, made := make(map[string]call), make(map[string]bool)
	first := func(c call) {
		if was, ok := seen[c.Lease]; !ok || c.Answered < was.Answered {
			seen[c.Lease] = c
		}
	}
	for _, c := range calls {
		switch {
		case c.Verb == allocating && c.Answered != never:
			made[c.Lease] = made[c.Lease] || !c.Existing
			first(c)
		case c.Verb == listingAll:
			for addr, o := range c.Open {
				first(call{Answered: c.Answered, Addr: addr, UID: o.UID, Lease: o.Lease})
			}
		}
	}
	out := make(map[string][]call)
	for lease, c := range seen {
		if !made[lease] {
			out[c.UID] = append(out[c.UID], c)
		}
	}
	return out
}

// crooked lists the addresses and sandboxes whose calls no order explains, and
// those that were not judged in time, in the order of their names.
func crooked(calls []call, r rest, patience time.Duration) (illegal, unknown []string) {
	model := r.model()
	for key, ops := range parts(calls) {
		switch porcupine.CheckOperationsTimeout(model, ops, patience) {
		case porcupine.Illegal:
			illegal = append(illegal, key)
		case porcupine.Unknown:
			unknown = append(unknown, key)
		}
	}
	slices.Sort(illegal)
	slices.Sort(unknown)
	return illegal, unknown
}
