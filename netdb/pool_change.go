package netdb

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"github.com/ipamd/ipamd/ipam"
)

// SetPool makes a pool, or makes it as the caller wants it, in one commit. It grows in
// place; what would leave leases outside is refused unless the change says Drain.
//
// Errors: [ipam.FieldError], [ipam.StalePoolError], [ipam.OverlapError], [ipam.OtherPoolsRowError],
// [ipam.PoolNotEmptyError], and those of the file.
func (b *Book) SetPool(ctx context.Context, who ipam.Who, c PoolChange) (*ipam.PoolOutcome, error) {
	if err := c.Spec.Check(); err != nil {
		return nil, err
	}
	return change(ctx, b.writer, func(t *tx) (*ipam.PoolOutcome, error) { return t.setPool(who, c) })
}

// PreviewSetPool says what [Book.SetPool] would do now, and what it would refuse. A new
// pool's uid is not the one that it would get.
func (m *memory) PreviewSetPool(c PoolChange) (out *ipam.PoolOutcome, err error) {
	return m.preview(func(t *tx) (*poolPlan, error) { return t.planPool(c) })
}

// preview runs a plan on what is committed.
func (m *memory) preview(plan func(*tx) (*poolPlan, error)) (*ipam.PoolOutcome, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	p, err := plan(&tx{opts: m.opts, memory: m, now: m.clock.Now(), idx: m.idx, staged: newOverlay()})
	if err != nil {
		return nil, err
	}
	return &p.PoolOutcome, nil
}

// EnsurePool is [Book.SetPool] of the next generation as a configuration has it: an
// exclusion over a lease leaves the lease outside.
func (b *Book) EnsurePool(ctx context.Context, who ipam.Who, spec ipam.PoolSpec) (*ipam.Pool, error) {
	out, err := b.SetPool(ctx, who, PoolChange{Spec: spec, ensure: true})
	if err != nil {
		return nil, err
	}
	return out.Pool, nil
}

func (t *tx) setPool(who ipam.Who, c PoolChange) (*ipam.PoolOutcome, error) {
	plan, err := t.planPool(c)
	if err != nil || !plan.Changed {
		return outcomeOf(plan), err
	}
	who.Reason = ipam.PoolChanged
	if plan.Was == nil {
		who.Reason = ipam.PoolCreated
	}
	t.staged.stage(step{pool: plan.Pool, name: c.name, change: t.poolChange(who, plan.Pool)})
	plan.Rev = t.staged.rev
	for _, w := range plan.taken {
		if err := t.takeOver(who, plan.Pool, w); err != nil {
			return nil, err
		}
	}
	return outcomeOf(plan), t.restGateway(who, plan)
}

// restGateway has the gateway that a pool had before cool like an address that was given:
// the routes and neighbours of its sandboxes still lead there, and who got the address at
// once would get their packets. So would the sandbox that had it before it was the gateway:
// the rest is no lease's. It rests where the pool cannot give it, too: the next change
// may have it back. A rest of before it was the gateway begins anew, also one that is withheld
// since another pool was removed.
func (t *tx) restGateway(who ipam.Who, plan *poolPlan) error {
	a, pool := plan.Rests, plan.Pool
	if !a.IsValid() {
		return nil
	}
	was, withheld := t.at(a), t.withheldAt(a)
	rests := ipam.Lease{Addr: a, ID: newID(), PoolUID: pool.UID, Pool: pool.Name, State: ipam.Quarantined}
	switch {
	case was != nil:
		rests.Addr, rests.PrefixLen = was.Addr, was.PrefixLen
	case withheld != nil:
		rests.Addr, rests.PrefixLen = withheld.Addr, withheld.PrefixLen
	}
	rests.Evidence = testify(&ipam.Withheld{Addr: a, Since: t.now}, "it was the gateway of pool %s (%s)", pool.Name, pool.UID)
	who.Actor, who.Reason = ipam.ByOperator, ipam.GatewayMoved
	l, err := t.recordWith(who, was, rests, rests.Evidence, withheld)
	if err == nil {
		_, err = t.setState(who, l, ipam.Cooling, nil)
	}
	return err
}

// gatewayThatRests is the one that a change has rest, zero for none.
func (t *tx) gatewayThatRests(plan *poolPlan) netip.Addr {
	if plan.Was == nil || plan.Stay+len(plan.Effects) == 0 {
		return netip.Addr{} // no sandbox has a route by it
	}
	a := plan.Was.Gateway
	was, withheld := t.at(a), t.withheldAt(a)
	if !a.IsValid() || a == plan.Pool.Gateway || was != nil && was.State != ipam.Cooling || withheld != nil && withheld.State != ipam.Cooling {
		return netip.Addr{}
	}
	return a
}

func outcomeOf(plan *poolPlan) *ipam.PoolOutcome {
	if plan == nil {
		return nil
	}
	return &plan.PoolOutcome
}

func (t *tx) poolChange(who ipam.Who, p *ipam.Pool) *ipam.Change {
	c := t.change(ipam.OfPool, who)
	c.PoolUID, c.Pool = p.UID, p.Name
	c.Evidence = asJSON([]map[string]any{{"generation": p.Generation, "state": p.State, "prefix": p.Prefix}})
	return c
}

// DrainPool ends the giving of a pool's addresses; its leases stay as they are. A pool
// that drains already stays as it is. generation is the pool's, 0 for whichever it is.
// The pool's generation rises, so that no older [Book.SetPool] undoes it; one of a later
// generation, or of the next one, does.
func (b *Book) DrainPool(ctx context.Context, who ipam.Who, uid string, generation int64) (*ipam.PoolOutcome, error) {
	who.Reason = ipam.PoolDrains
	return change(ctx, b.writer, func(t *tx) (*ipam.PoolOutcome, error) {
		was := t.pool(uid)
		if was == nil {
			return nil, fmt.Errorf("drain pool %.80q: %w", uid, ipam.ErrNotFound)
		}
		out := &ipam.PoolOutcome{Pool: was, Was: was}
		for l := range t.rows() {
			if l.PoolUID == uid {
				out.Stay++
			}
		}
		switch {
		case was.State == ipam.PoolDraining:
			return out, nil
		case generation != 0 && generation != was.Generation:
			return nil, &ipam.StalePoolError{Pool: was, Name: was.Name, Asked: generation, Last: was.Generation}
		}
		p := *was
		p.State, p.Generation = ipam.PoolDraining, was.Generation+1
		t.staged.stage(step{pool: &p, change: t.poolChange(who, &p)})
		out.Pool, out.Changed, out.Rev = &p, true, t.staged.rev
		return out, nil
	})
}

// Outside says why a lease's pool could not give its address any more: its prefix or its
// exclusions changed since. It is "" of a lease inside its pool. A lease outside is as
// valid as any, and its address is not given again.
func (m *memory) Outside(l *ipam.Lease) string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if pi := m.idx.pools[l.PoolUID]; pi != nil {
		return pi.pool.Outside(l)
	}
	return ""
}

// pools yields every pool as the batch leaves it.
func (t *tx) pools() []*ipam.Pool {
	var out []*ipam.Pool
	for _, pi := range t.idx.order {
		if _, staged := t.staged.pools[pi.pool.UID]; !staged {
			out = append(out, pi.pool)
		}
	}
	for _, p := range t.staged.pools {
		if p != nil {
			out = append(out, p)
		}
	}
	return out
}

// pool returns the pool of a uid as the batch leaves it, nil for none.
func (t *tx) pool(uid string) *ipam.Pool {
	if p, staged := t.staged.pools[uid]; staged {
		return p
	}
	if pi := t.idx.pools[uid]; pi != nil {
		return pi.pool
	}
	return nil
}

// rows yields every row as the batch leaves it, in no order.
func (t *tx) rows() iter.Seq[*ipam.Lease] {
	return func(yield func(*ipam.Lease) bool) {
		for l := range t.idx.byAddr.all() {
			if _, staged := t.staged.leases[l.Addr]; !staged && !yield(l) {
				return
			}
		}
		for _, l := range t.staged.leases {
			if l != nil && !yield(l) {
				return
			}
		}
	}
}

// RemovePool ends a pool, in one commit: each of its rows goes, and the history stays.
// While a lease has not ended the answer is [ipam.PoolNotEmptyError]; with force, which takes
// the operator's words as who.Note, such leases are released and quarantined first, and
// their addresses are withheld. So are those that cool or are quarantined: see
// [ipam.Withheld]. No address is free by the end of its pool.
//
// A pool of the same name that is made later has another uid, and its generations go on
// behind those of this one.
func (b *Book) RemovePool(ctx context.Context, who ipam.Who, uid string, force bool) (*ipam.PoolOutcome, error) {
	if force {
		if err := ipam.CheckNote(who.Note); err != nil {
			return nil, err
		}
	}
	return change(ctx, b.writer, func(t *tx) (*ipam.PoolOutcome, error) {
		plan, err := t.planRemoval(uid, force)
		if err != nil {
			return nil, err
		}
		// In the order of their release: so what cooled is given again.
		for _, e := range slices.SortedFunc(slices.Values(plan.Effects), func(x, y ipam.LeaseEffect) int { return cmp.Compare(x.Lease.CooledAt(), y.Lease.CooledAt()) }) {
			if err := t.purge(who, e); err != nil {
				return nil, err
			}
		}
		who.Actor, who.Reason = ipam.ByOperator, ipam.PoolRemoved
		pool := plan.Was
		kept := t.name(&pool.PoolSpec)
		kept.Generation = pool.Generation
		t.staged.stage(step{pool: pool, removed: true, name: &kept, change: t.poolChange(who, pool)})
		plan.Rev = t.staged.rev
		return outcomeOf(plan), nil
	})
}

// PreviewRemovePool says what [Book.RemovePool] would do now, and what it would refuse.
func (m *memory) PreviewRemovePool(uid string, force bool) (*ipam.PoolOutcome, error) {
	return m.preview(func(t *tx) (*poolPlan, error) { return t.planRemoval(uid, force) })
}
