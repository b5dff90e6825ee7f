package netdb

import (
	"context"
	"slices"
	"strings"
)

// readPools reads the pools and the interface names of a copy. What cannot be read is a
// problem, and no error.
func (s *Salvaged) readPools(ctx context.Context, c *bookCopy, schema int) {
	if c.old {
		return // its pools are the configuration's
	}
	pools := make(map[string]*Pool)
	s.bothWays(ctx, c, "pools", `SELECT `+poolColumns+` FROM pools ORDER BY uid`, func(sc scanner) error {
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
	s.bothWays(ctx, c, "interface_names", readHostNames+` ORDER BY rev`, func(sc scanner) error {
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
func (s *Salvaged) readPoolNames(ctx context.Context, c *bookCopy, schema int) {
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
	s.bothWays(ctx, c, "pool_names", `SELECT name, family, generation, configured FROM pool_names ORDER BY name`, func(sc scanner) error {
		var n PoolName
		if err := sc.Scan(&n.Name, &n.Family, &n.Generation, &n.Configured); err != nil {
			s.problem("read a pool's name", err)
		} else {
			keep(n)
		}
		return nil
	})
}
