package netdb

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ipamd/ipamd/netdb/bookfile"
)

// A Checked is what a check of a running book found, and the moment that it is about.
type Checked struct {
	Found []Violation // nil: it is whole
	Rows  int         // addresses with a row
	Rev   int64
	Epoch string
}

// CheckNow walks every invariant of the book while changes go on, on a connection that
// can only read. It is about one revision: commits wait while what is in memory is
// copied, which takes some milliseconds for 60 000 leases, and not for the reading. One is
// made at a time, else the answer is [ErrState].
func (b *Book) CheckNow(ctx context.Context) (out Checked, err error) {
	if !b.checking.TryLock() {
		return out, fmt.Errorf("check the book: %w: another check is being made", ErrState)
	}
	defer b.checking.Unlock()
	select {
	case <-b.writer.closing:
		return out, ErrClosed
	default:
	}
	if err := b.store.Look(bookfile.AllFiles); err != nil {
		return out, err // another book may lie where its own did
	}
	conn, err := b.store.Readers.Conn(ctx)
	if err != nil {
		return out, b.store.Classify("check", err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, `BEGIN`); err != nil {
		return out, b.store.Classify("check", err)
	}
	defer func() {
		// The connection is used again: no transaction may stay open in it, which would
		// keep the log from being folded.
		_, end := conn.ExecContext(context.Background(), `ROLLBACK`)
		err = errors.Join(err, b.store.Classify("check", end))
	}()
	c := &checker{store: b.store, conn: conn}
	if err := b.writer.lock(ctx); err != nil {
		return out, fmt.Errorf("check the book: %w", err)
	}
	var schema int
	err = conn.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_master`).Scan(&schema) // from here on it reads this revision
	c.mem, out.Epoch = b.memory.copied(), b.store.whose().Epoch
	b.writer.unlock()
	if err != nil {
		return out, b.store.Classify("check", err)
	}
	out.Rows, out.Rev = c.mem.idx.byAddr.len(), c.mem.idx.rev
	switch out.Found, err = c.all(ctx); {
	case ctx.Err() != nil:
		err = fmt.Errorf("check the book: %w", ctx.Err())
	case errors.Is(err, ErrDamaged):
		out.Found, err = append(c.found, Violation{FileIsWhole, err.Error()}), nil
	}
	return out, err
}

// copied returns a copy that no commit changes. For the lock holder of the [writer].
func (m *memory) copied() *memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := *m.idx
	x.byAddr = x.byAddr.snapshot()
	x.hostNames, x.hostNameOf = maps.Clone(x.hostNames), maps.Clone(x.hostNameOf)
	x.sleeps = maps.Clone(x.sleeps)
	x.slots = maps.Clone(x.slots)
	x.tombs, x.names, x.withheld = maps.Clone(x.tombs), maps.Clone(x.names), maps.Clone(x.withheld)
	x.byID, x.byUID, x.stones = nil, nil, nil // they are not compared
	x.order, x.pools = nil, make(map[string]*poolIndex, len(m.idx.pools))
	for _, pi := range m.idx.order {
		p := pi.copied()
		x.order, x.pools[p.pool.UID] = append(x.order, p), p
	}
	x.broken = slices.Clone(x.broken)
	return &memory{opts: m.opts, clock: m.clock, idx: &x}
}
