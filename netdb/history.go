package netdb

import (
	"context"
	"net/netip"
	"strings"
	"time"
)

// A Query selects changes; every field that is set must match.
type Query struct {
	Addr    netip.Addr
	Sandbox string // a sandbox's name or uid
	LeaseID string
	Reason  string
	Since   time.Time // wall clock
	Before  int64     // revisions below this one; 0: all
	Limit   int       // 0: 1 000
}

// History returns the changes of leases and of attempts that a query selects,
// newest first. It reads
// the file, not memory, on a connection of its own, and may take as long as a
// scan of the kept history.
func (b *Book) History(ctx context.Context, q Query) ([]Change, error) {
	where, args := []string{"subject IN ('lease', 'attempt')"}, []any{}
	add := func(clause string, values ...any) {
		where, args = append(where, clause), append(args, values...)
	}
	if q.Addr.IsValid() {
		add("address = ?", q.Addr.String())
	}
	if q.Sandbox != "" {
		add("(sandbox = ? OR uid = ?)", q.Sandbox, q.Sandbox)
	}
	if q.LeaseID != "" {
		add("lease_id = ?", q.LeaseID)
	}
	if q.Reason != "" {
		add("reason = ?", q.Reason)
	}
	if !q.Since.IsZero() {
		add("wall >= ?", q.Since.UnixNano())
	}
	if q.Before > 0 {
		add("rev < ?", q.Before)
	}
	if q.Limit <= 0 {
		q.Limit = 1000
	}
	var out []Change
	err := each(ctx, b.reader(), `SELECT `+changeColumns+` FROM changes WHERE `+strings.Join(where, " AND ")+
		` ORDER BY rev DESC LIMIT ?`, func(s scanner) error {
		c, err := scanChange(s)
		if err != nil {
			return err
		}
		out = append(out, c)
		return nil
	}, append(args, q.Limit)...)
	return out, b.classify("read the history", err)
}
