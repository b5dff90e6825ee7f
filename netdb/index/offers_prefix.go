package index

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/ipamd/ipamd/internal/ranges"
	"github.com/ipamd/ipamd/ipam"
)

// PickPrefix is [Offers.Pick] of a delegated prefix, which is the first of these that there is:
//
//   - the first one in address order of which no address was ever given;
//   - the one of which all addresses have been free for longest;
//   - of those with cooling rows, the one whose last row was released longest ago, once all of
//     them have cooled for as long as the policy wants.
//
// The cooling rows in it end in the commit that reserves it. Each of its addresses is one that
// the pool could give, and that it keeps for no sandbox.
//
// The cost grows with the free ranges of the pool, and with its cooling rows. Errors are those of
// [Offers.Pick], and [ipam.FieldError] for the length.
func (x *Offers) PickPrefix(poolUID string, bits int, policy ipam.Policy) (Candidate, error) {
	now := x.now()
	x.index.mu.Lock()
	defer x.index.mu.Unlock()
	pi, err := x.index.tables.poolToGiveFrom(poolUID)
	if err != nil {
		return Candidate{}, err
	}
	policy = pi.pool.Policy(policy)
	c := Candidate{Pool: pi.pool, PrefixLen: bits}
	if whole, err := pi.pool.CheckPrefixLength(bits); err != nil || whole == 0 {
		return Candidate{}, err
	}
	r, cooled, found := pi.nextPrefix(bits, false)
	wait := pi.untilCooled(cooled, bits, now, policy)
	if !found || wait > 0 {
		// A larger prefix that cools gives nothing up before its cooldown is over.
		if _, cooled, found := pi.nextPrefix(bits, true); found {
			if other := pi.untilCooled(cooled, bits, now, policy); wait == 0 || other < wait {
				wait = other
			}
		}
		return Candidate{}, pi.exhausted(bits, wait)
	}
	for _, l := range cooled {
		if now.Since(l.Since) < policy.Cooldown {
			c.Early, c.Cut = true, ipam.CutEarly
		}
	}
	c.Addr, c.coolingRows = r.From, cooled
	pi.offerPrefix(netip.PrefixFrom(r.From, bits))
	return c, nil
}

func (pi *poolIndex) exhausted(bits int, next time.Duration) *ipam.ExhaustedError {
	return &ipam.ExhaustedError{Pool: pi.pool.Name, PrefixLen: bits, ByState: maps.Clone(pi.countByState), Next: next}
}

// untilCooled is how long until cooling rows have cooled long enough for a prefix of a length to take
// their place. The row of a larger prefix has to end first, when its cooldown is over.
func (pi *poolIndex) untilCooled(rows []*ipam.Lease, bits int, now ipam.Stamp, policy ipam.Policy) (wait time.Duration) {
	for _, l := range rows {
		least := minCooldown(policy)
		if leasesMore(l, bits) {
			least = max(policy.Cooldown, now.Since(l.Since)+time.Second)
		}
		wait = max(wait, least-now.Since(l.Since))
	}
	return wait
}

// leasesMore reports whether a row leases a larger prefix than one of a length.
func leasesMore(l *ipam.Lease, bits int) bool { return l.PrefixLen != 0 && l.PrefixLen < bits }

// nextPrefix returns the prefix that [Offers.PickPrefix] chooses, and the rows that cool in it. It
// counts rows of larger prefixes among them only with larger.
func (pi *poolIndex) nextPrefix(bits int, larger bool) (r ipam.Range, cooled []*ipam.Lease, found bool) {
	if r, found = pi.free.FirstPrefix(bits); found {
		return r, nil, true
	}
	could := pi.free.Copy()
	for f := range pi.freed.All() {
		if r, found = could.Join(f.Range, bits); found {
			return r, nil, true
		}
	}
	var joined []*ipam.Lease
	pi.coolingByRev.Scan(func(_ int64, l *ipam.Lease) bool {
		if leasesMore(l, bits) && !larger || pi.offeredRange(l.Range()) || pi.keepsAnyOf(l.Range()) {
			return true
		}
		joined = append(joined, l)
		r, found = could.Join(l.Range(), bits)
		return !found
	})
	return r, slices.DeleteFunc(joined, func(l *ipam.Lease) bool { return !l.Range().Overlaps(r) }), found
}

// keepsOf reports whether an address of a range is kept for a sandbox.
func (pi *poolIndex) keepsAnyOf(r ipam.Range) bool {
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
func (pi *poolIndex) offeredRange(r ipam.Range) bool {
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

// PickPrefixAt offers the prefix that a request names, if its owner may have it. Errors are those
// of [Offers.PickAddr], and [ipam.FieldError] for a length or an address that make no prefix.
func (x *Offers) PickPrefixAt(o ipam.Owner, p netip.Prefix, policy ipam.Policy) (Candidate, error) {
	now := x.now()
	x.index.mu.Lock()
	defer x.index.mu.Unlock()
	pi, err := x.index.tables.poolToGiveFrom(o.PoolUID)
	if err != nil {
		return Candidate{}, err
	}
	if _, err := pi.pool.CheckPrefixLength(p.Bits()); err != nil {
		return Candidate{}, err
	}
	if p != p.Masked() {
		return Candidate{}, ipam.Invalid("address", "%s has host bits set; did you mean %s?", p, p.Masked())
	}
	policy = pi.pool.Policy(policy)
	r := ranges.Of(p)
	if note := pi.pool.OutsideRange(r); note != "" {
		return Candidate{}, fmt.Errorf("prefix %s: %w %s: it, or an address of it, is %s", p, ipam.ErrNotInPool, pi.pool.Name, note)
	}
	if pi.blocks(r) {
		return Candidate{}, fmt.Errorf("prefix %s: %w by a row that cannot be read; see doctor", p, ipam.ErrTaken)
	}
	if pi.offeredRange(r) {
		return Candidate{}, fmt.Errorf("prefix %s: %w by a call under way", p, ipam.ErrTaken)
	}
	for a, owner := range pi.keptFor {
		if r.Contains(a) {
			return Candidate{}, &ipam.KeptError{Addr: a, Pool: pi.pool.Name, Sandbox: owner}
		}
	}
	c := Candidate{Addr: r.From, PrefixLen: p.Bits(), Pool: pi.pool}
	for _, l := range x.index.tables.rowByAddr.overlapping(r) {
		if leasesMore(l, p.Bits()) && l.State == ipam.Cooling {
			return Candidate{}, fmt.Errorf("prefix %s: %w: %s cools", p, ipam.ErrTaken, l.Text())
		}
		cut, err := checkReuse(l, l.Addr, l.Owner() == o, now, policy)
		if err != nil {
			return Candidate{}, err
		}
		if cut != "" {
			c.Cut = cut
		}
		c.coolingRows = append(c.coolingRows, l)
	}
	pi.offerPrefix(p)
	return c, nil
}
