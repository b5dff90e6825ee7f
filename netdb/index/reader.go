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
	return r.is.rev
}

// At returns the row that leases an address: its own, or that of the delegated prefix which
// contains it.
func (r *Reader) At(a netip.Addr) (*ipam.Lease, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	l := r.is.byAddr.at(a)
	return l, l != nil
}

// Lease returns the row with an id.
func (r *Reader) Lease(id string) (*ipam.Lease, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	l := r.is.byID[id]
	return l, l != nil
}

// Held returns the owner's open lease.
func (r *Reader) Held(o ipam.Owner) (*ipam.Lease, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	l := r.is.open(o)
	return l, l != nil
}

// OpenOf returns the open leases of a sandbox, in no order.
func (r *Reader) OpenOf(uid string) []*ipam.Lease {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.DeleteFunc(slices.Clone(r.is.byUID[uid]), func(l *ipam.Lease) bool { return !l.State.Open() })
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
	defer r.opts.Meet("scan")
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.is.byAddr.snapshot(), r.is.rev
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

// Usage returns what each pool holds, and the revision at which that was so.
func (r *Reader) Usage() ([]ipam.Usage, int64) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var out []ipam.Usage
	for _, pi := range r.is.order {
		u := ipam.Usage{Pool: *pi.pool, Size: pi.size, Free: saturatingAdd(pi.free.Count(), pi.freed.Count()), Kept: uint64(len(pi.kept)), ByState: maps.Clone(pi.count),
			Outside: pi.outside, QuarantineCap: r.opts.mostQuarantined(pi.size)}
		for h := range pi.offers {
			if r.is.byAddr.at(h) == nil {
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
	return out, r.is.rev
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
	return r.is.runtime
}

// Pools returns the pools as created.
func (r *Reader) Pools() []*ipam.Pool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := make([]*ipam.Pool, len(r.is.order))
	for i, pi := range r.is.order {
		out[i] = pi.pool
	}
	return out
}

// Place returns where an address lies.
func (r *Reader) Place(a netip.Addr) ipam.Place {
	r.mu.RLock()
	defer r.mu.RUnlock()
	pi := r.is.poolOf(a)
	if l := r.is.byAddr.at(a); l != nil {
		pi = r.is.pools[l.PoolUID] // also of a row outside it
	}
	w := r.is.withheldAt(a)
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

// Outside says why a lease's pool could not give its address any more: its prefix or its
// exclusions changed since. It is "" of a lease inside its pool. A lease outside is as
// valid as any, and its address is not given again.
func (r *Reader) Outside(l *ipam.Lease) string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if pi := r.is.pools[l.PoolUID]; pi != nil {
		return pi.pool.Outside(l)
	}
	return ""
}

// Withheld lists the addresses of removed pools that no pool has taken over, in their
// order.
func (r *Reader) Withheld() []ipam.Withheld {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.SortedFunc(maps.Values(r.is.withheld), func(x, y ipam.Withheld) int { return x.Addr.Compare(y.Addr) })
}

// Sleep returns how a lease's sandbox is paused and woken, nil when nothing is recorded.
func (r *Reader) Sleep(leaseID string) *ipam.Sleep {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.is.sleeps[leaseID]
}

// Sleeps returns every sleep, in the order of the leases' ids.
func (r *Reader) Sleeps() []*ipam.Sleep {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return byLease(r.is.sleeps)
}

// Slot returns the slot of a lease, nil of a lease that is none.
func (r *Reader) Slot(leaseID string) *ipam.Slot {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.is.slots[leaseID]
}

// Slots returns every slot, in the order of the leases' ids: the oldest first.
func (r *Reader) Slots() []*ipam.Slot {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return byLease(r.is.slots)
}

// byLease returns every row, in the order of the leases' ids: the oldest first.
func byLease[T any](rows map[string]*T) (out []*T) {
	for _, id := range slices.Sorted(maps.Keys(rows)) {
		out = append(out, rows[id])
	}
	return out
}

// Unreadable returns the rows that could not be read.
func (r *Reader) Unreadable() []Unreadable {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Clone(r.is.broken)
}
