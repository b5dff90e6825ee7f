package netdb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/free"
	"github.com/ipamd/ipamd/netdb/sqlite"
)

// lastRev is the last revision of a book: its newest change is never pruned. Where
// all of them were deleted by hand, no row's revision is used again.
const lastRev = `coalesce((SELECT max(rev) FROM changes), (SELECT max(rev) FROM leases), 0)`

func (s *store) readIndex(ctx context.Context, q sqlite.Querier) (*index, error) {
	x := newIndex()
	x.mostFreed = cmp.Or(s.opts.mostFreed, x.mostFreed)
	x.mostTombs = cmp.Or(s.opts.mostTombs, x.mostTombs)
	if err := q.QueryRowContext(ctx, `SELECT runtime_id, `+lastRev+` FROM book`).Scan(&x.runtime, &x.rev); err != nil {
		return nil, err
	}
	for _, read := range []struct {
		query string
		row   func(sqlite.Scanner) error
	}{
		{`SELECT ` + poolColumns + ` FROM pools ORDER BY uid`, x.readPool},
		{`SELECT ` + leaseColumns + ` FROM leases`, x.readLease},
		{`SELECT ` + withheldColumns + ` FROM withheld`, x.readWithheld},
		{readPoolNames, x.readName},
		{readTombs, x.readTomb},
		{readHostNames, x.readHostName},
		{readSleeps, x.readSleep},
		{readSlots, x.readSlot},
		// The newest come first, so that what is left out became free before all that is queued.
		{`SELECT rev, pool_uid, address FROM changes WHERE to_state = 'free' ORDER BY rev DESC`, x.readFreed},
	} {
		if err := sqlite.Each(ctx, q, read.query, read.row); err != nil {
			return nil, err
		}
	}
	return x, x.readCursors(ctx, q)
}

func (x *index) readPool(s sqlite.Scanner) error {
	p, err := scanPool(s)
	if err != nil {
		return fmt.Errorf("%w: a pool: %w", ErrDamaged, err)
	}
	x.addPool(p)
	return nil
}

func (x *index) readLease(s sqlite.Scanner) error {
	l, named, err := scanLease(s)
	if err == nil && len(x.byAddr.overlapping(l.Range())) > 0 {
		err = fmt.Errorf("another row leases an address of %s", l.Text())
	}
	if err == nil && x.pools[l.PoolUID] == nil {
		err = errors.New("its pool " + l.PoolUID + " is unknown")
	}
	if err == nil && x.byID[l.ID] != nil {
		err = fmt.Errorf("its id %s is that of %s", l.ID, x.byID[l.ID].Addr)
	}
	if err != nil {
		pool := ""
		if l != nil {
			pool = l.PoolUID
		}
		x.unreadable(named, pool, err)
		return nil
	}
	l.Pool = x.pools[l.PoolUID].pool.Name
	x.rev = max(x.rev, l.Rev)
	x.apply(nil, l, l.Rev)
	return nil
}

func (x *index) readTomb(s sqlite.Scanner) error {
	uid, t, err := scanTomb(s)
	if err == nil {
		x.bury(uid, t)
	}
	return err
}

// readFreed queues an address that became free, as far as the queues have room.
func (x *index) readFreed(s sqlite.Scanner) error {
	var rev int64
	var uid, addr string
	if err := s.Scan(&rev, &uid, &addr); err != nil {
		return err
	}
	pi := x.pools[uid]
	a, bits, err := ipam.ParseText(addr)
	if err != nil || pi == nil {
		return nil
	}
	inside, outside := splitRange(&pi.pool.PoolSpec, ipam.RangeOf(a, bits))
	for _, in := range inside {
		if pi.freed.Len() < x.mostFreed {
			pi.queue(in, rev) // what has a row, or became free later, is not free
		}
	}
	for _, out := range outside {
		if pi.away.Len() >= x.mostFreed {
			break
		}
		for _, r := range free.Rest(out, x.takenIn(pi, out)...) {
			pi.sendAway(r, rev)
		}
	}
	return nil
}

func (x *index) readWithheld(s sqlite.Scanner) error {
	w, named, err := scanWithheld(s)
	if err == nil && !w.Addr.IsValid() {
		x.unreadable(named, "", fmt.Errorf("withheld since pool %s was removed: %q is not %x", w.Pool, named.text, named.ip))
		return nil
	}
	if err != nil {
		return err
	}
	if why := x.notWithheld(&w); why != "" {
		x.unreadable(named, "", fmt.Errorf("%s: withheld since pool %s was removed, and %s", WithheldHasNoRow, w.PoolUID, why))
		return nil
	}
	x.withheld[w.Addr] = w
	return nil
}

// notWithheld says of what is withheld which row has it, or which pool would give it; "" is none.
// Rows and pools come to be without what is withheld there, so this is damage.
func (x *index) notWithheld(w *ipam.Withheld) string {
	r := ipam.RangeOf(w.Addr, w.PrefixLen)
	if rows := x.byAddr.overlapping(r); len(rows) > 0 {
		return fmt.Sprintf("%s is %s in pool %s", rows[0].Text(), rows[0].State, rows[0].PoolUID)
	}
	if in := x.poolOf(w.Addr); in != nil && gives(&in.pool.PoolSpec, r) {
		return fmt.Sprintf("in pool %s, which would give it", in.pool.UID)
	}
	return ""
}

func (x *index) readName(s sqlite.Scanner) error {
	n, err := scanPoolName(s)
	x.names[nameKeyOf(&n)] = n
	return err
}

// cursorDepth bounds how far back the last hand-out of a pool is looked for.
const cursorDepth = 10_000

// readCursors lets the walk over the never-used go on where it was, so that a
// restart does not start again at the low addresses, which a large pool may have
// given and forgotten a moment ago. A pool that gave nothing of late goes on
// behind its youngest lease, by the time in its id, or behind what became free
// last.
func (x *index) readCursors(ctx context.Context, q sqlite.Querier) error {
	youngest := make(map[*poolIndex]*ipam.Lease)
	for l := range x.byAddr.all() {
		if pi := x.pools[l.PoolUID]; youngest[pi] == nil || youngest[pi].ID < l.ID {
			youngest[pi] = l
		}
	}
	for _, pi := range x.order {
		if l := youngest[pi]; l != nil {
			pi.cursor = l.Addr.Next()
		} else if f, ok := pi.freed.Last(); ok {
			pi.cursor = f.To.Next()
		}
	}
	return sqlite.Each(ctx, q, `SELECT pool_uid, address, max(rev) FROM changes
		WHERE rev > ?1 AND subject = 'lease' AND from_state = 'free' AND to_state = 'reserved' GROUP BY pool_uid`,
		func(s sqlite.Scanner) error {
			var uid, addr string
			var rev int64
			if err := s.Scan(&uid, &addr, &rev); err != nil {
				return err
			}
			if a, _, err := ipam.ParseText(addr); err == nil && x.pools[uid] != nil {
				x.pools[uid].cursor = a.Next()
			}
			return nil
		}, x.rev-cursorDepth)
}

// unreadable reports a row and keeps every address that it may mean from
// being handed out.
func (x *index) unreadable(n naming, pool string, why error) {
	u := Unreadable{Row: n.text, Reason: why.Error(), addrs: n.addrs(), ranges: n.ranges(), pool: pool}
	x.blockAll(u)
	x.broken = append(x.broken, u)
}

// A Version is the schema of a file that is read and not migrated: of a broken book, or of an
// earlier ipamd's. It has the query and the reading of each table.
type Version struct {
	Schema int  // its number; 0 where it cannot be read
	Old    bool // the last build before 0.1.0 made it
	Has    func(table, column string) bool
}

// A Table is how the rows of one are read, whole and each by itself.
type Table[T any] struct {
	Name  string // "": the version has none
	Query string // without an order
	By    string // the column to order by
	Scan  func(sqlite.Scanner) (T, error)
}

// A RowError is about one row that cannot be read. Any other error is about the file.
type RowError struct {
	Row string       // what names it, in words for a person
	Of  []ipam.Range // the addresses that it may be of, the largest ranges first
	Err error
}

func (e *RowError) Error() string { return e.Row + ": " + e.Err.Error() }

func (e *RowError) Unwrap() error { return e.Err }

// Leases are the rows of addresses, without their pools' names. What cannot be read is a [RowError].
func (v Version) Leases() Table[*ipam.Lease] {
	columns := leaseColumns
	if !v.Has("leases", "prefix_length") {
		columns = strings.Replace(columns, "prefix_length, last_ip", "NULL, NULL", 1)
	}
	if v.Old {
		columns = strings.Replace(columns, "ip, address", "key, ip", 1)
	}
	return Table[*ipam.Lease]{"leases", `SELECT ` + columns + ` FROM leases`, "ip", func(s sqlite.Scanner) (*ipam.Lease, error) {
		l, n, err := scanLease(s)
		if err != nil {
			return nil, &RowError{fmt.Sprintf("row %q", n.text), n.means(), err}
		}
		return l, nil
	}}
}

// Changes are those of addresses.
func (v Version) Changes() Table[ipam.Change] {
	columns := changeColumns
	if v.Old {
		columns = strings.Replace(columns, "address", "ip", 1)
	}
	return Table[ipam.Change]{"changes", `SELECT ` + columns + ` FROM changes WHERE subject = 'lease'`, "rev", scanChange}
}

// LeftBy is the row that a change left behind, as far as it says: without plumbing. It is nil where none was left.
func LeftBy(c *ipam.Change) *ipam.Lease {
	if !known(c.To) {
		return nil
	}
	l := &ipam.Lease{Addr: c.Addr, PrefixLen: c.PrefixLen, ID: c.LeaseID, PoolUID: c.PoolUID, State: c.To, Sandbox: c.Sandbox, UID: c.UID,
		Interface: c.Interface, Attempt: c.Attempt, Rev: c.Rev, Since: c.At, Evidence: c.Evidence, Reason: c.Who.Reason}
	if c.To == ipam.Quarantined && c.From != ipam.Releasing {
		l.Hold = c.Who.Note
	}
	return l
}

// Withheld are the addresses of removed pools. What cannot be read is a [RowError].
func (v Version) Withheld() Table[ipam.Withheld] {
	if v.Old || v.Schema == 1 { // a book of 0.1.0 has none
		return Table[ipam.Withheld]{}
	}
	columns := withheldColumns
	if !v.Has("withheld", "bridge") {
		columns = strings.Replace(columns, withheldPlumbing, "'', '', '', ''", 1)
	}
	return Table[ipam.Withheld]{"withheld", `SELECT ` + columns + ` FROM withheld`, "ip", func(s sqlite.Scanner) (ipam.Withheld, error) {
		w, n, err := scanWithheld(s)
		if err == nil && !w.Addr.IsValid() {
			err = fmt.Errorf("%q is not %x", n.text, n.ip)
		}
		if err != nil {
			err = &RowError{fmt.Sprintf("what is withheld of %q", n.text), n.means(), err}
		}
		return w, err
	}}
}

// Pools are those of the book. Of an [Version.Old] one the configuration has them.
func (v Version) Pools() Table[*ipam.Pool] {
	if v.Old {
		return Table[*ipam.Pool]{}
	}
	return Table[*ipam.Pool]{"pools", `SELECT ` + poolColumns + ` FROM pools`, "uid", scanPool}
}

// PoolNames is what is remembered of pools' names. A book of 0.1.0 has no such table: there the
// configuration was all that made a pool, see [ipam.Pool.Configured].
func (v Version) PoolNames() Table[ipam.PoolName] {
	if v.Old || v.Schema == 1 {
		return Table[ipam.PoolName]{}
	}
	return Table[ipam.PoolName]{"pool_names", readPoolNames, "name", scanPoolName}
}

// Configured is what is remembered of the pool's name where the configuration gave the pool as it is.
func Configured(p *ipam.Pool) ipam.PoolName {
	_, hash := encodeSpec(&p.PoolSpec)
	return ipam.PoolName{Name: p.Name, Family: p.Family(), Generation: 0, Configured: hash}
}

// HostNames are the interface names that are leased.
func (v Version) HostNames() Table[ipam.HostName] {
	if v.Old || v.Schema < 3 { // a book of then has none
		return Table[ipam.HostName]{}
	}
	return Table[ipam.HostName]{"interface_names", readHostNames, "rev", scanHostName}
}

// Sleeps is how paused sandboxes sleep. What cannot be read is a [RowError].
func (v Version) Sleeps() Table[*ipam.Sleep] {
	if v.Old || v.Schema < 5 { // a book of then has none
		return Table[*ipam.Sleep]{}
	}
	query := readSleeps
	if !v.Has("sleeps", "still") {
		query = strings.Replace(query, "still", "1", 1)
	}
	return Table[*ipam.Sleep]{"sleeps", query, "lease_id", func(s sqlite.Scanner) (*ipam.Sleep, error) {
		how, bad, err := scanSleep(s)
		if bad != nil {
			return nil, &RowError{Row: "the sleep of lease " + how.LeaseID, Err: bad}
		}
		return how, err
	}}
}

// A CancelledAttempt is one of which no allocation may follow, nor one of an attempt
// before it, for [Options.Tombstone] since At.
type CancelledAttempt struct {
	UID     string
	Attempt int64
	At      ipam.Stamp
}

// Cancelled are the attempts of which no allocation may follow.
func (v Version) Cancelled() Table[CancelledAttempt] {
	if v.Old {
		return Table[CancelledAttempt]{}
	}
	return Table[CancelledAttempt]{"tombstones", readTombs, "uid", func(s sqlite.Scanner) (CancelledAttempt, error) {
		uid, t, err := scanTomb(s)
		return CancelledAttempt{uid, t.attempt, t.at}, err
	}}
}

// EndOf reads the epoch and the last revision of a file of whatever version.
func EndOf(ctx context.Context, q sqlite.Querier) (epoch string, rev int64, err error) {
	err = q.QueryRowContext(ctx, `SELECT epoch, `+lastRev+` FROM book`).Scan(&epoch, &rev)
	return epoch, rev, err
}
