package netdb

import (
	"iter"
	"net/netip"

	"github.com/tidwall/btree"
)

// A rowset is the rows of a book by their addresses, in numeric order. A
// snapshot costs the same for one row and for 60 000, because it shares all that
// does not change afterwards: whoever reads all rows holds no lock meanwhile,
// and no commit waits for it.
type rowset struct{ rows *btree.BTreeG[addressed] }

type addressed struct {
	addr  netip.Addr
	lease *Lease
}

func newRowset() rowset {
	return rowset{btree.NewBTreeGOptions(
		func(a, b addressed) bool { return a.addr.Less(b.addr) },
		btree.Options{NoLocks: true})}
}

// at returns the row of an address, or nil.
func (s rowset) at(a netip.Addr) *Lease {
	row, _ := s.rows.Get(addressed{addr: a})
	return row.lease
}

func (s rowset) set(l *Lease) { s.rows.Set(addressed{l.Addr, l}) }

func (s rowset) remove(a netip.Addr) { s.rows.Delete(addressed{addr: a}) }

func (s rowset) len() int { return s.rows.Len() }

// all yields every row. A set that another goroutine changes meanwhile is read
// by a snapshot.
func (s rowset) all() iter.Seq[*Lease] {
	return func(yield func(*Lease) bool) {
		s.rows.Scan(func(row addressed) bool { return yield(row.lease) })
	}
}

// snapshot returns the rows as they are now. It changes the set that it is
// taken from, as a writer does.
func (s rowset) snapshot() rowset { return rowset{s.rows.IsoCopy()} }
