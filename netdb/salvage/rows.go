package salvage

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/netdb/sqlite"
)

// read reads every table of a copy. What cannot be read is a problem, and no error.
func (s *Found) read(ctx context.Context, c *sqlite.Copy) {
	err := c.Ours(ctx, "book")
	if err == nil {
		err = c.QueryRowContext(ctx, `SELECT epoch, runner_uid, machine_id, runtime_id FROM book`).
			Scan(&s.Epoch, &s.RunnerUID, &s.MachineID, &s.Runtime)
	}
	s.problem("read whose book it is", err)
	v := netdb.Version{Old: c.Old(), Has: c.HasColumn}
	s.problem("read its schema", c.QueryRowContext(ctx, `PRAGMA user_version`).Scan(&v.Schema))

	rows := s.readLeases(ctx, c, v)
	s.readPools(ctx, c, v)
	s.Sleeps = make(map[string]*ipam.Sleep)
	bothWays(ctx, s, c, v.Sleeps(), func(how *ipam.Sleep, err error) {
		if err != nil {
			s.problem("read a sleep", err)
		} else {
			s.Sleeps[how.LeaseID] = how
		}
	})
	s.Cancelled, _ = distinct(ctx, s, c, v.Cancelled(), "read a cancelled attempt", func(t netdb.CancelledAttempt) any { return t.UID })
	for _, l := range rows {
		s.Leases = append(s.Leases, l)
	}
	slices.SortFunc(s.Leases, func(x, y *ipam.Lease) int { return x.Addr.Compare(y.Addr) })
	s.Named = apart(s.Named, s.Leases)
}

// readLeases reads the rows of addresses, what the changes say of those that are lost, and what is withheld.
func (s *Found) readLeases(ctx context.Context, c *sqlite.Copy, v netdb.Version) map[netip.Addr]*ipam.Lease {
	s.Ended = make(map[string]bool)
	s.Withheld = make(map[netip.Addr]ipam.Withheld)
	rows := make(map[netip.Addr]*ipam.Lease)
	bad := func(err error) {
		var row *netdb.RowError
		if errors.As(err, &row) {
			s.Named = append(s.Named, row.Of...)
		}
	}
	bothWays(ctx, s, c, v.Leases(), func(l *ipam.Lease, err error) {
		if err != nil {
			s.problem("read a row", err)
			bad(err)
			return
		}
		rows[l.Addr] = l
	})
	last := make(map[netip.Addr]ipam.Change)
	bothWays(ctx, s, c, v.Changes(), func(c ipam.Change, err error) {
		if err == nil && c.Addr.IsValid() && c.Rev > last[c.Addr].Rev {
			last[c.Addr] = c
		}
		if err == nil && (c.To == ipam.Cooling || c.To == ipam.Free) {
			s.Ended[c.LeaseID] = true
		}
	})
	for a, c := range last {
		if left := netdb.LeftBy(&c); left != nil && rows[a] == nil {
			rows[a] = left
		}
	}
	bothWays(ctx, s, c, v.Withheld(), func(w ipam.Withheld, err error) {
		if err != nil {
			bad(err)
		} else if rows[w.Addr] == nil {
			rows[w.Addr] = &ipam.Lease{Addr: w.Addr, PrefixLen: w.PrefixLen, ID: w.LeaseID, PoolUID: w.PoolUID, State: w.State, Sandbox: w.Sandbox, UID: w.UID,
				Interface: w.Interface, Rev: w.Rev, Since: w.Since, Evidence: w.Evidence, Reason: ipam.PoolRemoved, Hold: w.Hold,
				HostInterface: w.HostInterface, Netns: w.Netns, Plug: w.Plug}
			s.Withheld[w.Addr] = w
		}
	})
	return rows
}

// bothWays reads a table from the front until a broken page, and then from the back:
// what lies behind the page is whole. A row may come twice. It reports whether it was read to
// its end, as a table is that the book's version does not have.
func bothWays[T any](ctx context.Context, s *Found, c *sqlite.Copy, t netdb.Table[T], row func(T, error)) (whole bool) {
	if t.Name == "" {
		return true
	}
	if err := c.Ours(ctx, t.Name); err != nil {
		s.problem("read the rows", err)
		return false
	}
	for _, order := range []string{" ASC", " DESC"} {
		err := sqlite.Each(ctx, c, t.Query+" ORDER BY "+t.By+order, func(sc sqlite.Scanner) error {
			row(t.Scan(sc))
			return nil
		})
		if err == nil {
			return order == " ASC"
		}
		s.problem("read the rows"+order, err)
	}
	return false
}

// distinct reads a table whose rows have keys, and reports whether it could read all of them.
func distinct[T any](ctx context.Context, s *Found, c *sqlite.Copy, t netdb.Table[T], doing string, key func(T) any) (out []T, whole bool) {
	had, bad := make(map[any]bool), false
	whole = bothWays(ctx, s, c, t, func(row T, err error) {
		switch {
		case err != nil:
			s.problem(doing, err)
			bad = true
		case !had[key(row)]:
			had[key(row)] = true
			out = append(out, row)
		}
	})
	return out, whole && !bad
}

// problem notes what could not be read; nil is none.
func (s *Found) problem(doing string, err error) {
	if err == nil {
		return
	}
	text := doing + ": " + err.Error()
	if row := new(netdb.RowError); errors.As(err, &row) {
		text = "read " + err.Error()
	}
	if !slices.Contains(s.Problems, text) {
		s.Problems = append(s.Problems, text)
	}
}

// readPools reads the pools, what is remembered of their names, and the interface names. Where a pool cannot be read,
// that the configuration gave it is forgotten: else it would not be made again.
func (s *Found) readPools(ctx context.Context, c *sqlite.Copy, v netdb.Version) {
	key := func(n ipam.PoolName) any { return ipam.PoolName{Name: n.Name, Family: n.Family} }
	var whole bool
	s.Pools, whole = distinct(ctx, s, c, v.Pools(), "read a pool", func(p *ipam.Pool) any { return p.UID })
	names, _ := distinct(ctx, s, c, v.PoolNames(), "read a pool's name", key)
	if v.Schema == 1 {
		for _, p := range s.Pools {
			names = append(names, netdb.Configured(p))
		}
	}
	for _, n := range names {
		if !whole && !slices.ContainsFunc(s.Pools, func(p *ipam.Pool) bool { return key(netdb.Configured(p)) == key(n) }) {
			n.Configured = ""
		}
		s.Names = append(s.Names, n)
	}
	s.HostNames, _ = distinct(ctx, s, c, v.HostNames(), "read an interface name", func(n ipam.HostName) any { return n.Name })
}

// apart leaves out the ranges that a row or another range has whole, and sorts the rest.
func apart(all []ipam.Range, rows []*ipam.Lease) (out []ipam.Range) {
	within := func(of ipam.Range) func(ipam.Range) bool {
		return func(r ipam.Range) bool { return r.Contains(of.From) && r.Contains(of.To) }
	}
	slices.SortFunc(all, func(x, y ipam.Range) int { return y.Size().Cmp(x.Size()) })
	for _, r := range all {
		has := func(l *ipam.Lease) bool { return within(r)(l.Range()) }
		if !slices.ContainsFunc(out, within(r)) && !slices.ContainsFunc(rows, has) {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(x, y ipam.Range) int { return x.From.Compare(y.From) })
	return out
}
