package netdb

import (
	"context"
	"fmt"
	"strings"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/index"
	"github.com/ipamd/ipamd/netdb/sqlite"
)

// lastRev is the last revision of a book: its newest change is never pruned. Where
// all of them were deleted by hand, no row's revision is used again.
const lastRev = `coalesce((SELECT max(rev) FROM changes), (SELECT max(rev) FROM leases), 0)`

// A loading reads the rows of a book into an index.
type loading struct{ *index.Builder }

func (s *store) readIndex(ctx context.Context, q sqlite.Querier) (*index.Index, error) {
	var rev int64
	var runtime string
	if err := q.QueryRowContext(ctx, `SELECT runtime_id, `+lastRev+` FROM book`).Scan(&runtime, &rev); err != nil {
		return nil, err
	}
	l := loading{index.NewBuilder(s.opts.index(), rev, runtime)}
	for _, read := range []struct {
		query string
		row   func(sqlite.Scanner) error
	}{
		{`SELECT ` + poolColumns + ` FROM pools ORDER BY uid`, l.pool},
		{`SELECT ` + leaseColumns + ` FROM leases`, l.lease},
		{`SELECT ` + withheldColumns + ` FROM withheld`, l.withheld},
		{readPoolNames, l.name},
		{readTombstones, l.tomb},
		{readHostNames, l.hostName},
		{readSleeps, l.sleep},
		{readSlots, l.slot},
		{`SELECT rev, pool_uid, address FROM changes WHERE to_state = 'free' ORDER BY rev DESC`, l.freed},
	} {
		if err := sqlite.Each(ctx, q, read.query, read.row); err != nil {
			return nil, err
		}
	}
	if err := sqlite.Each(ctx, q, readGiven, l.given, l.Rev()-givenDepth); err != nil {
		return nil, err
	}
	return l.Index(), nil
}

func (l loading) pool(s sqlite.Scanner) error {
	p, err := scanPool(s)
	if err != nil {
		return fmt.Errorf("%w: a pool: %w", ErrDamaged, err)
	}
	l.Pool(p)
	return nil
}

func (l loading) lease(s sqlite.Scanner) error {
	row, named, err := scanLease(s)
	if err == nil {
		err = l.Lease(row)
	}
	if err != nil {
		pool := ""
		if row != nil {
			pool = row.PoolUID
		}
		l.unreadable(named, pool, err)
	}
	return nil
}

func (l loading) tomb(s sqlite.Scanner) error {
	uid, t, err := scanTombstone(s)
	if err == nil {
		l.Tombstone(uid, t)
	}
	return err
}

func (l loading) freed(s sqlite.Scanner) error {
	var rev int64
	var uid, addr string
	if err := s.Scan(&rev, &uid, &addr); err != nil {
		return err
	}
	if a, bits, err := ipam.ParseText(addr); err == nil {
		l.Freed(uid, ipam.RangeOf(a, bits), rev)
	}
	return nil
}

func (l loading) withheld(s sqlite.Scanner) error {
	w, named, err := scanWithheld(s)
	if err == nil && !w.Addr.IsValid() {
		l.unreadable(named, "", fmt.Errorf("withheld since pool %s was removed: %q is not %x", w.Pool, named.text, named.ip))
		return nil
	}
	if err != nil {
		return err
	}
	if err := l.Withheld(w); err != nil {
		l.unreadable(named, "", fmt.Errorf("%s: withheld since pool %s was removed, and %w", WithheldHasNoRow, w.PoolUID, err))
	}
	return nil
}

func (l loading) name(s sqlite.Scanner) error {
	n, err := scanPoolName(s)
	l.PoolName(n)
	return err
}

func (l loading) hostName(s sqlite.Scanner) error {
	n, err := scanHostName(s)
	l.HostName(n)
	return err
}

// sleep reads a row. One that means nothing to this build is reported and skipped: its
// lease is then paused without a policy, and a call can wake it.
func (l loading) sleep(s sqlite.Scanner) error {
	how, bad, err := scanSleep(s)
	if err != nil {
		return err
	}
	if bad == nil {
		bad = l.Sleep(how)
	}
	if bad != nil {
		l.unreadable(naming{text: "sleep of " + how.LeaseID}, "", bad)
	}
	return nil
}

// slot reads a row. One that means nothing to this build is reported and skipped.
func (l loading) slot(s sqlite.Scanner) error {
	slot, err := scanSlot(s)
	if err != nil {
		return err
	}
	if err := l.Slot(slot); err != nil {
		l.unreadable(naming{text: "slot of " + slot.LeaseID}, "", err)
	}
	return nil
}

// givenDepth bounds how far back the last hand-out of a pool is looked for.
const givenDepth = 10_000

const readGiven = `SELECT pool_uid, address, max(rev) FROM changes
	WHERE rev > ?1 AND subject = 'lease' AND from_state = 'free' AND to_state = 'reserved' GROUP BY pool_uid`

func (l loading) given(s sqlite.Scanner) error {
	var uid, addr string
	var rev int64
	if err := s.Scan(&uid, &addr, &rev); err != nil {
		return err
	}
	if a, _, err := ipam.ParseText(addr); err == nil {
		l.LastGiven(uid, a)
	}
	return nil
}

// unreadable reports a row and keeps every address that it may mean from
// being handed out.
func (l loading) unreadable(n naming, pool string, why error) {
	l.Unreadable(index.Unreadable{Row: n.text, Reason: why.Error(), Addrs: n.addrs(), Ranges: n.ranges(), Pool: pool})
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
	return Table[CancelledAttempt]{"tombstones", readTombstones, "uid", func(s sqlite.Scanner) (CancelledAttempt, error) {
		uid, t, err := scanTombstone(s)
		return CancelledAttempt{uid, t.Attempt, t.At}, err
	}}
}

// EndOf reads the epoch and the last revision of a file of whatever version.
func EndOf(ctx context.Context, q sqlite.Querier) (epoch string, rev int64, err error) {
	err = q.QueryRowContext(ctx, `SELECT epoch, `+lastRev+` FROM book`).Scan(&epoch, &rev)
	return epoch, rev, err
}
