package netdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/bookfile"
	"github.com/ipamd/ipamd/netdb/index"
	"github.com/ipamd/ipamd/netdb/sqlite"
)

// A Violation is one broken invariant.
type Violation struct {
	Invariant string
	Detail    string
}

func (v Violation) String() string { return v.Invariant + ": " + v.Detail }

// The invariants that Check walks, by name: of the file, and of what is in memory beside it.
const (
	FileIsWhole       = "file-is-whole"        // SQLite's integrity and foreign key checks
	RowsAreReadable   = "rows-are-readable"    // every row means something to this build
	RowsHaveTheirLast = "rows-have-their-last" // a row is what the last change of its address made it
	RowsAreAsRecorded = "rows-are-as-recorded" // and every column of it is as that change recorded it
	NothingIsMissing  = "nothing-is-missing"   // the book reaches the last revision that was acknowledged
	HistoryIsAChain   = "history-is-a-chain"   // an address's change starts where the one before ended, but for the adoption of one whose row was lost
	RevisionsCount    = "revisions-count"      // no row is newer than the newest change
)

// Those of what is in memory.
const (
	OneLeasePerOwner   = index.OneLeasePerOwner
	AddressInPool      = index.AddressInPool
	WithheldHasNoRow   = index.WithheldHasNoRow
	PoolsAreApart      = index.PoolsAreApart
	PrefixesAreApart   = index.PrefixesAreApart
	CountsEqualRecount = index.CountsEqualRecount
	FreeIsTheRest      = index.FreeIsTheRest
	CoolingIsQueued    = index.CoolingIsQueued
	FreedIsQueued      = index.FreedIsQueued
	MemoryEqualsTable  = index.MemoryEqualsTable
	NamesHaveLeases    = index.NamesHaveLeases
	SleepsHaveLeases   = index.SleepsHaveLeases
	SlotsHaveLeases    = index.SlotsHaveLeases
)

// Check walks every invariant of the book and of what is in memory, and
// returns what is broken. It holds up changes while it runs.
func (b *Book) Check(ctx context.Context) ([]Violation, error) {
	c := &checker{store: b.store, mem: b.writer.index, conn: b.store.Conn}
	if !b.store.opts.ReadOnly {
		return change(ctx, b.writer, func(*tx) ([]Violation, error) { return c.all(ctx) })
	}
	if b.writer.group.Closed() {
		return nil, ipam.ErrClosed
	}
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	return c.all(ctx)
}

type checker struct {
	store *store
	mem   *index.Index
	conn  *sql.Conn // reads the file as mem has it
	found []Violation
}

func (c *checker) all(ctx context.Context) ([]Violation, error) {
	c.found = nil
	fresh, err := c.store.readIndex(ctx, c.conn)
	if err == nil {
		err = c.store.WithoutChecks(ctx, c.conn, func() error { return c.file(ctx) })
	}
	if err == nil {
		err = c.history(ctx, fresh)
	}
	if err != nil {
		return nil, c.store.Classify("check", err)
	}
	for _, u := range fresh.Unreadable() {
		c.broken(RowsAreReadable, "%q: %s", u.Row, u.Reason)
	}
	c.mem.Check(fresh, c.broken)
	c.rows(fresh)
	if c.store.lost > 0 && c.store.opts.ReadOnly {
		c.broken(NothingIsMissing, "%s", c.store.restored)
	}
	return c.found, nil
}

func (c *checker) broken(invariant, format string, args ...any) {
	c.found = append(c.found, Violation{invariant, fmt.Sprintf(format, args...)})
}

func (c *checker) file(ctx context.Context) error {
	for _, pragma := range []string{`PRAGMA integrity_check`, `SELECT "table" || ' row ' || coalesce(rowid, 'without a number') FROM pragma_foreign_key_check`} {
		if err := sqlite.Each(ctx, c.conn, pragma, func(s sqlite.Scanner) error {
			var line string
			if err := s.Scan(&line); err != nil {
				return err
			}
			if line != "ok" {
				c.broken(FileIsWhole, "%s", line)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) history(ctx context.Context, x *index.Index) error {
	last, sums := make(map[netip.Addr]ipam.Change), make(map[netip.Addr]int64)
	var oldest, newest int64
	if err := sqlite.Each(ctx, c.conn, `SELECT `+changeColumns+`, row_sum FROM changes ORDER BY rev`, func(s sqlite.Scanner) error {
		var sum int64
		ch, err := scanChange(alsoInto{s, &sum})
		if err != nil {
			return err
		}
		if oldest == 0 {
			oldest = ch.Rev
		}
		newest = ch.Rev
		if !ch.Addr.IsValid() {
			return nil
		}
		if before, ok := last[ch.Addr]; ok && before.To != ch.From && !(ch.From == ipam.Free && ch.To == ipam.Bound) {
			// An adoption repairs a book whose row was lost, and the gap shows it.
			c.broken(HistoryIsAChain, "%s: revision %d left it %s, %d found it %s", ch.Addr, before.Rev, before.To, ch.Rev, ch.From)
		}
		last[ch.Addr], sums[ch.Addr] = ch, sum
		return nil
	}); err != nil {
		return err
	}
	unreadable := x.Unreadable()
	for a, ch := range last {
		l, _ := x.At(a)
		if l != nil && l.Addr != a {
			l = nil // a delegated prefix that it lies in has changes of its own
		}
		switch {
		case l == nil && ch.To != ipam.Free && !slices.ContainsFunc(unreadable, func(u Unreadable) bool { return slices.Contains(u.Addrs, a) }):
			c.broken(RowsHaveTheirLast, "%s has no row, revision %d made it %s", a, ch.Rev, ch.To)
		case l != nil && (l.State != ch.To || l.ID != ch.LeaseID || l.Rev != ch.Rev):
			c.broken(RowsHaveTheirLast, "%s is %s at %d, revision %d made it %s", a, l.State, l.Rev, ch.Rev, ch.To)
		case l != nil && rowSum(l) != sums[a]:
			c.broken(RowsAreAsRecorded, "%s is not as revision %d made it: %s", a, ch.Rev, edited(l, ch))
		}
	}
	rows, _ := x.Leases()
	for _, l := range rows {
		if _, ok := last[l.Addr]; !ok && l.Rev >= oldest {
			c.broken(RowsHaveTheirLast, "%s is %s, no change made it so", l.Addr, l.State)
		}
		if l.Rev > newest {
			c.broken(RevisionsCount, "%s is at %d, the newest change at %d", l.Addr, l.Rev, newest)
		}
	}
	return nil
}

// alsoInto scans one column more.
type alsoInto struct {
	sqlite.Scanner
	last any
}

func (s alsoInto) Scan(dest ...any) error { return s.Scanner.Scan(append(dest, s.last)...) }

// edited names what differs between a row and the change that made it.
func edited(l *ipam.Lease, ch ipam.Change) string {
	var found []string
	for _, col := range []struct{ name, is, was string }{
		{"pool_uid", l.PoolUID, ch.PoolUID}, {"sandbox", l.Sandbox, ch.Sandbox}, {"uid", l.UID, ch.UID},
		{"interface", l.Interface, ch.Interface}, {"reason", l.Reason, ch.Who.Reason},
	} {
		if col.is != col.was {
			found = append(found, fmt.Sprintf("%s is %q, was %q", col.name, col.is, col.was))
		}
	}
	if ch.From != ch.To && (!l.Since.Wall.Equal(ch.At.Wall) || l.Since.Boottime != ch.At.Boottime || l.Since.BootID != ch.At.BootID) {
		found = append(found, fmt.Sprintf("since is %v, was %v", l.Since, ch.At))
	}
	if found == nil {
		return "a column that the history does not have"
	}
	return strings.Join(found, ", ")
}

// rows compares the rows in memory with those of the table, by what is stored of each.
func (c *checker) rows(fresh *index.Index) {
	leases, _ := c.mem.Leases()
	for _, m := range leases {
		if is, _ := fresh.At(m.Addr); is == nil {
			c.broken(MemoryEqualsTable, "%s is in memory only", m.Addr)
		}
	}
	leases, _ = fresh.Leases()
	for _, l := range leases {
		if m, _ := c.mem.At(l.Addr); m == nil || !reflect.DeepEqual(leaseRow(m), leaseRow(l)) {
			c.broken(MemoryEqualsTable, "%s: the table has %+v, memory %+v", l.Addr, l, m)
		}
	}
	mem, is := c.mem.Withheld(), fresh.Withheld()
	if !slices.EqualFunc(mem, is, func(a, b ipam.Withheld) bool { return reflect.DeepEqual(withheldRow(&a), withheldRow(&b)) }) {
		c.broken(MemoryEqualsTable, "withheld: %v in memory, %v in the table", mem, is)
	}
	if a, b := c.mem.Sleeps(), fresh.Sleeps(); !slices.EqualFunc(a, b, func(a, b *ipam.Sleep) bool { return slices.Equal(sleepRow(a), sleepRow(b)) }) {
		c.broken(MemoryEqualsTable, "sleeps: %v in memory, %v in the table", a, b)
	}
	pools := make(map[string]*ipam.Pool)
	for _, p := range c.mem.Pools() {
		pools[p.UID] = p
	}
	for _, p := range fresh.Pools() {
		if m := pools[p.UID]; m != nil && !reflect.DeepEqual(poolRow(m), poolRow(p)) {
			c.broken(MemoryEqualsTable, "pool %s: the table has %+v, memory %+v", p.Name, p, m)
		}
	}
}

// A Checked is what a check of a book found, and the moment that it is about.
type Checked struct {
	Found   []Violation // nil: it is whole
	Rows    int         // addresses with a row
	Rev     int64
	Epoch   string
	Exposed string // who else may change the file, of one that is not open; "": none
}

// CheckNow walks every invariant of the book while changes go on, on a connection that
// can only read. It is about one revision: commits wait while what is in memory is
// copied, which takes some milliseconds for 60 000 leases, and not for the reading. One is
// made at a time, else the answer is [ipam.ErrState].
func (b *Book) CheckNow(ctx context.Context) (out Checked, err error) {
	if !b.checking.TryLock() {
		return out, fmt.Errorf("check the book: %w: another check is being made", ipam.ErrState)
	}
	defer b.checking.Unlock()
	if b.writer.group.Closed() {
		return out, ipam.ErrClosed
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
	if err := b.writer.group.Lock(ctx); err != nil {
		return out, fmt.Errorf("check the book: %w", err)
	}
	var schema int
	err = conn.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_master`).Scan(&schema) // from here on it reads this revision
	c.mem, out.Epoch = b.writer.index.Copy(), b.store.whose().Epoch
	b.writer.group.Unlock()
	if err != nil {
		return out, b.store.Classify("check", err)
	}
	rows, rev := c.mem.Leases()
	out.Rows, out.Rev = len(rows), rev
	switch out.Found, err = c.all(ctx); {
	case ctx.Err() != nil:
		err = fmt.Errorf("check the book: %w", ctx.Err())
	case errors.Is(err, ErrDamaged):
		out.Found, err = append(c.found, Violation{FileIsWhole, err.Error()}), nil
	}
	return out, err
}
