package index

import (
	"fmt"
	"maps"
	"net/netip"

	"github.com/ipamd/ipamd/ipam"
)

// A PoolKey is what a pool is called by: of a name there may be one of each family.
type PoolKey struct {
	Name   string
	Family int
}

// KeyOf is that of a pool.
func KeyOf(s *ipam.PoolSpec) PoolKey { return PoolKey{s.Name, s.Family()} }

// KeyOfName is that of what is remembered of a name.
func KeyOfName(n *ipam.PoolName) PoolKey { return PoolKey{n.Name, n.Family} }

// Pools returns every pool.
func (v *View) Pools() []*ipam.Pool {
	var out []*ipam.Pool
	for _, pi := range v.is.order {
		if _, staged := v.pools[pi.pool.UID]; !staged {
			out = append(out, pi.pool)
		}
	}
	for _, p := range v.pools {
		if p != nil {
			out = append(out, p)
		}
	}
	return out
}

// Pool returns the pool of a uid, nil for none.
func (v *View) Pool(uid string) *ipam.Pool {
	if p, staged := v.pools[uid]; staged {
		return p
	}
	if pi := v.is.pools[uid]; pi != nil {
		return pi.pool
	}
	return nil
}

// PoolName returns what is remembered of a pool's name.
func (v *View) PoolName(s *ipam.PoolSpec) ipam.PoolName {
	n := look(KeyOf(s), v.names, v.is.names)
	n.Name, n.Family = s.Name, s.Family()
	return n
}

// PoolNames has all that is remembered of names.
func (v *View) PoolNames() map[PoolKey]ipam.PoolName {
	all := maps.Clone(v.is.names)
	maps.Copy(all, v.names)
	return all
}

// PoolFor returns the pool of an address that could be handed out. A row outside its pool stays
// that pool's.
func (v *View) PoolFor(a netip.Addr) (*ipam.Pool, error) {
	if l := v.At(a); l != nil {
		if p := v.Pool(l.PoolUID); p.Outside(l) != "" {
			return p, nil
		}
	}
	for _, p := range v.Pools() {
		if !p.Prefix.Contains(a) {
			continue
		}
		if note := p.OutsideAddr(a); note != "" {
			return p, fmt.Errorf("%w %s: it is %s", ipam.ErrNotInPool, p.Name, note)
		}
		if pi := v.is.pools[p.UID]; pi != nil {
			return p, pi.mayGive(a)
		}
		return p, nil
	}
	return nil, fmt.Errorf("%w: no pool contains it", ipam.ErrNotInPool)
}

func isIn(l *ipam.Lease, pool string, s ipam.State) bool {
	return l != nil && l.PoolUID == pool && l.State == s
}

func (v *View) countOf(pool string, s ipam.State) int {
	n := 0
	if pi := v.is.pools[pool]; pi != nil { // it may be made in this batch
		n = pi.count[s]
	}
	for _, step := range v.steps {
		if isIn(step.Old, pool, s) {
			n--
		}
		if isIn(step.Now, pool, s) {
			n++
		}
	}
	return n
}

// QuarantineFull reports whether as many addresses of a pool are quarantined as may be without an
// operator, and how many that is.
func (v *View) QuarantineFull(p *ipam.Pool) (most int, full bool) {
	pi := v.is.pools[p.UID]
	if pi == nil || pi.pool != p {
		pi = newPoolIndex(p)
	}
	most = v.is.opts.mostQuarantined(pi.size)
	return most, v.countOf(p.UID, ipam.Quarantined) >= most
}

// quarantineMost is how many addresses of a pool are quarantined without an
// operator, however large it is: one guest that answers for all of a /64 must
// not fill the disk.
const quarantineMost = 1 << 16

// mostQuarantined is how many addresses of a pool may be quarantined without
// an operator.
func (o *Options) mostQuarantined(size uint64) int {
	return int(max(1, min(float64(size)*o.QuarantineShare, quarantineMost)))
}
