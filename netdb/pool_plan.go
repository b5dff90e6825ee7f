package netdb

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/uuid"

	"github.com/ipamd/ipamd/internal/ranges"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/index"
)

// A PoolChange is what a caller wants of a pool. Which one it is about, its name and the
// family of its prefix say.
type PoolChange struct {
	Spec ipam.PoolSpec
	// UID, when given, is that of the pool that the caller has seen.
	UID string
	// Generation orders what is wanted of a name. Below the pool's it is
	// [ipam.ErrStaleGeneration], and so it is where the pool's own has another spec; the
	// pool's own with the same spec changes nothing. 0 is the next one, unless the pool
	// is active and has this spec already.
	Generation int64
	// Drain lets leases stay that the spec leaves outside the pool: they are valid, and
	// their addresses are not given again. Without it such a spec is [ipam.ErrPoolNotEmpty].
	Drain bool
	// SlotsEnd is of a preview: it is as if the warm slots that no sandbox has, and that are in the
	// change's way, had ended before it.
	SlotsEnd bool

	ensure bool           // see [Book.EnsurePool]
	gone   []string       // bridges that the kernel does not have: see [Book.Configure]
	name   *ipam.PoolName // what is remembered of the name from now on; nil: what is
}

// A poolPlan is an outcome, and what else its change stages.
type poolPlan struct {
	ipam.PoolOutcome
	taken []ipam.Withheld // what the pool takes over, in the order of their release
}

// poolNamed returns the pool of a name and family, nil for none.
func poolNamed(v *index.View, s *ipam.PoolSpec) *ipam.Pool {
	for _, p := range v.Pools() {
		if p.Name == s.Name && p.Family() == s.Family() {
			return p
		}
	}
	return nil
}

// A planner decides about changes of pools by what it reads, and stages nothing.
type planner struct {
	*index.View
	now ipam.Stamp
}

// change decides about a change, and stages nothing.
func (p planner) change(c PoolChange) (*poolPlan, error) {
	if err := c.Spec.Check(); err != nil {
		return nil, err
	}
	was := poolNamed(p.View, &c.Spec)
	plan := &poolPlan{PoolOutcome: ipam.PoolOutcome{Was: was}}
	next, same, err := p.generation(was, c)
	if err != nil {
		return nil, err
	}
	if same {
		plan.Pool = was
		for l := range p.Rows() {
			if l.PoolUID == was.UID {
				plan.Stay++
			}
		}
		return plan, nil
	}
	pool := &ipam.Pool{PoolSpec: c.Spec, Generation: next, State: ipam.PoolActive, Created: p.now}
	if was != nil {
		pool.UID, pool.Created = was.UID, was.Created
	} else {
		pool.UID = uuid.Must(uuid.NewV7()).String()
	}
	plan.Pool, plan.Changed = pool, true
	if err := p.checkRoom(pool); err != nil {
		return nil, err
	}
	if err := p.rows(plan, c); err != nil {
		return nil, err
	}
	plan.Cools = p.gatewayThatCools(plan)
	return plan, p.taken(plan)
}

// mostGeneration is the largest number that a caller may ask for. Each program that reads JSON
// knows it exactly, and there is room behind it for all changes that ask for none, or for the next one.
const mostGeneration = 1 << 52

// generation is the one that a change brings a pool to, or same where it has nothing to
// change.
func (p planner) generation(was *ipam.Pool, c PoolChange) (next int64, same bool, err error) {
	stale := &ipam.StalePoolError{Pool: was, Name: c.Spec.Name, Asked: c.Generation, UID: c.UID, Last: p.PoolName(&c.Spec).Generation}
	if was != nil {
		stale.Last = was.Generation
	}
	switch {
	case c.Generation < 0:
		return 0, false, ipam.Invalid("generation", "%d is below 0", c.Generation)
	case c.Generation > mostGeneration && (was == nil || c.Generation != was.Generation+1):
		return 0, false, ipam.Invalid("generation", "%d is above %d: no later one could follow it", c.Generation, int64(mostGeneration))
	case c.UID != "" && (was == nil || was.UID != c.UID):
		return 0, false, stale
	case was == nil && c.Generation == 0:
		return stale.Last + 1, false, nil
	case was == nil && c.Generation <= stale.Last:
		return 0, false, stale
	case was == nil:
		return c.Generation, false, nil
	}
	_, is := encodeSpec(&was.PoolSpec)
	_, wanted := encodeSpec(&c.Spec)
	switch {
	case c.Generation == 0 && is == wanted && was.State == ipam.PoolActive,
		c.Generation == was.Generation && is == wanted:
		return was.Generation, true, nil
	case c.Generation == 0:
		return was.Generation + 1, false, nil
	case c.Generation <= was.Generation:
		return 0, false, stale
	}
	return c.Generation, false, nil
}

// checkRoom refuses a pool that would contain what is another's: compared by ranges, not
// by text. A row counts that another pool has left outside, and one of a pool that is
// not there any more.
func (p planner) checkRoom(pool *ipam.Pool) error {
	for _, other := range p.Pools() {
		if other.UID != pool.UID && other.Prefix.Overlaps(pool.Prefix) {
			return &ipam.OverlapError{Spec: pool.PoolSpec, UID: pool.UID, Other: other}
		}
	}
	for l := range p.Rows() {
		if l.PoolUID != pool.UID && pool.Prefix.Overlaps(l.Prefix()) {
			return &ipam.OtherPoolsRowError{Addr: l.Addr, OldUID: l.PoolUID, NewUID: pool.UID, Why: fmt.Sprintf("it is %s by sandbox %q", l.State, l.Sandbox)}
		}
	}
	for _, u := range p.Unreadable() {
		for _, a := range u.Addrs {
			if u.Pool != "" && u.Pool != pool.UID && pool.Prefix.Contains(a) {
				return &ipam.OtherPoolsRowError{Addr: a, OldUID: u.Pool, NewUID: pool.UID, Why: "its row cannot be read: " + u.Reason}
			}
		}
		for _, r := range u.Ranges {
			if u.Pool != "" && u.Pool != pool.UID && ranges.Of(pool.Prefix).Overlaps(r) {
				return &ipam.OtherPoolsRowError{Addr: r.From, OldUID: u.Pool, NewUID: pool.UID, Why: "its row cannot be read: " + u.Reason}
			}
		}
	}
	return nil
}

// rows says what becomes of the pool's own rows, and refuses what may not become of
// them.
func (p planner) rows(plan *poolPlan, c PoolChange) error {
	was, pool := plan.Was, plan.Pool
	if was == nil {
		return nil
	}
	var blocking []ipam.LeaseEffect
	stays := "" // the bridge that a row keeps the pool on: nothing would see it on another
	for l := range p.Rows() {
		if l.PoolUID != pool.UID {
			continue
		}
		before, after := was.Outside(l), pool.Outside(l)
		e := ipam.LeaseEffect{Lease: l, Effect: ipam.LeaseStays, Note: after}
		inWay := len(blocking)
		switch {
		case l.State != ipam.Cooling && was.Bridge != pool.Bridge && !slices.Contains(c.gone, was.Bridge):
			e.Note, stays = "it is on bridge "+was.Bridge, was.Bridge
			blocking = append(blocking, e)
		case l.State != ipam.Cooling && l.Covers(pool.Gateway) && pool.Gateway != was.Gateway:
			blocking = append(blocking, e) // the host and the sandbox would both use it
		case before == "" && after != "":
			e.Effect = ipam.LeaseOutside
			again := l.PrefixLen == 0 && l.Addr == pool.Gateway && l.Reason == ipam.GatewayMoved // it was the gateway before
			if excluded := pool.Prefix.Contains(l.Addr) && pool.Prefix.Contains(l.Range().To); !c.Drain && !again && !(c.ensure && excluded) {
				blocking = append(blocking, e)
			}
		case before != "" && after == "":
			e.Effect = ipam.LeaseInside
		}
		if slot := p.Slot(l.ID); c.SlotsEnd && len(blocking) > inWay && slot != nil && !slot.Claimed {
			blocking = blocking[:inWay]
			continue
		}
		if e.Effect == ipam.LeaseStays {
			plan.Stay++
			continue
		}
		plan.Effects = append(plan.Effects, e)
	}
	slices.SortFunc(plan.Effects, byAddr)
	if len(blocking) > 0 {
		slices.SortFunc(blocking, byAddr)
		return &ipam.PoolNotEmptyError{Pool: was, Effects: blocking, Bridge: stays}
	}
	return nil
}

func byAddr(x, y ipam.LeaseEffect) int { return x.Lease.Addr.Compare(y.Lease.Addr) }

// taken finds the addresses of removed pools that the pool takes over. A new gateway
// cannot be one that may still be on the wire.
func (p planner) taken(plan *poolPlan) error {
	stays := plan.Was != nil && plan.Was.Gateway == plan.Pool.Gateway
	for _, w := range p.Withheld() {
		switch {
		case w.State == ipam.Quarantined && w.Covers(plan.Pool.Gateway) && !stays:
			return &ipam.OtherPoolsRowError{Addr: w.Addr, OldUID: w.PoolUID, NewUID: plan.Pool.UID, Why: fmt.Sprintf("it is withheld since pool %s was removed, and would be the gateway", w.Pool)}
		case plan.Pool.OutsideRange(ipam.RangeOf(w.Addr, w.PrefixLen)) == "":
			plan.taken = append(plan.taken, w)
		case w.PrefixLen != 0 && index.Gives(&plan.Pool.PoolSpec, ipam.RangeOf(w.Addr, w.PrefixLen)):
			return &ipam.OtherPoolsRowError{Addr: w.Addr, OldUID: w.PoolUID, NewUID: plan.Pool.UID, Why: fmt.Sprintf(
				"the delegated prefix %s is withheld since pool %s was removed, and only a part of it would be in this one: contain all of it, or none, or exclude it",
				ipam.TextOf(w.Addr, w.PrefixLen), w.Pool)}
		}
	}
	plan.Taken = len(plan.taken)
	slices.SortFunc(plan.taken, func(x, y ipam.Withheld) int { return cmp.Compare(x.Rev, y.Rev) })
	return nil
}

// removal decides about the end of a pool, and stages nothing.
func (p planner) removal(uid string, force bool) (*poolPlan, error) {
	pool := p.Pool(uid)
	if pool == nil {
		return nil, fmt.Errorf("remove pool %.80q: %w", uid, ipam.ErrNotFound)
	}
	plan := &poolPlan{PoolOutcome: ipam.PoolOutcome{Was: pool, Changed: true}}
	var blocking []ipam.LeaseEffect
	for l := range p.Rows() {
		if l.PoolUID != uid {
			continue
		}
		e := ipam.LeaseEffect{Lease: l, Effect: ipam.LeaseWithheld}
		switch {
		case l.State == ipam.Cooling:
			e.Effect = ipam.LeaseEnds
		case l.State != ipam.Quarantined:
			e.Note = "it has not ended"
			blocking = append(blocking, e)
		}
		plan.Effects = append(plan.Effects, e)
	}
	slices.SortFunc(plan.Effects, byAddr)
	if len(blocking) > 0 && !force {
		slices.SortFunc(blocking, byAddr)
		return nil, &ipam.PoolNotEmptyError{Pool: pool, Effects: blocking}
	}
	for _, u := range p.Unreadable() {
		if i := slices.IndexFunc(u.Addrs, func(a netip.Addr) bool { return u.Pool == uid || u.Pool == "" && pool.Prefix.Contains(a) }); i >= 0 || u.Pool == "" && slices.ContainsFunc(u.Ranges, ranges.Of(pool.Prefix).Overlaps) {
			return nil, fmt.Errorf("remove pool %s: %w: its row %q cannot be read: %s", pool.Name, ipam.ErrPoolNotEmpty, u.Row, u.Reason)
		}
	}
	return plan, nil
}

// gatewayThatCools is the one that a change has cool, zero for none.
func (p planner) gatewayThatCools(plan *poolPlan) netip.Addr {
	if plan.Was == nil || plan.Stay+len(plan.Effects) == 0 {
		return netip.Addr{} // no sandbox has a route by it
	}
	a := plan.Was.Gateway
	was, withheld := p.At(a), p.WithheldAt(a)
	if !a.IsValid() || a == plan.Pool.Gateway || was != nil && was.State != ipam.Cooling || withheld != nil && withheld.State != ipam.Cooling {
		return netip.Addr{}
	}
	return a
}
