package netdb

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ipamd/ipamd/netdb/sqlite"
)

func (s *Salvaged) read(ctx context.Context, c *sqlite.Copy) {
	if err := c.Ours(ctx, "book"); err != nil {
		s.problem("read whose book it is", err)
	} else {
		if err := c.QueryRowContext(ctx, `SELECT epoch, runner_uid, machine_id, runtime_id FROM book`).
			Scan(&s.Epoch, &s.RunnerUID, &s.MachineID, &s.Runtime); err != nil {
			s.problem("read whose book it is", err)
		}
	}
	leases, changes := columns(c)
	s.Ended = make(map[string]bool)
	s.Withheld = make(map[netip.Addr]Withheld)
	rows := make(map[netip.Addr]*Lease)
	var named []Range
	s.bothWays(ctx, c, "leases", `SELECT `+leases+` FROM leases ORDER BY ip`, func(sc sqlite.Scanner) error {
		l, n, err := scanLease(sc)
		if err == nil {
			rows[l.Addr] = l
			return nil
		}
		s.problem(fmt.Sprintf("read row %q", n.text), err)
		named = append(named, n.means()...)
		return nil
	})
	last := make(map[netip.Addr]Change)
	s.bothWays(ctx, c, "changes", `SELECT `+changes+` FROM changes WHERE subject = 'lease' ORDER BY rev`, func(sc sqlite.Scanner) error {
		c, err := scanChange(sc)
		if err == nil && c.Addr.IsValid() && c.Rev > last[c.Addr].Rev {
			last[c.Addr] = c
		}
		if err == nil && (c.To == Cooling || c.To == Free) {
			s.Ended[c.LeaseID] = true
		}
		return nil
	})
	for a, c := range last {
		if rows[a] == nil && c.To != Free && known(c.To) {
			rows[a] = &Lease{Addr: a, PrefixLen: c.PrefixLen, ID: c.LeaseID, PoolUID: c.PoolUID, State: c.To, Sandbox: c.Sandbox, UID: c.UID,
				Interface: c.Interface, Attempt: c.Attempt, Rev: c.Rev, Since: c.At, Evidence: c.Evidence, Reason: c.Who.Reason, Hold: c.hold()}
		}
	}
	var schema int
	if err := c.QueryRowContext(ctx, `PRAGMA user_version`).Scan(&schema); err != nil {
		s.problem("read its schema", err)
	}
	if !c.Old() && schema != 1 { // a book of 0.1.0 has no such table
		columns := withheldColumns
		if !c.HasColumn("withheld", "bridge") {
			columns = strings.Replace(columns, withheldPlumbing, "'', '', '', ''", 1)
		}
		s.bothWays(ctx, c, "withheld", `SELECT `+columns+` FROM withheld ORDER BY ip`, func(sc sqlite.Scanner) error {
			w, n, err := scanWithheld(sc)
			if err != nil || !w.Addr.IsValid() {
				named = append(named, n.means()...)
			} else if rows[w.Addr] == nil {
				rows[w.Addr] = &Lease{Addr: w.Addr, PrefixLen: w.PrefixLen, ID: w.LeaseID, PoolUID: w.PoolUID, State: w.State, Sandbox: w.Sandbox, UID: w.UID,
					Interface: w.Interface, Rev: w.Rev, Since: w.Since, Evidence: w.Evidence, Reason: PoolRemoved, Hold: w.Hold,
					HostInterface: w.HostInterface, Netns: w.Netns, Plug: w.Plug}
				s.Withheld[w.Addr] = w
			}
			return nil
		})
	}
	s.readPools(ctx, c, schema)
	s.readSleeps(ctx, c, schema)
	s.readCancelled(ctx, c)
	for _, l := range rows {
		s.Leases = append(s.Leases, l)
	}
	slices.SortFunc(s.Leases, func(x, y *Lease) int { return x.Addr.Compare(y.Addr) })
	s.Named = apart(named, s.Leases)
}

// bothWays reads from the front until a broken page, and then from the back:
// what lies behind the page is whole.
func (s *Salvaged) bothWays(ctx context.Context, copied *sqlite.Copy, table, query string, row func(sqlite.Scanner) error) {
	if err := copied.Ours(ctx, table); err != nil {
		s.problem("read the rows", err)
		return
	}
	for _, order := range []string{" ASC", " DESC"} {
		err := sqlite.Each(ctx, copied, query+order, row)
		if err == nil {
			return
		}
		s.problem("read the rows"+order, err)
	}
}

func (s *Salvaged) problem(doing string, err error) {
	if text := doing + ": " + err.Error(); !slices.Contains(s.Problems, text) {
		s.Problems = append(s.Problems, text)
	}
}

// readPools reads the pools and the interface names of a copy. What cannot be read is a
// problem, and no error.
func (s *Salvaged) readPools(ctx context.Context, c *sqlite.Copy, schema int) {
	if c.Old() {
		return // its pools are the configuration's
	}
	pools := make(map[string]*Pool)
	s.bothWays(ctx, c, "pools", `SELECT `+poolColumns+` FROM pools ORDER BY uid`, func(sc sqlite.Scanner) error {
		switch p, err := scanPool(sc); {
		case err != nil:
			s.problem("read a pool", err)
		case pools[p.UID] == nil:
			pools[p.UID] = p
			s.Pools = append(s.Pools, p)
		}
		return nil
	})
	s.readPoolNames(ctx, c, schema)
	if schema < 3 {
		return // a book of then has no interface names
	}
	held := make(map[string]bool)
	s.bothWays(ctx, c, "interface_names", readHostNames+` ORDER BY rev`, func(sc sqlite.Scanner) error {
		var n HostName
		switch err := sc.Scan(&n.Rev, &n.Name, &n.UID, &n.Interface); {
		case err != nil:
			s.problem("read an interface name", err)
		case !held[n.Name]:
			held[n.Name] = true
			s.HostNames = append(s.HostNames, n)
		}
		return nil
	})
}

// readPoolNames reads what is remembered of pools' names. In a book of 0.1.0 the
// configuration was all that made a pool. Where a pool cannot be read, that the configuration
// gave it is forgotten: else it would not be made again.
func (s *Salvaged) readPoolNames(ctx context.Context, c *sqlite.Copy, schema int) {
	lost := slices.ContainsFunc(s.Problems, func(p string) bool { return strings.HasPrefix(p, "read a pool") })
	had := make(map[nameKey]bool)
	keep := func(n PoolName) {
		key := nameKey{n.Name, n.Family}
		if had[key] {
			return
		}
		had[key] = true
		if lost && !slices.ContainsFunc(s.Pools, func(p *Pool) bool { return p.key() == key }) {
			n.Configured = ""
		}
		s.Names = append(s.Names, n)
	}
	if schema == 1 {
		for _, p := range s.Pools {
			_, hash := p.encode()
			keep(PoolName{p.Name, p.family(), 0, hash})
		}
		return
	}
	s.bothWays(ctx, c, "pool_names", `SELECT name, family, generation, configured FROM pool_names ORDER BY name`, func(sc sqlite.Scanner) error {
		var n PoolName
		if err := sc.Scan(&n.Name, &n.Family, &n.Generation, &n.Configured); err != nil {
			s.problem("read a pool's name", err)
		} else {
			keep(n)
		}
		return nil
	})
}

// readCancelled reads the tombstones of a copy. What cannot be read is a problem, and no
// error.
func (s *Salvaged) readCancelled(ctx context.Context, c *sqlite.Copy) {
	if c.Old() {
		return
	}
	had := make(map[string]bool)
	s.bothWays(ctx, c, "tombstones", `SELECT uid, attempt, wall, boottime, boot_id FROM tombstones ORDER BY uid`, func(sc sqlite.Scanner) error {
		var t CancelledAttempt
		var wall, boot int64
		switch err := sc.Scan(&t.UID, &t.Attempt, &wall, &boot, &t.At.BootID); {
		case err != nil:
			s.problem("read a cancelled attempt", err)
		case !had[t.UID]:
			had[t.UID] = true
			t.At.Wall, t.At.Boottime = time.Unix(0, wall), time.Duration(boot)
			s.Cancelled = append(s.Cancelled, t)
		}
		return nil
	})
}

// readSleeps reads how paused sandboxes sleep. What cannot be read is a problem, and no error.
func (s *Salvaged) readSleeps(ctx context.Context, c *sqlite.Copy, schema int) {
	s.Sleeps = make(map[string]*Sleep)
	if c.Old() || schema < 5 {
		return // a book of then has none
	}
	query := readSleeps
	if !c.HasColumn("sleeps", "still") {
		query = strings.Replace(query, "still", "1", 1)
	}
	s.bothWays(ctx, c, "sleeps", query+` ORDER BY lease_id`, func(sc sqlite.Scanner) error {
		switch how, bad, err := scanSleep(sc); {
		case err != nil:
			s.problem("read a sleep", err)
		case bad != nil:
			s.problem("read the sleep of lease "+how.LeaseID, bad)
		default:
			s.Sleeps[how.LeaseID] = how
		}
		return nil
	})
}

// apart leaves out the ranges that a row or another range has whole, and sorts the rest.
func apart(all []Range, rows []*Lease) (out []Range) {
	within := func(of Range) func(Range) bool {
		return func(r Range) bool { return r.Contains(of.From) && r.Contains(of.To) }
	}
	slices.SortFunc(all, func(x, y Range) int { return y.Size().Cmp(x.Size()) })
	for _, r := range all {
		has := func(l *Lease) bool { return within(r)(l.Range()) }
		if !slices.ContainsFunc(out, within(r)) && !slices.ContainsFunc(rows, has) {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(x, y Range) int { return x.From.Compare(y.From) })
	return out
}
