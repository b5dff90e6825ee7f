package netdb

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"time"
)

// A Query selects changes; every field that is set must match.
type Query struct {
	Addr    netip.Addr
	Sandbox string // a sandbox's name or uid
	LeaseID string
	Since   time.Time // wall clock
	Limit   int       // 0: 1 000
}

// History returns the changes that a query selects, newest first. It reads
// the file, not memory, on a connection of its own, and may take as long as a
// scan of the kept history.
func (b *Book) History(ctx context.Context, q Query) ([]Change, error) {
	where, args := []string{"subject = 'lease'"}, []any{}
	add := func(clause string, values ...any) {
		where, args = append(where, clause), append(args, values...)
	}
	if q.Addr.IsValid() {
		add("ip = ?", q.Addr.String())
	}
	if q.Sandbox != "" {
		add("(sandbox = ? OR uid = ?)", q.Sandbox, q.Sandbox)
	}
	if q.LeaseID != "" {
		add("lease_id = ?", q.LeaseID)
	}
	if !q.Since.IsZero() {
		add("wall >= ?", q.Since.UnixNano())
	}
	if q.Limit <= 0 {
		q.Limit = 1000
	}
	var out []Change
	err := each(ctx, b.readers, `SELECT `+changeColumns+` FROM changes WHERE `+strings.Join(where, " AND ")+
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

// pruneEvery is how many revisions pass between two looks at the old end of
// the history.
const pruneEvery = 1000

// errYoung ends the walk over old changes: those behind are younger still.
var errYoung = errors.New("not old enough")

// prune lets changes go that are beyond the kept count or age, and tombstones
// that no longer stand. It runs between commits; an error
// leaves the rows for the next time.
func (b *Book) prune() {
	now := b.opts.Now()
	upTo := b.idx.rev - int64(b.opts.KeepChanges)
	err := each(context.Background(), b.conn, `SELECT rev, boottime, boot_id FROM changes ORDER BY rev LIMIT ?1`,
		func(s scanner) error {
			var at Stamp
			var rev, boot int64
			if err := s.Scan(&rev, &boot, &at.BootID); err != nil {
				return err
			}
			at.Boottime = time.Duration(boot)
			if now.Since(at) < b.opts.KeepFor {
				return errYoung
			}
			upTo = max(upTo, rev)
			return nil
		}, 2*pruneEvery)
	if errors.Is(err, errYoung) {
		err = nil
	}
	if err == nil && upTo > 0 {
		b.sql.pruneRows.Exec(upTo)
	}
	b.memory.forget()
	for uid, stone := range b.idx.tombs {
		if now.Since(stone.at) >= b.opts.Tombstone {
			if _, err := b.sql.pruneTombs.Exec(uid); err == nil {
				b.mu.Lock()
				delete(b.idx.tombs, uid)
				b.mu.Unlock()
			}
		}
	}
}
