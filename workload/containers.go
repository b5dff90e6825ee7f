package workload

import (
	"net/netip"
	"slices"

	"github.com/ipamd/ipamd/ipam"
)

// Containers finds containers by what ties one to a lease. T is how a room keeps
// them; one container may be kept several times.
type Containers[T comparable] struct {
	record    func(T) Record
	byID      map[ipam.Container][]T
	byLease   map[string][]T
	bySandbox map[string][]T
}

// NewContainers returns an index that has all.
func NewContainers[T comparable](record func(T) Record, all []T) *Containers[T] {
	c := &Containers[T]{record: record, byID: make(map[ipam.Container][]T), byLease: make(map[string][]T), bySandbox: make(map[string][]T)}
	for _, one := range all {
		c.Add(one)
	}
	return c
}

// Add takes one in.
func (c *Containers[T]) Add(one T) {
	r := c.record(one)
	c.byID[r.Container] = append(c.byID[r.Container], one)
	if r.LeaseID != "" {
		c.byLease[r.LeaseID] = append(c.byLease[r.LeaseID], one)
	}
	if r.Sandbox != "" {
		c.bySandbox[r.Sandbox] = append(c.bySandbox[r.Sandbox], one)
	}
}

// Drop takes one out, whose record has not changed since it was added.
func (c *Containers[T]) Drop(one T) {
	r := c.record(one)
	drop(c.byID, r.Container, one)
	drop(c.byLease, r.LeaseID, one)
	drop(c.bySandbox, r.Sandbox, one)
}

func drop[K, T comparable](from map[K][]T, key K, one T) {
	left := slices.DeleteFunc(from[key], func(t T) bool { return t == one })
	if len(left) == 0 {
		delete(from, key)
		return
	}
	from[key] = left
}

// Len is how many containers there are.
func (c *Containers[T]) Len() int { return len(c.byID) }

// Each yields all, in no order.
func (c *Containers[T]) Each(yield func(T) bool) {
	for _, found := range c.byID {
		for _, one := range found {
			if !yield(one) {
				return
			}
		}
	}
}

// At returns what is kept under a container's id.
func (c *Containers[T]) At(id ipam.Container) []T { return c.byID[id] }

// Of returns those that belong to a lease, as [Leases.Judge] has it. What else
// the book has is in x.
func (c *Containers[T]) Of(l *ipam.Lease, x *Leases) []T {
	var out []T
	add := func(found []T) {
		for _, one := range found {
			if !slices.Contains(out, one) && x.Judge(l, c.record(one)) == Ours {
				out = append(out, one)
			}
		}
	}
	for _, id := range l.Containers {
		add(c.byID[id])
	}
	tie := TieOf(l)
	add(c.byLease[tie.LeaseID])
	for _, name := range tie.Owners {
		add(c.bySandbox[name])
	}
	return out
}

// A Tie is by what a container may belong to a lease: its id, its lease label, or
// its owner label. Nothing that a tie does not hold belongs to the lease.
type Tie struct {
	Addr    netip.Addr // of the lease, for those who ask about that, too
	LeaseID string
	Owners  []string
	IDs     []string // in any namespace
}

// TieOf returns by what a container may belong to l.
func TieOf(l *ipam.Lease) Tie {
	t := Tie{Addr: l.Addr, LeaseID: l.ID}
	if l.Sandbox != "" {
		t.Owners = append(t.Owners, l.Sandbox)
	}
	if l.UID != "" && l.UID != l.Sandbox {
		t.Owners = append(t.Owners, l.UID)
	}
	for _, c := range l.Containers {
		t.IDs = append(t.IDs, c.ID)
	}
	return t
}
