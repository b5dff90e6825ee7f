package index

import (
	"iter"
	"net/netip"

	"github.com/tidwall/btree"

	"github.com/ipamd/ipamd/ipam"
)

// A rowset has the rows of a book by their first addresses, in numeric order. A
// snapshot costs the same for one row and for 60 000, because it shares all that
// does not change afterwards: a reader of all rows holds no lock meanwhile,
// and no commit waits for it.
type rowset struct{ rows *btree.BTreeG[addressed] }

type addressed struct {
	addr  netip.Addr
	lease *ipam.Lease
}

func newRowset() rowset {
	return rowset{btree.NewBTreeGOptions(
		func(a, b addressed) bool { return a.addr.Less(b.addr) },
		btree.Options{NoLocks: true})}
}

// at returns the row that leases an address, or nil: its own, or that of the delegated prefix
// which contains it.
func (s rowset) at(a netip.Addr) (l *ipam.Lease) {
	if row, ok := s.rows.Get(addressed{addr: a}); ok {
		return row.lease
	}
	s.rows.Descend(addressed{addr: a}, func(row addressed) bool {
		if row.lease.Covers(a) {
			l = row.lease
		}
		return false
	})
	return l
}

// overlapping returns the rows that lease an address of a range, in order.
func (s rowset) overlapping(r ipam.Range) (out []*ipam.Lease) {
	if l := s.at(r.From); l != nil && l.Addr.Less(r.From) {
		out = append(out, l)
	}
	s.rows.Ascend(addressed{addr: r.From}, func(row addressed) bool {
		if r.To.Less(row.addr) {
			return false
		}
		out = append(out, row.lease)
		return true
	})
	return out
}

func (s rowset) set(l *ipam.Lease) { s.rows.Set(addressed{l.Addr, l}) }

func (s rowset) remove(a netip.Addr) { s.rows.Delete(addressed{addr: a}) }

func (s rowset) len() int { return s.rows.Len() }

// all yields every row. A set that another goroutine may change meanwhile has to be read
// through a snapshot.
func (s rowset) all() iter.Seq[*ipam.Lease] {
	return func(yield func(*ipam.Lease) bool) {
		s.rows.Scan(func(row addressed) bool { return yield(row.lease) })
	}
}

// snapshot returns the rows as they are now. It changes the set that it is
// taken from, as a writer does.
func (s rowset) snapshot() rowset { return rowset{s.rows.IsoCopy()} }
