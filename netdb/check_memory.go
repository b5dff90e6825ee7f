package netdb

import (
	"reflect"
	"slices"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/index"
)

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
