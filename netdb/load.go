package netdb

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// statements are bound to the one connection that writes: BEGIN and COMMIT as
// unprepared calls added 40-60 µs to each commit.
type statements struct {
	begin, commit, rollback                                      *sql.Stmt
	insertLease, updateLease, replaceLease, deleteLease          *sql.Stmt
	insertChange, upsertPool, upsertTomb, pruneRows, pruneTombs  *sql.Stmt
	noteRuntime, touch, untouch, measureLog, foldLog, restartLog *sql.Stmt

	all []*sql.Stmt
}

func (b *opening) prepare(ctx context.Context) error {
	if b.opts.ReadOnly {
		return nil
	}
	for stmt, text := range map[**sql.Stmt]string{
		&b.sql.begin:        `BEGIN IMMEDIATE`,
		&b.sql.commit:       `COMMIT`,
		&b.sql.rollback:     `ROLLBACK`,
		&b.sql.insertLease:  insertLease,
		&b.sql.updateLease:  updateLease,
		&b.sql.replaceLease: replaceLease,
		&b.sql.deleteLease:  deleteLease,
		&b.sql.insertChange: insertChange,
		&b.sql.upsertPool:   upsertPool,
		&b.sql.upsertTomb: `INSERT INTO tombstones (uid, attempt, rev, wall, boottime, boot_id) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
			ON CONFLICT (uid) DO UPDATE SET (attempt, rev, wall, boottime, boot_id) = (?2, ?3, ?4, ?5, ?6)`,
		&b.sql.pruneRows:   `DELETE FROM changes WHERE rev <= ?1`,
		&b.sql.pruneTombs:  `DELETE FROM tombstones WHERE uid = ?1`,
		&b.sql.noteRuntime: `UPDATE book SET runtime_id = ?1`,
		&b.sql.touch:       `UPDATE book SET boot_id = boot_id || ' '`,
		&b.sql.untouch:     `UPDATE book SET boot_id = rtrim(boot_id)`,
		&b.sql.measureLog:  `PRAGMA wal_checkpoint(NOOP)`,
		&b.sql.foldLog:     `PRAGMA wal_checkpoint(PASSIVE)`,
		&b.sql.restartLog:  `PRAGMA wal_checkpoint(RESTART)`,
	} {
		prepared, err := b.conn.PrepareContext(ctx, text)
		if err != nil {
			return b.classify("prepare", err)
		}
		*stmt, b.sql.all = prepared, append(b.sql.all, prepared)
	}
	return nil
}

func (s *statements) close() error {
	var errs []error
	for _, stmt := range s.all {
		errs = append(errs, stmt.Close())
	}
	return errors.Join(errs...)
}

// loadOnce reads the book unless that was done when it was accepted.
func (b *opening) loadOnce(ctx context.Context) error {
	if b.idx != nil {
		return nil
	}
	return b.load(ctx)
}

// load reads the whole book into a new index.
func (b *Book) load(ctx context.Context) error {
	idx, err := b.readIndex(ctx, b.conn)
	if err != nil {
		return b.classify("read", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.idx != nil {
		for uid, was := range b.idx.pools {
			if pi := idx.pools[uid]; pi != nil {
				pi.takeHolds(was)
			}
		}
	}
	if b.idx == nil {
		b.upkeep.pruneAt = idx.rev + pruneEvery
	}
	b.idx = idx
	return nil
}

// reload throws the index away and loads it again. When the file cannot even
// be read, the index stays: it is what was last known to be durable. A disk that
// takes its time is waited for: with a deadline a book that was slow to read was
// called one that cannot be written.
func (b *Book) reload() {
	if err := safely(func() error { return b.load(context.Background()) }); err != nil {
		b.cannotWrite(err)
	}
}

type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// lastRev is the last revision of a book: its newest change is never pruned. Where
// all of them were deleted by hand, no row's revision is used again.
const lastRev = `coalesce((SELECT max(rev) FROM changes), (SELECT max(rev) FROM leases), 0)`

func (b *Book) readIndex(ctx context.Context, q querier) (*index, error) {
	x := newIndex()
	x.mostFreed = cmp.Or(b.opts.mostFreed, x.mostFreed)
	x.mostTombs = cmp.Or(b.opts.mostTombs, x.mostTombs)
	if err := q.QueryRowContext(ctx, `SELECT runtime_id, `+lastRev+` FROM book`).Scan(&x.runtime, &x.rev); err != nil {
		return nil, err
	}
	if err := each(ctx, q, `SELECT `+poolColumns+` FROM pools ORDER BY uid`, func(s scanner) error {
		p, err := scanPool(s)
		if err != nil {
			return fmt.Errorf("%w: a pool: %w", ErrDamaged, err)
		}
		x.addPool(p)
		return nil
	}); err != nil {
		return nil, err
	}
	if err := each(ctx, q, `SELECT `+leaseColumns+` FROM leases`, func(s scanner) error {
		l, named, err := scanLease(s)
		if err == nil && x.pools[l.PoolUID] == nil {
			err = errors.New("its pool " + l.PoolUID + " is unknown")
		}
		if err == nil && x.byID[l.ID] != nil {
			err = fmt.Errorf("its id %s is that of %s", l.ID, x.byID[l.ID].Addr)
		}
		if err != nil {
			x.unreadable(named, err)
			return nil
		}
		l.Pool = x.pools[l.PoolUID].pool.Name
		x.rev = max(x.rev, l.Rev)
		x.apply(nil, l, l.Rev)
		return nil
	}); err != nil {
		return nil, err
	}
	if err := each(ctx, q, `SELECT uid, attempt, rev, wall, boottime, boot_id FROM tombstones`, func(s scanner) error {
		var uid string
		var t tombstone
		var wall, boot int64
		if err := s.Scan(&uid, &t.attempt, &t.rev, &wall, &boot, &t.at.BootID); err != nil {
			return err
		}
		t.at.Wall, t.at.Boottime = time.Unix(0, wall), time.Duration(boot)
		x.bury(uid, t)
		return nil
	}); err != nil {
		return nil, err
	}
	if err := x.readFreed(ctx, q); err != nil {
		return nil, err
	}
	return x, x.readCursors(ctx, q)
}

// readFreed queues the addresses that became free, as far back as the history
// goes and the queues have room. The newest come first, so that what is left out
// became free before all that is queued.
func (x *index) readFreed(ctx context.Context, q querier) error {
	return each(ctx, q, `SELECT rev, pool_uid, address FROM changes WHERE to_state = 'free' ORDER BY rev DESC`,
		func(s scanner) error {
			var rev int64
			var uid, addr string
			if err := s.Scan(&rev, &uid, &addr); err != nil {
				return err
			}
			pi := x.pools[uid]
			if a, err := netip.ParseAddr(addr); err == nil && pi != nil && pi.freed.len() < x.mostFreed && pi.free.remove(a) {
				pi.freed.add(a, rev)
			}
			return nil
		})
}

// cursorDepth bounds how far back the last hand-out of a pool is looked for.
const cursorDepth = 10_000

// readCursors lets the walk over the never-used go on where it was, so that a
// restart does not start again at the low addresses, which a large pool may have
// given and forgotten a moment ago. A pool that gave nothing of late goes on
// behind its youngest lease, by the time in its id, or behind what became free
// last.
func (x *index) readCursors(ctx context.Context, q querier) error {
	youngest := make(map[*poolIndex]*Lease)
	for l := range x.byAddr.all() {
		if pi := x.pools[l.PoolUID]; youngest[pi] == nil || youngest[pi].ID < l.ID {
			youngest[pi] = l
		}
	}
	for _, pi := range x.order {
		if l := youngest[pi]; l != nil {
			pi.cursor = l.Addr.Next()
		} else if _, a, ok := pi.freed.byRev.Max(); ok {
			pi.cursor = a.Next()
		}
	}
	return each(ctx, q, `SELECT pool_uid, address, max(rev) FROM changes
		WHERE rev > ?1 AND subject = 'lease' AND from_state = 'free' AND to_state = 'reserved' GROUP BY pool_uid`,
		func(s scanner) error {
			var uid, addr string
			var rev int64
			if err := s.Scan(&uid, &addr, &rev); err != nil {
				return err
			}
			if a, err := netip.ParseAddr(addr); err == nil && x.pools[uid] != nil {
				x.pools[uid].cursor = a.Next()
			}
			return nil
		}, x.rev-cursorDepth)
}

// unreadable reports a row and keeps every address that it may mean from
// being handed out.
func (x *index) unreadable(n naming, why error) {
	u := Unreadable{Row: n.text, Reason: why.Error(), addrs: n.addrs()}
	for _, a := range u.addrs {
		x.wall(a)
	}
	x.broken = append(x.broken, u)
}

func each(ctx context.Context, q querier, query string, row func(scanner) error, args ...any) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

const (
	poolColumns = `uid, name, family, generation, prefix, gateway, bridge, spec, spec_hash, state,
		created_wall, created_boot, created_boot_id`
	upsertPool = `INSERT INTO pools (` + poolColumns + `) VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13)
		ON CONFLICT (uid) DO UPDATE SET (` + poolColumns + `) = (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13)`
)

func (p *Pool) row() []any {
	spec, hash := p.encode()
	return []any{p.UID, p.Name, p.family(), p.Generation, p.Prefix.String(), addrText(p.Gateway), p.Bridge,
		spec, hash, p.State, p.Created.Wall.UnixNano(), int64(p.Created.Boottime), p.Created.BootID}
}

func scanPool(s scanner) (*Pool, error) {
	var (
		p                                   Pool
		name, prefix, gateway, bridge, spec string
		hash                                string
		family                              int
		wall, boot                          int64
	)
	if err := s.Scan(&p.UID, &name, &family, &p.Generation, &prefix, &gateway, &bridge, &spec, &hash, &p.State,
		&wall, &boot, &p.Created.BootID); err != nil {
		return nil, err
	}
	p.Created.Wall, p.Created.Boottime = time.Unix(0, wall), time.Duration(boot)
	// No index covers these bytes, so SQLite's own check would pass a flipped
	// one, and addresses of another prefix would be handed out.
	if sum := specHash(spec); sum != hash {
		return nil, fmt.Errorf("%s: what describes it has the sum %.12s…, not %.12s…", name, sum, hash)
	}
	return &p, json.Unmarshal([]byte(spec), &p.PoolSpec)
}
