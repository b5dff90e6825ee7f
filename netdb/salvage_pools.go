package netdb

import "context"

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
