package netdb

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/ipamd/ipamd/netdb/sqlite"
)

// A Violation is one broken invariant.
type Violation struct {
	Invariant string
	Detail    string
}

func (v Violation) String() string { return v.Invariant + ": " + v.Detail }

// The invariants that Check walks, by name.
const (
	FileIsWhole        = "file-is-whole"        // SQLite's integrity and foreign key checks
	RowsAreReadable    = "rows-are-readable"    // every row means something to this build
	OneLeasePerOwner   = "one-lease-per-owner"  // one open lease per (pool, uid, interface)
	AddressInPool      = "address-in-pool"      // a row's address lies in its own pool's prefix, or in none
	WithheldHasNoRow   = "withheld-has-no-row"  // what a removed pool left withheld has no row, and no pool would give it
	PoolsAreApart      = "pools-are-apart"      // no two pools' prefixes overlap
	MemoryEqualsTable  = "memory-equals-table"  // the index is what loading anew would give
	CountsEqualRecount = "counts-equal-recount" // per pool and state
	FreeIsTheRest      = "free-is-the-rest"     // usable = free + kept + rows + offered + unreadable
	CoolingIsQueued    = "cooling-is-queued"    // every cooling row that may be given again is in the queue, in revision order
	FreedIsQueued      = "freed-is-queued"      // what became free is queued as the history has it
	RowsHaveTheirLast  = "rows-have-their-last" // a row is what the last change of its address made it
	RowsAreAsRecorded  = "rows-are-as-recorded" // and every column of it is as that change recorded it
	NothingIsMissing   = "nothing-is-missing"   // the book reaches the last revision that was acknowledged
	HistoryIsAChain    = "history-is-a-chain"   // an address's change starts where the one before ended, but for the adoption of one whose row was lost
	NamesHaveLeases    = "names-have-leases"    // a host interface name that is leased is that of an interface with a row
	PrefixesAreApart   = "prefixes-are-apart"   // no row leases an address that another one leases, too
	SleepsHaveLeases   = "sleeps-have-leases"   // what is recorded of a sleep is of an open lease
	SlotsHaveLeases    = "slots-have-leases"    // a slot is of a lease that is held: its pool's until it is claimed
	RevisionsCount     = "revisions-count"      // no row is newer than the newest change
)

// Check walks every invariant of the book and of what is in memory, and
// returns what is broken. It holds up changes while it runs.
func (b *Book) Check(ctx context.Context) ([]Violation, error) {
	c := &checker{store: b.store, mem: b.memory, conn: b.store.Conn}
	if !b.store.opts.ReadOnly {
		return change(ctx, b.writer, func(*tx) ([]Violation, error) { return c.all(ctx) })
	}
	select {
	case <-b.writer.closing:
		return nil, ErrClosed
	default:
		ctx, cancel := context.WithTimeout(ctx, lookWithin)
		defer cancel()
		return c.all(ctx)
	}
}

type checker struct {
	store *store
	mem   *memory
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
	for _, u := range fresh.broken {
		c.broken(RowsAreReadable, "%q: %s", u.Row, u.Reason)
	}
	c.owners(fresh)
	c.memory(fresh)
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

func (c *checker) owners(x *index) {
	for i, pi := range x.order {
		for _, other := range x.order[:i] {
			if pi.pool.Prefix.Overlaps(other.pool.Prefix) {
				c.broken(PoolsAreApart, "%s of pool %s and %s of pool %s", pi.pool.Prefix, pi.pool.UID, other.pool.Prefix, other.pool.UID)
			}
		}
	}
	seen := make(map[Owner]netip.Addr)
	var before *Lease
	for l := range x.byAddr.all() {
		if before != nil && before.Range().Overlaps(l.Range()) {
			c.broken(PrefixesAreApart, "%s is leased, and %s, too", before.Text(), l.Text())
		}
		before = l
		if l.State.Open() {
			if other, ok := seen[l.Owner()]; ok {
				c.broken(OneLeasePerOwner, "%s and %s both belong to %q", other, l.Addr, l.UID)
			}
			seen[l.Owner()] = l.Addr
		}
		// Outside its own pool a row may be: the pool shrank or moved with it.
		for _, in := range x.order {
			if in.pool.UID != l.PoolUID && in.pool.Prefix.Overlaps(l.Prefix()) {
				c.broken(AddressInPool, "%s is of pool %s, and in %s of pool %s", l.Text(), l.PoolUID, in.pool.Prefix, in.pool.UID)
			}
		}
	}
	for a, w := range c.mem.idx.withheld {
		if why := c.mem.idx.notWithheld(&w); why != "" {
			c.broken(WithheldHasNoRow, "%s is withheld since pool %s was removed, and %s", a, w.PoolUID, why)
		}
	}
}

func (c *checker) memory(fresh *index) {
	mem := c.mem.idx
	for l := range fresh.byAddr.all() {
		if m := mem.byAddr.at(l.Addr); m == nil || !reflect.DeepEqual(m.row(), l.row()) {
			c.broken(MemoryEqualsTable, "%s: the table has %+v, memory %+v", l.Addr, l, m)
		}
	}
	for l := range mem.byAddr.all() {
		if fresh.byAddr.at(l.Addr) == nil {
			c.broken(MemoryEqualsTable, "%s is in memory only", l.Addr)
		}
	}
	if mem.rev != fresh.rev {
		c.broken(MemoryEqualsTable, "revision %d in memory, %d in the table", mem.rev, fresh.rev)
	}
	if !maps.Equal(mem.names, fresh.names) {
		c.broken(MemoryEqualsTable, "names of pools: %v in memory, %v in the table", mem.names, fresh.names)
	}
	if !maps.EqualFunc(mem.withheld, fresh.withheld, func(a, b Withheld) bool { return reflect.DeepEqual(a.row(), b.row()) }) {
		c.broken(MemoryEqualsTable, "withheld: %v in memory, %v in the table", mem.withheld, fresh.withheld)
	}
	for _, pi := range mem.order {
		if fresh.pools[pi.pool.UID] == nil {
			c.broken(MemoryEqualsTable, "pool %s is in memory only", pi.pool.Name)
		}
	}
	if mem.runtime != fresh.runtime {
		c.broken(MemoryEqualsTable, "runtime %q in memory, %q in the table", mem.runtime, fresh.runtime)
	}
	if !maps.EqualFunc(mem.tombs, fresh.tombs, func(a, b tombstone) bool {
		a.at.Wall, a.at.Mono, b.at.Wall, b.at.Mono = time.Time{}, 0, time.Time{}, 0
		return a == b
	}) {
		c.broken(MemoryEqualsTable, "tombstones: %v in memory, %v in the table", mem.tombs, fresh.tombs)
	}
	if a, b := c.mem.HostNames(), (&memory{idx: fresh}).HostNames(); !slices.Equal(a, b) {
		c.broken(MemoryEqualsTable, "interface names: %v in memory, %v in the table", a, b)
	}
	for _, n := range fresh.hostNames {
		if !slices.ContainsFunc(fresh.byUID[n.UID], func(l *Lease) bool { return l.Interface == n.Interface }) && len(fresh.broken) == 0 {
			c.broken(NamesHaveLeases, "%s is leased to %q for %s, which has no lease", n.Name, n.UID, n.Interface)
		}
	}
	if a, b := c.mem.Sleeps(), (&memory{idx: fresh}).Sleeps(); !slices.EqualFunc(a, b, func(a, b *Sleep) bool {
		return a.LeaseID == b.LeaseID && a.Rev == b.Rev && a.sameAs(b) && a.Still == b.Still && a.flight() == b.flight()
	}) {
		c.broken(MemoryEqualsTable, "sleeps: %v in memory, %v in the table", a, b)
	}
	for id := range fresh.sleeps {
		if l := fresh.byID[id]; (l == nil || !l.State.Open()) && len(fresh.broken) == 0 {
			c.broken(SleepsHaveLeases, "a sleep is recorded of lease %s, which is not open", id)
		}
	}
	if a, b := c.mem.Slots(), (&memory{idx: fresh}).Slots(); !slices.EqualFunc(a, b, func(a, b *Slot) bool { return *a == *b }) {
		c.broken(MemoryEqualsTable, "slots: %v in memory, %v in the table", a, b)
	}
	for id, s := range fresh.slots {
		switch l := fresh.byID[id]; {
		case l == nil && len(fresh.broken) > 0:
		case l == nil || !l.State.Open() && l.State != Releasing:
			c.broken(SlotsHaveLeases, "slot %s is of lease %s, which is not held", s.ID, id)
		case IsSlotUID(l.UID) == s.Claimed:
			c.broken(SlotsHaveLeases, "slot %s is of sandbox uid %q, and claimed: %t", s.ID, l.UID, s.Claimed)
		}
	}
	rows := make(map[string][]Range) // of each pool; a book may have as many pools as rows
	for l := range mem.byAddr.all() {
		rows[l.PoolUID] = append(rows[l.PoolUID], l.Range())
	}
	for uid, pi := range fresh.pools {
		m := mem.pools[uid]
		if m == nil {
			c.broken(MemoryEqualsTable, "pool %s is not in memory", pi.pool.Name)
			continue
		}
		if !reflect.DeepEqual(m.pool.row(), pi.pool.row()) {
			c.broken(MemoryEqualsTable, "pool %s: the table has %+v, memory %+v", pi.pool.Name, pi.pool, m.pool)
		}
		if m.outside != pi.outside {
			c.broken(CountsEqualRecount, "pool %s counts %d outside, there are %d", pi.pool.Name, m.outside, pi.outside)
		}
		for _, s := range States() {
			if m.count[s] != pi.count[s] {
				c.broken(CountsEqualRecount, "pool %s counts %d %s, there are %d", pi.pool.Name, m.count[s], s, pi.count[s])
			}
		}
		if got, want := addrsOf(m.cooling.Values()), addrsOf(pi.cooling.Values()); !slices.Equal(got, want) {
			c.broken(CoolingIsQueued, "pool %s: %v in memory, %v in the table", pi.pool.Name, got, want)
		}
		if got, want := addrsOf(m.spent.Values()), addrsOf(pi.spent.Values()); !slices.Equal(got, want) {
			c.broken(CoolingIsQueued, "pool %s, outside: %v in memory, %v in the table", pi.pool.Name, got, want)
		}
		c.free(m, rows[uid])
		c.freed(m, pi)
	}
}

func addrsOf(ls []*Lease) (out []netip.Addr) {
	for _, l := range ls {
		out = append(out, l.Addr)
	}
	return out
}

func (c *checker) history(ctx context.Context, x *index) error {
	last, sums := make(map[netip.Addr]Change), make(map[netip.Addr]int64)
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
		if before, ok := last[ch.Addr]; ok && before.To != ch.From && !(ch.From == Free && ch.To == Bound) {
			// An adoption repairs a book whose row was lost, and the gap shows it.
			c.broken(HistoryIsAChain, "%s: revision %d left it %s, %d found it %s", ch.Addr, before.Rev, before.To, ch.Rev, ch.From)
		}
		last[ch.Addr], sums[ch.Addr] = ch, sum
		return nil
	}); err != nil {
		return err
	}
	for a, ch := range last {
		l := x.byAddr.at(a)
		if l != nil && l.Addr != a {
			l = nil // a delegated prefix that it lies in has changes of its own
		}
		switch {
		case l == nil && ch.To != Free && !slices.ContainsFunc(x.broken, func(u Unreadable) bool { return slices.Contains(u.addrs, a) }):
			c.broken(RowsHaveTheirLast, "%s has no row, revision %d made it %s", a, ch.Rev, ch.To)
		case l != nil && (l.State != ch.To || l.ID != ch.LeaseID || l.Rev != ch.Rev):
			c.broken(RowsHaveTheirLast, "%s is %s at %d, revision %d made it %s", a, l.State, l.Rev, ch.Rev, ch.To)
		case l != nil && l.sum() != sums[a]:
			c.broken(RowsAreAsRecorded, "%s is not as revision %d made it: %s", a, ch.Rev, l.edited(ch))
		}
	}
	for l := range x.byAddr.all() {
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
func (l *Lease) edited(ch Change) string {
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
