package storm_test

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/ipamd/ipamd/api"
)

// A verb is what a call asks for.
type verb string

const (
	allocating verb = "allocate"
	binding    verb = "bind"
	releasing  verb = "release"
	listingAll verb = "list"
)

// A call is one try of a client, and what it was answered.
type call struct {
	Client          int
	Verb            verb
	UID             string
	Asked, Answered moment   // answered never: what became of it is not known
	Left            moment   `json:",omitempty"` // of one without an answer: when its caller gave up
	Over            moment   `json:",omitempty"` // and when all that may have read it were dead; 0 for never
	Refused         api.Code `json:",omitempty"` // nothing was done, and this is why
	Lease           string
	Addr            netip.Addr
	Existing, Early bool
	Bound           bool                     `json:",omitempty"` // the answer shows a lease that has been bound
	Gone            bool                     `json:",omitempty"` // a bind or a release: the lease is not its owner's any more
	Open            map[netip.Addr]ownership `json:",omitempty"` // a list: who has what
	Ending          []netip.Addr             `json:",omitempty"` // a list: where no owner is left, and no rest has begun

	made  bool // it stands for the call without an answer that made this lease
	twice bool // a list, of which it has one sandbox: that has two leases
}

// An ownership is one open lease of a list.
type ownership struct {
	Lease, UID string
	Bound      bool `json:",omitempty"`
}

func (c call) lost() bool { return c.Answered == never }

// done says that the answer is what was asked for.
func (c call) done() bool { return !c.lost() && c.Refused == "" }

// lists says that the call shows all of the book: a list that was refused, or
// that was never answered, shows nothing of it.
func (c call) lists() bool { return c.Verb == listingAll && c.done() }

// A rest is how long an address that was bound, or that was given before it had
// cooled, waits for its next owner.
type rest struct {
	cooldown, least time.Duration
}

func (r rest) of(early bool) time.Duration {
	if early {
		return r.least
	}
	return r.cooldown
}

// A slot is the state of one address, or of one sandbox: both have one owner,
// or none, and the same calls move both. That makes a history of thousands of
// calls one that can be judged: each address and each sandbox by itself.
type slot struct {
	uid, lease  string
	addr        netip.Addr
	held, bound bool
	cut         bool   // it was given before it had cooled; false where that is not known
	before      string // while no lease holds it: whose lease was the last; "" when no rest is due
	let         moment // when the call that did so was asked
}

// step says whether a call can have had its answer in this state, and what the
// state is then. A bind or a release without an answer may come when its lease
// has another after it, and do nothing.
func (r rest) step(s slot, c call) (bool, slot) {
	mine := s.held && s.uid == c.UID && s.lease == c.Lease && s.addr == c.Addr
	switch c.Verb {
	case allocating:
		switch {
		case c.Refused != "": // an owner of a lease is answered with it, whatever the pool has left
			return !s.held, s
		case c.Existing:
			return mine && (s.bound || !c.Bound), s
		}
		// It was given before it was answered, or shown: what is too soon by that
		// was too soon.
		free := !s.held && (s.before == "" || s.before == c.UID || c.Answered-s.let >= r.of(c.Early))
		cut := s.before != "" && c.Answered-s.let < r.cooldown
		return free, slot{uid: c.UID, lease: c.Lease, addr: c.Addr, held: true, cut: cut}
	case binding, releasing:
		switch {
		case c.Gone:
			return !mine, s
		case c.Verb == binding && c.lost():
			s.bound = s.bound || mine
			return true, s
		case c.Verb == binding:
			s.bound = true
			return mine, s
		case mine:
			if c.Bound && !s.bound {
				return false, s
			}
			s.held, s.before = false, ""
			if s.bound || s.cut {
				s.before, s.let = s.uid, c.Asked
			}
		}
		return true, s
	default: // a list, of which c has this address or this sandbox alone
		switch {
		case c.twice:
			return false, s
		case c.Lease == "":
			return !s.held, s
		}
		return mine && s.bound == c.Bound, s
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
	case c.twice:
		return fmt.Sprintf("list: %s has two leases", c.UID)
	case c.Verb == listingAll && c.Lease == "":
		return "list: none"
	case c.Refused != "":
		return fmt.Sprintf("%s: %s", what, c.Refused)
	case c.made:
		return fmt.Sprintf("%s: no answer, and it made lease %s of %s", what, c.Lease, c.Addr)
	case c.Gone:
		return fmt.Sprintf("%s: lease %s is gone", what, c.Lease)
	}
	what = fmt.Sprintf("%s: %s by lease %s", what, c.Addr, c.Lease)
	if c.lost() {
		what += ", no answer"
	}
	if c.Existing {
		what += ", existing"
	}
	if c.Early {
		what += ", early reuse"
	}
	if c.Bound {
		what += ", bound"
	}
	return what
}
