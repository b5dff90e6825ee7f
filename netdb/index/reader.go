package index

import (
	"fmt"
	"maps"
	"math"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/free"
)

// Rev is the last committed revision.
func (r *Reader) Rev() int64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.tables.rev
}

// At returns the row that leases an address: its own, or that of the delegated prefix which
// contains it.
func (r *Reader) At(a netip.Addr) (*ipam.Lease, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	l := r.tables.rowByAddr.at(a)
	return l, l != nil
}

// Lease returns the row with an id.
func (r *Reader) Lease(id string) (*ipam.Lease, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	l := r.tables.rowByID[id]
	return l, l != nil
}

// OpenLease returns the owner's open lease.
func (r *Reader) OpenLease(o ipam.Owner) (*ipam.Lease, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	l := r.tables.open(o)
	return l, l != nil
}

// OpenOf returns the open leases of a sandbox, in no order.
func (r *Reader) OpenOf(uid string) []*ipam.Lease {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.DeleteFunc(slices.Clone(r.tables.rowsBySandboxUID[uid]), func(l *ipam.Lease) bool { return !l.State.Open() })
}

// Leases returns every row in numeric order of the addresses, and the
// revision at which that was so.
func (r *Reader) Leases() ([]*ipam.Lease, int64) {
	rows, rev := r.snapshot()
	return slices.AppendSeq(make([]*ipam.Lease, 0, rows.len()), rows.all()), rev
}

// snapshot returns the rows as they are now, to be read without a lock, and the
// revision of that.
func (r *Reader) snapshot() (rowset, int64) {
	defer r.opts.Failpoint("scan")
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tables.rowByAddr.snapshot(), r.tables.rev
}

// InState returns the rows in one state, in numeric order.
func (r *Reader) InState(s ipam.State) []*ipam.Lease {
	rows, _ := r.snapshot()
	var out []*ipam.Lease
	for l := range rows.all() {
		if l.State == s {
			out = append(out, l)
		}
	}
	return out
}

// Usage returns how the addresses of each pool are used, and the revision at which that was so.
func (r *Reader) Usage() ([]ipam.Usage, int64) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var out []ipam.Usage
	for _, pi := range r.tables.poolsInOrder {
		u := ipam.Usage{Pool: *pi.pool, Size: pi.size, Free: saturatingAdd(pi.free.Count(), pi.freed.Count()), Kept: uint64(len(pi.freeKept)), ByState: maps.Clone(pi.countByState),
			Outside: pi.rowsOutside, QuarantineCap: r.opts.quarantineCap(pi.size)}
		for a := range pi.offers {
			if r.tables.rowByAddr.at(a) == nil {
				u.Free = saturatingAdd(u.Free, 1)
			}
		}
		for _, pieces := range pi.offeredPrefixes {
			for _, f := range pieces {
				u.Free = saturatingAdd(u.Free, free.Saturated(f.Size()))
			}
		}
		out = append(out, u)
	}
	return out, r.tables.rev
}

func saturatingAdd(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return sum
}

// Runtime returns the id of the container runtime that the book knows: the one
// that its containers are in. It is "" before the first was noted.
func (r *Reader) Runtime() string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.tables.runtime
}

// Pools returns the pools as created.
func (r *Reader) Pools() []*ipam.Pool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := make([]*ipam.Pool, len(r.tables.poolsInOrder))
	for i, pi := range r.tables.poolsInOrder {
		out[i] = pi.pool
	}
	return out
}

// Place returns the pool of an address, whether it could be given, and if not, why.
func (r *Reader) Place(a netip.Addr) ipam.Place {
	r.mu.RLock()
	defer r.mu.RUnlock()
	pi := r.tables.poolOf(a)
	if l := r.tables.rowByAddr.at(a); l != nil {
		pi = r.tables.poolByUID[l.PoolUID] // a row outside its pool is still that pool's
	}
	w := r.tables.withheldAt(a)
	switch {
	case pi == nil && w != nil:
		return ipam.Place{Note: fmt.Sprintf("withheld since pool %s was removed", w.Pool), Withheld: w}
	case pi == nil:
		return ipam.Place{Note: "in no pool"}
	}
	note := pi.pool.OutsideAddr(a)
	if pi.isBlocked(a) {
		note = "named by a row that cannot be read"
	}
	return ipam.Place{Pool: pi.pool, Usable: note == "", Note: note, Kept: pi.keptFor[a], Withheld: w}
}

// Outside says why a lease's pool could not give the lease's address any more: the pool's prefix or
// exclusions have changed since. It is "" for a lease inside its pool. A lease outside is as valid
// as any, but its address is not given again.
func (r *Reader) Outside(l *ipam.Lease) string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if pi := r.tables.poolByUID[l.PoolUID]; pi != nil {
		return pi.pool.Outside(l)
	}
	return ""
}

// Withheld returns the addresses that a removed pool left withheld, and that no pool contains, in
// order.
func (r *Reader) Withheld() []ipam.Withheld {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.SortedFunc(maps.Values(r.tables.withheldByAddr), func(x, y ipam.Withheld) int { return x.Addr.Compare(y.Addr) })
}

// Sleep returns how a lease's sandbox is paused and woken, nil when nothing is recorded.
func (r *Reader) Sleep(leaseID string) *ipam.Sleep {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.tables.sleepByLeaseID[leaseID]
}

// Sleeps returns every sleep, in the order of the leases' ids.
func (r *Reader) Sleeps() []*ipam.Sleep {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return inLeaseOrder(r.tables.sleepByLeaseID)
}

// Slot returns the slot of a lease, nil of a lease that is none.
func (r *Reader) Slot(leaseID string) *ipam.Slot {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.tables.slotByLeaseID[leaseID]
}

// Slots returns every slot, in the order of the leases' ids: the oldest first.
func (r *Reader) Slots() []*ipam.Slot {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return inLeaseOrder(r.tables.slotByLeaseID)
}

// inLeaseOrder returns every row, in the order of the leases' ids: the oldest first.
func inLeaseOrder[T any](rows map[string]*T) (out []*T) {
	for _, id := range slices.Sorted(maps.Keys(rows)) {
		out = append(out, rows[id])
	}
	return out
}

// Unreadable returns the rows that could not be read.
func (r *Reader) Unreadable() []Unreadable {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Clone(r.tables.unreadable)
}
