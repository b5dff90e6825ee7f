package free

import (
	"iter"
	"math/big"
	"net/netip"

	"github.com/tidwall/btree"

	"github.com/ipamd/ipamd/internal/ranges"
)

// A Queue has addresses in the order in which they became free: ranges, because a delegated
// prefix becomes free as a whole. It is changed in place, by one caller at a time.
type Queue struct {
	byRev  *btree.BTreeG[Freed]
	byAddr *btree.BTreeG[Freed] // disjoint
	total  *big.Int             // of all ranges
}

// A Freed range became free at a revision; 0 when it was never given.
type Freed struct {
	ranges.Range
	Rev int64
}

// NewQueue returns an empty queue.
func NewQueue() Queue {
	return Queue{
		btree.NewBTreeGOptions(func(a, b Freed) bool {
			return a.Rev < b.Rev || a.Rev == b.Rev && a.From.Less(b.From)
		}, btree.Options{NoLocks: true}),
		btree.NewBTreeGOptions(func(a, b Freed) bool { return a.From.Less(b.From) }, btree.Options{NoLocks: true}),
		new(big.Int),
	}
}

// Add queues a range of which nothing is queued.
func (q Queue) Add(r ranges.Range, rev int64) {
	f := Freed{r, rev}
	q.byRev.Set(f)
	q.byAddr.Set(f)
	q.total.Add(q.total, r.Size())
}

func (q Queue) drop(f Freed) {
	q.byRev.Delete(f)
	q.byAddr.Delete(f)
	q.total.Sub(q.total, f.Size())
}

// holding returns the range that contains a.
func (q Queue) holding(a netip.Addr) (f Freed, ok bool) {
	q.byAddr.Descend(Freed{Range: from(a)}, func(item Freed) bool {
		f, ok = item, item.Contains(a)
		return false
	})
	return f, ok
}

// Remove takes an address out and returns the revision that made it free; 0
// when it is not in the queue.
func (q Queue) Remove(a netip.Addr) int64 {
	f, ok := q.holding(a)
	if !ok {
		return 0
	}
	q.cut(f, ranges.Between(a, a))
	return f.Rev
}

// Take takes out whatever of a range is queued, and returns that.
func (q Queue) Take(gone ranges.Range) (out []Freed) {
	for _, f := range q.Within(gone) {
		q.cut(f, gone)
		f.Range, _ = f.Clip(gone)
		out = append(out, f)
	}
	return out
}

// Within returns what overlaps a range, whole.
func (q Queue) Within(r ranges.Range) (out []Freed) {
	begin := r.From
	if f, ok := q.holding(begin); ok {
		begin = f.From
	}
	q.byAddr.Ascend(Freed{Range: from(begin)}, func(f Freed) bool {
		if r.To.Less(f.From) {
			return false
		}
		out = append(out, f)
		return true
	})
	return out
}

// cut takes gone out of f, which is one of the ranges and overlaps it.
func (q Queue) cut(f Freed, gone ranges.Range) {
	q.drop(f)
	for _, rest := range f.Without(gone) {
		q.Add(rest, f.Rev)
	}
}

// First returns the range that became free first, and leaves it there.
func (q Queue) First() (Freed, bool) { return q.byRev.Min() }

// Last returns the range that became free last.
func (q Queue) Last() (Freed, bool) { return q.byRev.Max() }

// Trim takes out those that became free first, until no more than most ranges are left, and
// returns them.
func (q Queue) Trim(most int) (out []Freed) {
	for q.Len() > most {
		first, _ := q.First()
		q.drop(first)
		out = append(out, first)
	}
	return out
}

// All yields every range, in the order of the queue.
func (q Queue) All() iter.Seq[Freed] {
	return func(yield func(Freed) bool) { q.byRev.Scan(yield) }
}

// Upcoming lists the first n addresses.
func (q Queue) Upcoming(n int) (out []netip.Addr) {
	q.byRev.Scan(func(f Freed) bool {
		for a := f.From; len(out) < n && a.IsValid() && f.Contains(a); a = a.Next() {
			out = append(out, a)
		}
		return len(out) < n
	})
	return out
}

// Has reports whether an address is queued.
func (q Queue) Has(a netip.Addr) bool {
	_, ok := q.holding(a)
	return ok
}

// Len is the number of ranges.
func (q Queue) Len() int { return q.byRev.Len() }

// Count is how many addresses are queued, at most 2^64-1.
func (q Queue) Count() uint64 { return Saturated(q.total) }

// Copy returns a queue that is changed apart from this one. It costs nothing until then.
func (q Queue) Copy() Queue {
	return Queue{q.byRev.IsoCopy(), q.byAddr.IsoCopy(), new(big.Int).Set(q.total)}
}
