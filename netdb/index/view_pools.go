package index

import (
	"fmt"
	"maps"
	"net/netip"

	"github.com/ipamd/ipamd/ipam"
)

// A PoolKey identifies a pool: one IPv4 pool and one IPv6 pool may have the same name.
type PoolKey struct {
	Name   string
	Family int
}

// PoolKeyOf returns the key of a pool.
func PoolKeyOf(s *ipam.PoolSpec) PoolKey { return PoolKey{s.Name, s.Family()} }

// PoolKeyOfName returns the key of what is remembered of a pool's name.
func PoolKeyOfName(n *ipam.PoolName) PoolKey { return PoolKey{n.Name, n.Family} }

// Pools returns every pool.
func (v *View) Pools() []*ipam.Pool {
	var out []*ipam.Pool
	for _, pi := range v.committed.poolsInOrder {
		if _, staged := v.poolByUID[pi.pool.UID]; !staged {
			out = append(out, pi.pool)
		}
	}
	for _, p := range v.poolByUID {
		if p != nil {
			out = append(out, p)
		}
	}
	return out
}

// Pool returns the pool with a uid, or nil.
func (v *View) Pool(uid string) *ipam.Pool {
	if p, staged := v.poolByUID[uid]; staged {
		return p
	}
	if pi := v.committed.poolByUID[uid]; pi != nil {
		return pi.pool
	}
	return nil
}

// PoolName returns what is remembered of a pool's name.
func (v *View) PoolName(s *ipam.PoolSpec) ipam.PoolName {
	n := look(PoolKeyOf(s), v.poolNames, v.committed.poolNames)
	n.Name, n.Family = s.Name, s.Family()
	return n
}

// PoolNames returns all that is remembered of pools' names.
func (v *View) PoolNames() map[PoolKey]ipam.PoolName {
	all := maps.Clone(v.committed.poolNames)
	maps.Copy(all, v.poolNames)
	return all
}

// PoolFor returns the pool of an address: that of a row which is outside its pool, or else the one that
// contains the address. The error says that no pool does, or that this one cannot give it; an address
// that is leased is no error.
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
		if pi := v.committed.poolByUID[p.UID]; pi != nil {
			return p, pi.checkGivable(a)
		}
		return p, nil
	}
	return nil, fmt.Errorf("%w: no pool contains it", ipam.ErrNotInPool)
}

func isIn(l *ipam.Lease, pool string, s ipam.State) bool {
	return l != nil && l.PoolUID == pool && l.State == s
}

func (v *View) countInState(pool string, s ipam.State) int {
	n := 0
	if pi := v.committed.poolByUID[pool]; pi != nil { // nil: a step of this batch makes it
		n = pi.countByState[s]
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

// QuarantineFull reports whether no more addresses of a pool may be quarantined without an operator,
// and how many may be.
func (v *View) QuarantineFull(p *ipam.Pool) (most int, full bool) {
	pi := v.committed.poolByUID[p.UID]
	if pi == nil || pi.pool != p {
		pi = newPoolIndex(p)
	}
	most = v.committed.opts.quarantineCap(pi.size)
	return most, v.countInState(p.UID, ipam.Quarantined) >= most
}

// maxQuarantined is how many addresses of a pool may be quarantined without an operator, however
// large the pool is: one guest that answers for all of a /64 must not fill the disk.
const maxQuarantined = 1 << 16

// quarantineCap is how many addresses of a pool may be quarantined without
// an operator.
func (o *Options) quarantineCap(size uint64) int {
	return int(max(1, min(float64(size)*o.QuarantineShare, maxQuarantined)))
}
