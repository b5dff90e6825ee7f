package rebuild

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/salvage"
)

// A poolKey is what no two pools share.
type poolKey struct {
	name   string
	family int
}

func keyOf(p *ipam.Pool) poolKey {
	return poolKey{p.Name, p.Family()}
}

// mergePools takes pools of an older record into the present one's: those of a name that
// the present book never had. Of the others comes what makes old news old: where the present
// book has a lower generation, having been begun anew, what was sent below the older one's
// stays refused. That itself may be sent again. A pool in which the present book has a lease of
// another is left out, as it would be refused there: its gateway could be that lease's.
func (m *merged) mergePools(older, present *salvage.Found, source string) {
	sent := make(map[poolKey]int64) // the last generation of each name
	was := make(map[poolKey]*ipam.Pool)
	for _, n := range older.Names {
		sent[poolKey{n.Name, n.Family}] = n.Generation
	}
	for _, p := range older.Pools {
		was[keyOf(p)], sent[keyOf(p)] = p, max(sent[keyOf(p)], p.Generation)
	}
	had := make(map[poolKey]bool)
	for _, p := range present.Pools {
		had[keyOf(p)] = true
		last := sent[keyOf(p)]
		if o := was[keyOf(p)]; o == nil || !reflect.DeepEqual(o.PoolSpec, p.PoolSpec) {
			last--
		}
		now := *p
		now.Generation = max(p.Generation, last)
		m.Pools = append(m.Pools, &now)
	}
	for _, n := range present.Names {
		key := poolKey{n.Name, n.Family}
		if !had[key] {
			n.Generation = max(n.Generation, sent[key])
		}
		had[key] = true
		m.Names = append(m.Names, n)
	}
	names := slices.Clone(older.Names)
	for _, p := range older.Pools {
		key := keyOf(p)
		if had[key] {
			continue
		}
		is := leaseIn(present, p)
		if is == nil {
			m.Pools = append(m.Pools, p)
			continue
		}
		m.unexplained = append(m.unexplained, fmt.Sprintf("pool %s (%s) of the %s is left out: the present book has %s of another pool", p.Name, p.Prefix, source, asItIs(is)))
		names = append(slices.DeleteFunc(names, func(n ipam.PoolName) bool { return poolKey{n.Name, n.Family} == key }),
			ipam.PoolName{Name: key.name, Family: key.family, Generation: sent[key]})
	}
	for _, n := range names {
		if !had[poolKey{n.Name, n.Family}] {
			m.Names = append(m.Names, n)
		}
	}
}

// leaseIn returns a row of a record that is in a pool of another one, outside of its own.
func leaseIn(s *salvage.Found, p *ipam.Pool) *ipam.Lease {
	i := slices.IndexFunc(s.Leases, func(l *ipam.Lease) bool {
		return l.PoolUID != p.UID && l.Prefix().Overlaps(p.Prefix) && slices.ContainsFunc(s.Pools, func(own *ipam.Pool) bool { return own.UID == l.PoolUID })
	})
	if i < 0 {
		return nil
	}
	return s.Leases[i]
}

// checkSubnets refuses a prefix that the predecessor had given away inside of a pool, which
// would give its addresses a second time.
func (r *restorer) checkSubnets(context.Context) error {
	for p, holder := range r.old.Subnets {
		for _, pool := range r.Pools() {
			inside := pool.Prefix.Overlaps(p) && p.Bits() > pool.Prefix.Bits()
			if inside && !slices.ContainsFunc(pool.Exclude, func(x ipam.Range) bool { return x.Covers(p) }) {
				return fmt.Errorf("table subnets, row %q, field cidr: %s was given to %q, and lies in pool %s (%s): have the configuration exclude it there, and run this again",
					p, p, holder, pool.Name, pool.Prefix)
			}
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
		switch err := r.KeepHostName(ctx, r.who(ipam.ByReconciler), n); {
		case errors.Is(err, ipam.ErrNotFound): // its sandbox has no address any more
		case errors.Is(err, ipam.ErrNameTaken), errors.Is(err, ipam.ErrState), errors.Is(err, ipam.ErrInvalid):
			r.explain("interface name %s of sandbox uid %q: %v", n.Name, n.UID, err)
		case err != nil:
			return err
		}
	}
	return nil
}

// ownerOf fills in the interface whose lease records a link of the name.
func (r *restorer) ownerOf(n *ipam.HostName) bool {
	leases, _ := r.Leases()
	for _, l := range leases {
		if l.HostInterface == n.Name && l.State != ipam.Cooling && l.UID != "" {
			n.UID, n.Interface = l.UID, l.Interface
			return true
		}
	}
	return false
}
