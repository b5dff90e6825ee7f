package rebuild

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ipamd/ipamd/netdb"
)

// makePools makes the pools of the old book that the configuration does not name, with
// their generations, so that what was sent to them before stays old. Where one cannot be
// made its addresses are in no pool, and each is reported. It comes before the census, which
// is of the bridges of all pools.
func (r *restorer) makePools(ctx context.Context) error {
	for _, p := range r.old.Pools {
		if r.poolNamed(p) != nil {
			continue // the configuration has it, as it is now
		}
		_, err := r.SetPool(ctx, r.who(netdb.ByOperator), netdb.PoolChange{Spec: p.PoolSpec, Generation: p.Generation})
		switch {
		case errors.Is(err, netdb.ErrOverlap), errors.Is(err, netdb.ErrInvalid), errors.Is(err, netdb.ErrStaleGeneration):
			r.explain("pool %s (%s, uid %s) of the old book is left out: %v", p.Name, p.Prefix, p.UID, err)
		case err != nil:
			return err
		}
	}
	return nil
}

// checkSubnets refuses a prefix that the predecessor had given away inside of a pool, which
// would give its addresses a second time.
func (r *restorer) checkSubnets(context.Context) error {
	for p, holder := range r.old.Subnets {
		for _, pool := range r.Pools() {
			inside := pool.Prefix.Overlaps(p) && p.Bits() > pool.Prefix.Bits()
			if inside && !slices.ContainsFunc(pool.Exclude, func(x netdb.Range) bool { return x.Covers(p) }) {
				return fmt.Errorf("table subnets, row %q, field cidr: %s was given to %q, and lies in pool %s (%s): have the configuration exclude it there, and run this again",
					p, p, holder, pool.Name, pool.Prefix)
			}
		}
	}
	return nil
}

// poolNamed is the new book's pool of the name and family of one of the old book's.
func (r *restorer) poolNamed(p *netdb.Pool) *netdb.Pool {
	all := r.Pools()
	i := slices.IndexFunc(all, func(is *netdb.Pool) bool {
		return is.Name == p.Name && is.Prefix.Addr().Is4() == p.Prefix.Addr().Is4()
	})
	if i < 0 {
		return nil
	}
	return all[i]
}

// drainPools has those drain that did: behind all else, because such a pool takes nothing.
func (r *restorer) drainPools(ctx context.Context) error {
	for _, p := range r.old.Pools {
		is := r.poolNamed(p)
		if is == nil || p.State != netdb.PoolDraining || is.State == netdb.PoolDraining {
			continue
		}
		if _, err := r.DrainPool(ctx, r.who(netdb.ByOperator), is.UID, 0); err != nil {
			return err
		}
	}
	return nil
}

// nameLinks gives each interface the host interface name that the old book leased to it.
// One without an owner, as the predecessor had them, is that of the lease whose port has it.
func (r *restorer) nameLinks(ctx context.Context) error {
	for _, n := range r.old.HostNames {
		if n.UID == "" && !r.ownerOf(&n) {
			r.explain("interface name %s: no port of a lease has it: it can be given again", n.Name)
			continue
		}
		switch err := r.KeepHostName(ctx, r.who(netdb.ByReconciler), n); {
		case errors.Is(err, netdb.ErrNotFound): // its sandbox has no address any more
		case errors.Is(err, netdb.ErrNameTaken), errors.Is(err, netdb.ErrState), errors.Is(err, netdb.ErrInvalid):
			r.explain("interface name %s of sandbox uid %q: %v", n.Name, n.UID, err)
		case err != nil:
			return err
		}
	}
	return nil
}

// ownerOf fills in the interface whose lease records a link of the name.
func (r *restorer) ownerOf(n *netdb.HostName) bool {
	leases, _ := r.Leases()
	for _, l := range leases {
		if l.HostInterface == n.Name && l.State != netdb.Cooling && l.UID != "" {
			n.UID, n.Interface = l.UID, l.Interface
			return true
		}
	}
	return false
}
