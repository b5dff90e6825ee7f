package storm_test

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/ipam"
)

// judge looks for faults in what the actors wrote down. Where two things
// happened at about the same time, and either order explains the answers, it
// finds none.
func judge(h *history) (faults []string) {
	found := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	holds, lives := make(map[netip.Addr][]*hold), make(map[netip.Addr][]*life)
	for _, o := range h.holds {
		for _, other := range holds[o.addr] {
			if o.lease != other.lease && o.from < h.end(other) && other.from < h.end(o) {
				found("two owners: %s is %s's by lease %s from %v to %s, and %s's by lease %s from %v to %s", o.addr,
					o.uid, o.lease, o.from, until(h.end(o)), other.uid, other.lease, other.from, until(h.end(other)))
			}
		}
		holds[o.addr] = append(holds[o.addr], o)
	}
	rightful := h.founded(0)
	for _, l := range h.lives {
		for _, other := range lives[l.addr] {
			if rightful[l] && rightful[other] && l.lease != other.lease && l.from < other.to && other.from < l.to {
				found("two live: %s is set in %s from %v to %s, and in %s from %v to %s", l.addr,
					l.netns, l.from, until(l.to), other.netns, other.from, until(other.to))
			}
		}
		lives[l.addr] = append(lives[l.addr], l)
	}
	for _, g := range h.grants {
		for _, l := range lives[g.addr] {
			// The lease of an earlier turn that is returned again may well be in
			// use: by its own sandbox, which only its name sets apart from a stranger.
			if !g.existing && l.lease != g.lease && l.from <= g.asked && g.answered <= l.to {
				found("given while live: %s went to %s (asked at %v, answered at %v) and is set in %s from %v to %s",
					g.addr, g.uid, g.asked, g.answered, l.netns, l.from, until(l.to))
			}
			if rest := g.answered - l.to; l.bound && l.uid != g.uid && rest > 0 && !h.had(g, l.to) {
				if least := h.least(g.early) - h.leapt(l.to, g.answered); rest < least {
					found("reused too soon: %s went to %s at %v, %v after its removal from %s began", g.addr, g.uid, g.answered, rest, l.netns)
				}
			}
		}
	}
	founded := h.founded(noticed)
	for _, list := range h.listings {
		for _, l := range h.lives {
			if s := list.states[l.addr]; founded[l] && l.from <= list.asked && list.answered <= l.to && (s == "" || s == api.Cooling) {
				found("live and free: %s is set in %s from %v to %s for lease %s, and the list of %v has %q there",
					l.addr, l.netns, l.from, until(l.to), l.lease, list.asked, s)
			}
		}
		for _, o := range h.holds {
			if o.from <= list.asked && list.answered <= h.end(o) && list.open[o.lease] != o.addr {
				found("lost: %s holds %s by lease %s from %v to %s, and the list of %v has %v there",
					o.uid, o.addr, o.lease, o.from, until(h.end(o)), list.asked, list.open[o.lease])
			}
		}
	}
	for _, words := range h.odd {
		found("odd: %s", words)
	}
	return faults
}

// noticed is how long before a lease may end its address must have been set
// for ipamd to know of it: far longer than the kernel's news take.
const noticed = time.Second

// founded returns the lives that began under a lease that stood, and went on
// to stand for so long. One that begins later is a stranger's, as if it were
// set by hand: an actor that is late plugs what it does not hold any more.
func (h *history) founded(still time.Duration) map[*life]bool {
	ends := make(map[string]moment)
	for _, o := range h.holds {
		ends[o.lease] = max(ends[o.lease], h.end(o))
	}
	out := make(map[*life]bool)
	for _, l := range h.lives {
		out[l] = l.lease != "" && l.from+still <= ends[l.lease]
	}
	return out
}

// end is until when a hold surely stands. An unbound one ends by its deadline,
// which may come early where the clock leaps, be it before the lease was
// answered a second time.
func (h *history) end(o *hold) moment {
	by := o.bindBy
	for _, l := range h.leaps {
		if l.to > o.asked && l.from < by && by != never {
			by = l.from
		}
	}
	return min(o.to, by)
}

func until(m moment) string {
	if m == never {
		return "the end"
	}
	return m.String()
}

// had reports that a grant's sandbox was given the address before, after the
// moment when another's removal began: then that was the reuse, and reported
// its kind, and this is only a sandbox that comes back to its own.
func (h *history) had(g grant, since moment) bool {
	return slices.ContainsFunc(h.grants, func(o grant) bool {
		return o.uid == g.uid && o.addr == g.addr && o.lease != g.lease && since < o.answered && o.answered <= g.asked
	})
}

// least is how long an address must rest for an answer of that kind.
func (h *history) least(early bool) time.Duration {
	if early {
		return h.cooldownMin
	}
	return h.cooldown
}

// leapt is how far ipamd's clock may have run ahead between two moments.
func (h *history) leapt(from, to moment) (sum time.Duration) {
	for _, l := range h.leaps {
		if l.from < to && from < l.to {
			sum += l.by
		}
	}
	return sum
}

// judgeBook looks for faults in the book's own history, oldest change first:
// an address that changes hands without having been free, one that is free or used
// again before its cooldown is over on the stamps' own clock, and a grant that the book never
// made. The rest is the cooldown for a lease that was answered and not called an
// early reuse, and else cooldownMin: the book's history names no kind.
func judgeBook(h *history, changes []ipam.Change) (faults []string) {
	found := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	last := make(map[netip.Addr]ipam.Change)
	cooled := make(map[netip.Addr]ipam.Change)
	made := make(map[string]netip.Addr)
	least := make(map[string]time.Duration)
	for _, g := range h.grants {
		least[g.lease] = h.least(g.early)
	}
	for _, c := range changes {
		was, known := last[c.Addr]
		switch {
		case known && was.To != c.From:
			found("a gap: %s was %s by revision %d and %s before revision %d", c.Addr, was.To, was.Rev, c.From, c.Rev)
		case known && c.From.Open() && was.LeaseID != c.LeaseID:
			found("taken over: %s was %s by lease %s, and revision %d moves it by lease %s", c.Addr, was.To, was.LeaseID, c.Rev, c.LeaseID)
		}
		if !c.From.Open() && c.From != ipam.Releasing { // given, or adopted
			made[c.LeaseID] = c.Addr
		}
		if c.To == ipam.Reserved && c.From != ipam.Reserved { // given, and not noted anew
			before, used := cooled[c.Addr]
			rest := c.At.Since(before.At)
			if used && c.UID != before.UID && rest < max(h.cooldownMin, least[c.LeaseID]) {
				found("reused too soon: %s went from %s to %s after %v by the book's own clock (revision %d)", c.Addr, before.UID, c.UID, rest, c.Rev)
			}
			if rest >= h.cooldown {
				delete(cooled, c.Addr) // its rest is over, whatever boot comes next
			}
		}
		if c.From == ipam.Cooling && c.To == ipam.Free {
			if rest := c.At.Since(cooled[c.Addr].At); rest < h.cooldown {
				found("free too soon: %s cooled for %v by the book's own clock (revision %d)", c.Addr, rest, c.Rev)
			}
			delete(cooled, c.Addr) // its rest is over, whatever boot comes next
		}
		if c.To == ipam.Cooling {
			cooled[c.Addr] = c
		}
		last[c.Addr] = c
	}
	for _, g := range h.grants {
		if made[g.lease] != g.addr {
			found("not in the book: lease %s of %s for %s was answered at %v", g.lease, g.addr, g.uid, g.answered)
		}
	}
	return faults
}

// adopted lists the leases that the book took over for a sandbox that never lived with
// the address: a label alone makes no owner.
func adopted(h *history, changes []ipam.Change) (faults []string) {
	type living struct {
		addr netip.Addr
		uid  string
	}
	lived := make(map[living]bool)
	for _, l := range h.lives {
		lived[living{l.addr, l.uid}] = true
	}
	for _, c := range changes {
		if c.To == ipam.Bound && !c.From.Open() && !lived[living{c.Addr, c.UID}] {
			faults = append(faults, fmt.Sprintf("by a label: %s became %q's by lease %s (revision %d), who never lived there", c.Addr, c.UID, c.LeaseID, c.Rev))
		}
	}
	return faults
}
