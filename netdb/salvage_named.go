package netdb

import (
	"slices"
)

// apart leaves out the ranges that a row or another range has whole, and sorts the rest.
func apart(all []Range, rows []*Lease) (out []Range) {
	within := func(of Range) func(Range) bool {
		return func(r Range) bool { return r.Contains(of.From) && r.Contains(of.To) }
	}
	slices.SortFunc(all, func(x, y Range) int { return y.Size().Cmp(x.Size()) })
	for _, r := range all {
		has := func(l *Lease) bool { return within(r)(l.Range()) }
		if !slices.ContainsFunc(out, within(r)) && !slices.ContainsFunc(rows, has) {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(x, y Range) int { return x.From.Compare(y.From) })
	return out
}
