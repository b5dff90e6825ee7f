package netdb

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/index"
	"github.com/ipamd/ipamd/netdb/sqlite"
)

// A history reads the file, on connections of its own: no commit waits for it. What it
// has found it remembers, because an index for it would be paid for by every commit.
type history struct {
	store     *store
	index     *index.Index
	lasts     lasts
	conflicts conflicts
}

// errEnded is internal: no row has the id; the history has the rest.
var errEnded = errors.New("no row has this id")

// History returns the changes of leases and of attempts that a query selects,
// newest first. It may take as long as a scan of the history.
func (h *history) History(ctx context.Context, q ipam.Query) ([]ipam.Change, error) {
	where, args := []string{"subject IN ('lease', 'attempt')"}, []any{}
	add := func(clause string, values ...any) {
		where, args = append(where, clause), append(args, values...)
	}
	if q.Addr.IsValid() {
		var texts []any
		for bits := range q.Addr.BitLen() {
			p, _ := q.Addr.Prefix(bits)
			texts = append(texts, p.String())
		}
		add("(address = ? OR address IN (?"+strings.Repeat(",?", len(texts)-1)+"))", append([]any{q.Addr.String()}, texts...)...)
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
	return h.read(ctx, h.store.Reader(), `WHERE `+strings.Join(where, " AND ")+` ORDER BY rev DESC LIMIT ?`, append(args, q.Limit)...)
}

// read returns the changes that a clause selects, in its order.
func (h *history) read(ctx context.Context, q sqlite.Querier, clause string, args ...any) (out []ipam.Change, err error) {
	err = sqlite.Each(ctx, q, `SELECT `+changeColumns+` FROM changes `+clause, func(s sqlite.Scanner) error {
		c, err := scanChange(s)
		out = append(out, c)
		return err
	}, args...)
	return out, h.store.Classify("read the history", err)
}

// Changes returns up to limit durable changes behind a revision, in their order, and none
// above [Book.Rev]: none when there are none yet. It reads the file, on a connection of its own,
// and no commit waits for it: with [Book.Changed] it is how changes are followed.
//
//	for since := book.Rev(); ; {
//		changed := book.Changed()
//		// read Changes(ctx, since, n) until there are none
//		<-changed
//	}
//
// A gap that pruning left is an [ipam.PrunedError].
func (h *history) Changes(ctx context.Context, since int64, limit int) ([]ipam.Change, error) {
	upTo := h.index.Rev()
	if since >= upTo {
		return nil, nil
	}
	out, err := h.behind(ctx, since, upTo, limit)
	switch {
	case err != nil:
		return nil, err
	case len(out) == 0:
		return nil, &ipam.PrunedError{Since: since, Upto: upTo}
	case out[0].Rev != since+1:
		return nil, &ipam.PrunedError{Since: since, Upto: out[0].Rev - 1}
	}
	return out, nil
}

// lasts has the revision of the last change of every lease id, and of every address, in
// the history: the first reader who needs one scans, and the next ones read on from there.
type lasts struct {
	mu    sync.Mutex  // readers' only
	stale atomic.Bool // give it all back
	upTo  int64
	ids   map[uuid.UUID]int64
	at    map[string]int64
}

// forget has the next reader give the memory back, and with it what was pruned
// from the history. It does not wait.
func (l *lasts) forget() { l.stale.Store(true) }

// lastOf returns the last change of a lease id, nil when the history has none,
// and whether it is the last one of its address, too.
func (h *history) lastOf(ctx context.Context, id string) (past *ipam.Change, newest bool, err error) {
	of, err := uuid.Parse(id)
	if err != nil || of.String() != id {
		return nil, false, nil
	}
	l := &h.lasts
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.readOn(ctx, h.store.Reader()); err != nil {
		return nil, false, h.store.Classify("read the history", err)
	}
	found, err := h.read(ctx, h.store.Reader(), `WHERE rev = ?1`, l.ids[of])
	if err != nil || len(found) == 0 {
		return nil, false, err
	}
	return &found[0], l.at[ipam.TextOf(found[0].Addr, found[0].PrefixLen)] == found[0].Rev, nil
}

// readOn reads what came since the last time.
func (l *lasts) readOn(ctx context.Context, q sqlite.Querier) error {
	if l.stale.Swap(false) || l.ids == nil {
		l.upTo = 0
		l.ids, l.at = make(map[uuid.UUID]int64), make(map[string]int64)
	}
	return sqlite.Each(ctx, q, `SELECT rev, lease_id, address FROM changes WHERE rev > ?1 AND subject = 'lease' ORDER BY rev`,
		func(s sqlite.Scanner) error {
			var rev int64
			var text, addr string
			if err := s.Scan(&rev, &text, &addr); err != nil {
				return err
			}
			if id, err := uuid.Parse(text); err == nil {
				l.ids[id] = rev
			}
			l.at[addr], l.upTo = rev, rev
			return nil
		}, l.upTo)
}

// ended returns the last change of a lease that has no row any more, with
// [ipam.ErrGone]; or [ipam.ErrNotFound]. A lease that was quarantined, and whose address a
// workload of another lease was then found on, ended without saying so.
func (h *history) ended(ctx context.Context, id string) (ipam.Change, error) {
	found, err := h.read(ctx, h.store.Reader(), `WHERE lease_id = ?1 AND to_state IN ('cooling', 'free') ORDER BY rev DESC LIMIT 1`, id)
	if err == nil && len(found) == 0 {
		var past *ipam.Change
		var newest bool
		if past, newest, err = h.lastOf(ctx, id); err == nil && (past == nil || newest) {
			err = fmt.Errorf("%w: no lease has this id", ipam.ErrNotFound)
		}
		if err == nil {
			found = []ipam.Change{*past}
		}
	}
	if err != nil {
		return ipam.Change{}, err
	}
	c := found[0]
	return c, fmt.Errorf("%w: it held %s for %s", ipam.ErrGone, ipam.TextOf(c.Addr, c.PrefixLen), c.Sandbox)
}

// Given reports whether the history knows a lease id as the last that an address
// was given under, to this sandbox, and as one that has not ended: a lease whose row
// was lost, or quarantined. An empty uid is any incarnation. The history that was
// pruned is not known.
func (h *history) Given(ctx context.Context, id string, a netip.Addr, sandbox, uid string) (bool, error) {
	past, newest, err := h.lastOf(ctx, id)
	if err != nil || past == nil {
		return false, err
	}
	claim := ipam.Adoption{Addr: a, Sandbox: sandbox, UID: uid}
	return newest && past.To != ipam.Cooling && past.To != ipam.Free && continues(&claim, past), nil
}

// conflicts has up to which revision the history was searched for a conflict, and which
// was the newest.
type conflicts struct {
	mu         sync.Mutex
	upTo, last int64 // revisions; 0: none
}

// LastConflict returns the newest change that quarantined an address because of
// [ipam.SeenOnWire], or noted a conflict on a held one, whatever became of it since;
// nil when the history has none.
func (h *history) LastConflict(ctx context.Context) (*ipam.Change, error) {
	m := &h.conflicts
	m.mu.Lock()
	defer m.mu.Unlock()
	upTo := h.index.Rev()
	found, err := h.read(ctx, h.store.Reader(), `WHERE rev = coalesce((SELECT rev FROM changes
		WHERE rev > ?1 AND (to_state = 'quarantined' AND reason = ?2 OR reason = ?4) ORDER BY rev DESC LIMIT 1), ?3)`, m.upTo, ipam.SeenOnWire, m.last, ipam.ConflictSeen)
	if err != nil {
		return nil, err
	}
	m.upTo, m.last = upTo, 0
	if len(found) == 0 {
		return nil, nil
	}
	m.last = found[0].Rev
	return &found[0], nil
}

// A replay reads every change there is, so what a column costs counts: SQLite locks and
// copies for each, the driver and database/sql convert each. changesBehind therefore has a
// row's columns joined into one, and is read from the driver itself.
const changesBehind = `SELECT concat_ws(char(31), ` + changeColumns + `) FROM changes WHERE rev > ?1 AND rev <= ?2 ORDER BY rev LIMIT ?3`

// between is what lies between two columns: char(31).
const between = '\x1f'

var numberOfColumns = strings.Count(changeColumns, ",") + 1

// behind reads up to limit changes behind since, and none above upTo.
func (h *history) behind(ctx context.Context, since, upTo int64, limit int) ([]ipam.Change, error) {
	out, apart := make([]ipam.Change, 0, min(int64(limit), upTo-since)), []int(nil)
	cut := make(joined, 0, numberOfColumns)
	err := sqlite.EachText(ctx, h.store.Readers, changesBehind, func(row string) (err error) {
		if len(out) == cap(out) {
			return fmt.Errorf("more than %d changes behind revision %d", cap(out), since) // rev is the primary key
		}
		out = out[:len(out)+1]
		c := &out[len(out)-1]
		if cut = cut.of(row); len(cut) != numberOfColumns {
			apart = append(apart, len(out)-1) // a name has what lies between two columns
			c.Rev, err = strconv.ParseInt(cut[0], 10, 64)
			return err
		}
		return scanInto(c, cut)
	}, since, upTo, int64(limit))
	for _, i := range apart {
		if err != nil {
			break
		}
		var one []ipam.Change
		if one, err = h.read(ctx, h.store.Readers, `WHERE rev = ?1`, out[i].Rev); err == nil && len(one) == 0 {
			return nil, &ipam.PrunedError{Since: since, Upto: out[i].Rev} // in between
		} else if err == nil {
			out[i] = one[0]
		}
	}
	return out, h.store.Classify("read the history", err)
}

// joined are the columns of a row that was read as one.
type joined []string

// of cuts a row, in the place of the one before.
func (j joined) of(row string) joined {
	j = j[:0]
	for {
		i := strings.IndexByte(row, between)
		if i < 0 {
			return append(j, row)
		}
		j, row = append(j, row[:i]), row[i+1:]
	}
}

// Scan is for integers and text.
func (j joined) Scan(dest ...any) (err error) {
	for i, d := range dest {
		switch d := d.(type) {
		case *string:
			*d = j[i]
		case *int64:
			if *d, err = strconv.ParseInt(j[i], 10, 64); err != nil {
				return fmt.Errorf("column %d: %w", i+1, err)
			}
		default:
			return fmt.Errorf("column %d is no %T", i+1, d)
		}
	}
	return nil
}
