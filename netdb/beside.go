package netdb

import (
	"database/sql"
	"maps"
	"slices"
)

// A beside is what a step does to a table whose rows belong to leases, at most one to each,
// by their ids: the sleeps, and the slots. A row is recorded with a change of its lease, and
// ends with one.
type beside[T any] struct {
	ended string // the lease whose row ends first; "": none
	lease string // of row
	row   *T     // recorded; nil: none
}

// stage makes the staged rows agree, of which nil has ended.
func (b beside[T]) stage(staged map[string]*T) {
	if b.ended != "" {
		staged[b.ended] = nil
	}
	if b.row != nil {
		staged[b.lease] = b.row
	}
}

// apply makes the rows in memory agree.
func (b beside[T]) apply(rows map[string]*T) {
	if b.ended != "" {
		delete(rows, b.ended)
	}
	if b.row != nil {
		rows[b.lease] = b.row
	}
}

// write stores it. what names a row.
func (b beside[T]) write(s *store, what string, upsert, end *sql.Stmt, columns func(*T) []any) error {
	if b.ended != "" {
		if _, err := end.Exec(b.ended); err != nil {
			return s.Classify("end the "+what+" of "+b.ended, err)
		}
	}
	if b.row != nil {
		if _, err := upsert.Exec(columns(b.row)...); err != nil {
			return s.Classify("store the "+what+" of "+b.lease, err)
		}
	}
	return nil
}

// byLease returns every row, in the order of the leases' ids: the oldest first.
func byLease[T any](rows map[string]*T) (out []*T) {
	for _, id := range slices.Sorted(maps.Keys(rows)) {
		out = append(out, rows[id])
	}
	return out
}
