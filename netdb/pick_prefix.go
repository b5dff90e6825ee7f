package netdb

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/ipamd/ipamd/internal/ranges"
)

// PickPrefix is [Book.Pick] of a delegated prefix: the first aligned one of which no address
// was ever given, in address order; then the one that became free longest ago, all of it;
// then the one whose youngest lease was released longest ago, of those that have all rested.
// Rows of one address, or of prefixes that are not longer, end in the commit that reserves
// what contains them. Each of its addresses is one that the pool could give, and that it keeps
// for no sandbox.
//
// The cost is that of one look at each free range of the pool and at each row that cools.
// Errors are those of [Book.Pick], and [FieldError] for the length.
func (m *memory) PickPrefix(poolUID string, bits int, policy Policy) (Candidate, error) {
	now := m.clock.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	pi, err := m.idx.giving(poolUID)
	if err != nil {
		return Candidate{}, err
	}
	policy = pi.pool.Policy(policy)
	c := Candidate{Pool: pi.pool, PrefixLen: bits}
	if whole, err := pi.pool.CheckPrefixLength(bits); err != nil || whole == 0 {
		return Candidate{}, err
	}
	r, rests, found := pi.nextPrefix(bits, false)
	wait := pi.waits(rests, bits, now, policy)
	if !found || wait > 0 {
		// What contains more ends as a whole, when its cooldown is over.
		if _, rests, found := pi.nextPrefix(bits, true); found {
			if other := pi.waits(rests, bits, now, policy); wait == 0 || other < wait {
				wait = other
			}
		}
		return Candidate{}, pi.exhausted(bits, wait)
	}
	for _, l := range rests {
		if now.Since(l.Since) < policy.Cooldown {
			c.Early, c.cut = true, CutEarly
		}
	}
	c.Addr, c.rests = r.From, rests
	pi.offerPrefix(netip.PrefixFrom(r.From, bits))
	return c, nil
}

func (pi *poolIndex) exhausted(bits int, next time.Duration) *ExhaustedError {
	return &ExhaustedError{Pool: pi.pool.Name, PrefixLen: bits, ByState: maps.Clone(pi.count), Next: next}
}

// waits is how long until rows have rested so that a prefix of a length can be had in their
// place. The row of one that contains more ends when its cooldown is over.
func (pi *poolIndex) waits(rows []*Lease, bits int, now Stamp, policy Policy) (wait time.Duration) {
	for _, l := range rows {
		least := policy.least()
		if l.contains(bits) {
			least = max(policy.Cooldown, now.Since(l.Since)+time.Second)
		}
		wait = max(wait, least-now.Since(l.Since))
	}
	return wait
}

// contains reports whether a row leases more than a prefix of a length.
func (l *Lease) contains(bits int) bool { return l.PrefixLen != 0 && l.PrefixLen < bits }

// nextPrefix returns the prefix that comes next, and the rows that cool in it. Those that
// contain more count only with larger.
func (pi *poolIndex) nextPrefix(bits int, larger bool) (r Range, rests []*Lease, found bool) {
	if r, found = pi.free.FirstPrefix(bits); found {
		return r, nil, true
	}
	could := pi.free.Copy()
	for f := range pi.freed.All() {
		if r, found = could.Join(f.Range, bits); found {
			return r, nil, true
		}
	}
	var joined []*Lease
	pi.cooling.Scan(func(_ int64, l *Lease) bool {
		if l.contains(bits) && !larger || pi.offeredRange(l.Range()) || pi.keepsOf(l.Range()) {
			return true
		}
		joined = append(joined, l)
		r, found = could.Join(l.Range(), bits)
		return !found
	})
	return r, slices.DeleteFunc(joined, func(l *Lease) bool { return !l.Range().Overlaps(r) }), found
}

// keepsOf reports whether an address of a range is kept for a sandbox.
func (pi *poolIndex) keepsOf(r Range) bool {
	if r.From == r.To {
		_, kept := pi.keptFor[r.From]
		return kept
	}
	for a := range pi.keptFor {
		if r.Contains(a) {
			return true
		}
	}
	return false
}

func (pi *poolIndex) offerPrefix(p netip.Prefix) {
	pi.offeredPrefixes[p] = pi.takeRange(ranges.Of(p))
}

// offeredRange reports whether an address of a range is offered to a caller.
func (pi *poolIndex) offeredRange(r Range) bool {
	if r.From == r.To {
		return pi.offered(r.From)
	}
	for a := range pi.offers {
		if r.Contains(a) {
			return true
		}
	}
	for p := range pi.offeredPrefixes {
		if ranges.Of(p).Overlaps(r) {
			return true
		}
	}
	return false
}

// PickPrefixAt offers one wished prefix, if its owner-to-be may have it. Errors are those
// of [Book.PickAddr], and [FieldError] for a length or an address that make no prefix.
func (m *memory) PickPrefixAt(o Owner, p netip.Prefix, policy Policy) (Candidate, error) {
	now := m.clock.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	pi, err := m.idx.giving(o.PoolUID)
	if err != nil {
		return Candidate{}, err
	}
	if _, err := pi.pool.CheckPrefixLength(p.Bits()); err != nil {
		return Candidate{}, err
	}
	if p != p.Masked() {
		return Candidate{}, invalid("address", "%s has host bits set; did you mean %s?", p, p.Masked())
	}
	policy = pi.pool.Policy(policy)
	r := ranges.Of(p)
	if note := pi.pool.outsideRange(r); note != "" {
		return Candidate{}, fmt.Errorf("prefix %s: %w %s: it, or an address of it, is %s", p, ErrNotInPool, pi.pool.Name, note)
	}
	if pi.blocks(r) {
		return Candidate{}, fmt.Errorf("prefix %s: %w by a row that cannot be read; see doctor", p, ErrTaken)
	}
	if pi.offeredRange(r) {
		return Candidate{}, fmt.Errorf("prefix %s: %w by a call under way", p, ErrTaken)
	}
	for a, owner := range pi.keptFor {
		if r.Contains(a) {
			return Candidate{}, &KeptError{a, pi.pool.Name, owner}
		}
	}
	c := Candidate{Addr: r.From, PrefixLen: p.Bits(), Pool: pi.pool}
	for _, l := range m.idx.byAddr.overlapping(r) {
		if l.contains(p.Bits()) && l.State == Cooling {
			return Candidate{}, fmt.Errorf("prefix %s: %w: %s cools", p, ErrTaken, l.Text())
		}
		cut, err := l.rests(l.Addr, l.Owner() == o, now, policy)
		if err != nil {
			return Candidate{}, err
		}
		if cut != "" {
			c.cut = cut
		}
		c.rests = append(c.rests, l)
	}
	pi.offerPrefix(p)
	return c, nil
}

// reservePrefix ends the rows that a prefix is given in the place of, and returns the one of
// the prefix itself, nil for none. Each must be as it was when it was found rested.
func (t *tx) reservePrefix(who Who, c Candidate) (*Lease, error) {
	rows := t.overlapping(rangeOf(c.Addr, c.PrefixLen))
	if !slices.EqualFunc(rows, slices.SortedFunc(slices.Values(c.rests), byFirst), func(is, was *Lease) bool { return is.ID == was.ID && is.Rev == was.Rev }) {
		return nil, fmt.Errorf("prefix %s: %w", placeText(c.Addr, c.PrefixLen), ErrTaken)
	}
	who.Reason = Rested
	for _, l := range rows {
		if l.Addr == c.Addr && l.PrefixLen == c.PrefixLen {
			return l, nil
		}
		if _, err := t.setState(who, l, Free, nil); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func byFirst(x, y *Lease) int { return x.Addr.Compare(y.Addr) }

// Rested is the reason of a change that ends a row which has rested.
const Rested = "rested"
