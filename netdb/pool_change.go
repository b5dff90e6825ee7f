package netdb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/index"
)

// pools are the verbs that make, change and end pools.
type pools struct{ w *writer }

// SetPool makes a pool, or makes it as the caller wants it, in one commit. It grows in
// place; what would leave leases outside is refused unless the change says Drain.
//
// Errors: [ipam.FieldError], [ipam.StalePoolError], [ipam.OverlapError], [ipam.OtherPoolsRowError],
// [ipam.PoolNotEmptyError], and those of the file.
func (b pools) SetPool(ctx context.Context, who ipam.Who, c PoolChange) (*ipam.PoolOutcome, error) {
	if err := c.Spec.Check(); err != nil {
		return nil, err
	}
	return change(ctx, b.w, func(t *tx) (*ipam.PoolOutcome, error) { return t.setPool(who, c) })
}

// PreviewSetPool says what [Book.SetPool] would do now, and what it would refuse. A new
// pool's uid is not the one that it would get.
func (b pools) PreviewSetPool(c PoolChange) (*ipam.PoolOutcome, error) {
	return b.preview(func(p planner) (*poolPlan, error) { return p.change(c) })
}

// preview runs a plan on what is committed.
func (b pools) preview(plan func(planner) (*poolPlan, error)) (out *ipam.PoolOutcome, err error) {
	b.w.index.Preview(func(v *index.View) {
		var p *poolPlan
		if p, err = plan(planner{v, b.w.clock.Now()}); err == nil {
			out = &p.PoolOutcome
		}
	})
	return out, err
}

// EnsurePool is [Book.SetPool] of the next generation as a configuration has it: an
// exclusion over a lease leaves the lease outside.
func (b pools) EnsurePool(ctx context.Context, who ipam.Who, spec ipam.PoolSpec) (*ipam.Pool, error) {
	out, err := b.SetPool(ctx, who, PoolChange{Spec: spec, ensure: true})
	if err != nil {
		return nil, err
	}
	return out.Pool, nil
}

func (t *tx) setPool(who ipam.Who, c PoolChange) (*ipam.PoolOutcome, error) {
	plan, err := planner{&t.View, t.now}.change(c)
	if err != nil || !plan.Changed {
		return outcomeOf(plan), err
	}
	who.Reason = ipam.PoolChanged
	if plan.Was == nil {
		who.Reason = ipam.PoolCreated
	}
	t.Stage(index.Step{Pool: plan.Pool, PoolName: c.name, Change: t.poolChange(who, plan.Pool)})
	plan.Rev = t.Rev()
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
// the rest is no lease's. It cools where the pool cannot give it, too: the next change
// may have it back. A cooldown from before it was the gateway begins anew, also one that is withheld
// since another pool was removed.
func (t *tx) restGateway(who ipam.Who, plan *poolPlan) error {
	a, pool := plan.Cools, plan.Pool
	if !a.IsValid() {
		return nil
	}
	was, withheld := t.At(a), t.WithheldAt(a)
	cools := ipam.Lease{Addr: a, ID: newID(), PoolUID: pool.UID, Pool: pool.Name, State: ipam.Quarantined}
	switch {
	case was != nil:
		cools.Addr, cools.PrefixLen = was.Addr, was.PrefixLen
	case withheld != nil:
		cools.Addr, cools.PrefixLen = withheld.Addr, withheld.PrefixLen
	}
	cools.Evidence = testify(&ipam.Withheld{Addr: a, Since: t.now}, "it was the gateway of pool %s (%s)", pool.Name, pool.UID)
	who.Actor, who.Reason = ipam.ByOperator, ipam.GatewayMoved
	l, err := t.recordWith(who, was, cools, cools.Evidence, withheld)
	if err == nil {
		_, err = t.setState(who, l, ipam.Cooling, nil)
	}
	return err
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
func (b pools) DrainPool(ctx context.Context, who ipam.Who, uid string, generation int64) (*ipam.PoolOutcome, error) {
	who.Reason = ipam.PoolDrains
	return change(ctx, b.w, func(t *tx) (*ipam.PoolOutcome, error) {
		was := t.Pool(uid)
		if was == nil {
			return nil, fmt.Errorf("drain pool %.80q: %w", uid, ipam.ErrNotFound)
		}
		out := &ipam.PoolOutcome{Pool: was, Was: was}
		for l := range t.Rows() {
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
		t.Stage(index.Step{Pool: &p, Change: t.poolChange(who, &p)})
		out.Pool, out.Changed, out.Rev = &p, true, t.Rev()
		return out, nil
	})
}

// RemovePool ends a pool, in one commit: each of its rows goes, and the history stays.
// While a lease has not ended the answer is [ipam.PoolNotEmptyError]; with force, which takes
// the operator's words as who.Note, such leases are released and quarantined first, and
// their addresses are withheld. So are those that cool or are quarantined: see
// [ipam.Withheld]. No address is free by the end of its pool.
//
// A pool of the same name that is made later has another uid, and its generations go on
// behind those of this one.
func (b pools) RemovePool(ctx context.Context, who ipam.Who, uid string, force bool) (*ipam.PoolOutcome, error) {
	if force {
		if err := ipam.CheckNote(who.Note); err != nil {
			return nil, err
		}
	}
	return change(ctx, b.w, func(t *tx) (*ipam.PoolOutcome, error) {
		plan, err := planner{&t.View, t.now}.removal(uid, force)
		if err != nil {
			return nil, err
		}
		// In the order of their release: so what cooled is given again.
		for _, e := range slices.SortedFunc(slices.Values(plan.Effects), func(x, y ipam.LeaseEffect) int { return cmp.Compare(x.Lease.CoolingRev(), y.Lease.CoolingRev()) }) {
			if err := t.purge(who, e); err != nil {
				return nil, err
			}
		}
		who.Actor, who.Reason = ipam.ByOperator, ipam.PoolRemoved
		pool := plan.Was
		kept := t.PoolName(&pool.PoolSpec)
		kept.Generation = pool.Generation
		t.Stage(index.Step{Pool: pool, PoolRemoved: true, PoolName: &kept, Change: t.poolChange(who, pool)})
		plan.Rev = t.Rev()
		return outcomeOf(plan), nil
	})
}

// PreviewRemovePool says what [Book.RemovePool] would do now, and what it would refuse.
func (b pools) PreviewRemovePool(uid string, force bool) (*ipam.PoolOutcome, error) {
	return b.preview(func(p planner) (*poolPlan, error) { return p.removal(uid, force) })
}

// unnamed begins what is remembered of a spec that the configuration has given up.
const unnamed = "was "

// Configure applies what the configuration says of pools, in one commit: each spec that it
// says now and did not say the last time. One that it still says is old news, whatever
// became of its pool since: a [Book.SetPool] or a [Book.RemovePool] is not undone by a
// file that has not changed. Each is set as by [Book.EnsurePool].
//
// A pool that has an address in use stays on its bridge, which is the only one that shows
// it, unless that is one of those that are gone: then its ports are on none, or the bridge
// was renamed.
//
// It returns what changed. Where one spec is refused none is applied, and the error joins
// those of all that are.
func (b pools) Configure(ctx context.Context, who ipam.Who, specs []ipam.PoolSpec, gone ...string) ([]*ipam.PoolOutcome, error) {
	for _, s := range specs {
		if err := s.Check(); err != nil {
			return nil, err
		}
	}
	return change(ctx, b.w, func(t *tx) (out []*ipam.PoolOutcome, err error) {
		// A pool may be given what another one leaves.
		for left := slices.Clone(specs); len(left) > 0; {
			var refused []ipam.PoolSpec
			var why []error
			for _, s := range left {
				o, err := t.configure(who, s, gone)
				switch {
				case err != nil:
					refused, why = append(refused, s), append(why, err)
				case o != nil && o.Changed:
					out = append(out, o)
				}
			}
			if len(refused) == len(left) {
				return nil, errors.Join(why...)
			}
			left = refused
		}
		for key, n := range t.PoolNames() {
			named := slices.ContainsFunc(specs, func(s ipam.PoolSpec) bool { return index.PoolKeyOf(&s) == key })
			if !named && n.Configured != "" && !strings.HasPrefix(n.Configured, unnamed) {
				n.Configured = unnamed + n.Configured
				t.stageName(who, &n)
			}
		}
		return out, nil
	})
}

// configure applies a spec that is new, and returns nil where it is not.
func (t *tx) configure(who ipam.Who, s ipam.PoolSpec, gone []string) (*ipam.PoolOutcome, error) {
	_, hash := encodeSpec(&s)
	n := t.PoolName(&s)
	if n.Configured == hash {
		return nil, nil
	}
	n.Configured = hash
	out, err := t.setPool(who, PoolChange{Spec: s, ensure: true, gone: gone, name: &n})
	if err == nil && !out.Changed {
		t.stageName(who, &n)
	}
	return out, err
}

func (t *tx) stageName(who ipam.Who, n *ipam.PoolName) {
	who.Reason = ipam.PoolConfigured
	c := t.change(ipam.OfPool, who)
	c.Pool = n.Name
	t.Stage(index.Step{PoolName: n, Change: c})
}

// Unconfigured returns the pools that the configuration has given up: they stay, and are
// an operator's to put back or to remove.
func (b pools) Unconfigured() (out []*ipam.Pool) {
	b.w.index.Preview(func(v *index.View) {
		for _, p := range v.Pools() {
			if strings.HasPrefix(v.PoolName(&p.PoolSpec).Configured, unnamed) {
				out = append(out, p)
			}
		}
	})
	return out
}
