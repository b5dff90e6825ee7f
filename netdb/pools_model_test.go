package netdb_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// Pools that are set, drained, removed and made again under leases, at random: no address of a
// sandbox that lives is given or made a gateway, none that was a gateway is given before its rest
// is over, no generation goes back, and the book is whole all along.
func TestRandomChangesOfPools(t *testing.T) {
	t.Parallel()
	first := rand.Uint64()
	for seed := first; seed < first+4 && !t.Failed(); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { newPoolsModel(t, seed).run(120) })
	}
}

// A poolsModel is what has to hold of a book of two pools whose prefixes come and go.
type poolsModel struct {
	*testing.T
	*rand.Rand
	clock   *Clock
	open    func() *netdb.Book
	book    *netdb.Book
	live    []*ipam.Lease            // of sandboxes that live, whatever became of their rows
	rests   map[netip.Addr]time.Time // what was a gateway of sandboxes, and when the last time
	at      map[string]int64         // the generation of a pool's name
	history []string
}

func newPoolsModel(t *testing.T, seed uint64) *poolsModel {
	opts, path := Options(), filepath.Join(t.TempDir(), "book.db")
	m := &poolsModel{T: t, Rand: rand.New(rand.NewPCG(seed, 7)), clock: NewClock(), rests: make(map[netip.Addr]time.Time), at: make(map[string]int64)}
	opts.Now, opts.QuarantineShare = m.clock.Now, 1
	m.open = func() *netdb.Book { return OpenAt(t, path, opts) }
	m.book = m.open()
	return m
}

func (m *poolsModel) note(format string, args ...any) {
	m.history = append(m.history, fmt.Sprintf(format, args...))
}

func (m *poolsModel) wrong(format string, args ...any) {
	m.Helper()
	m.Errorf(format, args...)
	for _, line := range m.history[max(0, len(m.history)-30):] {
		m.Log(line)
	}
}

func (m *poolsModel) run(steps int) {
	for n := range steps {
		switch op := m.IntN(22); {
		case op < 7:
			m.give()
		case op < 10:
			m.end()
		case op < 11:
			m.clock.Pass(time.Duration(m.IntN(20)) * time.Minute)
		case op < 12:
			for _, p := range m.book.Pools() {
				free(m.T, m.book, p)
			}
		case op < 13:
			m.see(n)
		case op < 18:
			m.set()
		case op < 19:
			if p := m.pool(); p != nil {
				if out, err := m.book.DrainPool(ctx, operator, p.UID, 0); err == nil {
					m.at[p.Name] = out.Pool.Generation
					m.note("%s drains", p.Name)
				}
			}
		case op < 21:
			if p := m.pool(); p != nil {
				who, force := operator, m.IntN(3) == 0
				who.Note = "test"
				_, err := m.book.RemovePool(ctx, who, p.UID, force)
				m.note("remove %s, force %v: %v", p.Name, force, err)
			}
		default:
			Close(m.T, m.book)
			m.book = m.open()
		}
		if n%10 == 0 {
			Check(m.T, m.book)
		}
		if m.Failed() {
			m.wrong("after step %d", n)
			return
		}
	}
}

// pool is any of the book's, nil where it has none.
func (m *poolsModel) pool() *ipam.Pool {
	if all := m.book.Pools(); len(all) > 0 {
		return all[m.IntN(len(all))]
	}
	return nil
}

func (m *poolsModel) addrIn(p netip.Prefix) netip.Addr {
	a := p.Addr().As4()
	a[3] += byte(m.IntN(1 << (32 - p.Bits())))
	return netip.AddrFrom4(a)
}

// lives is a lease of a sandbox that lives and has an address of a prefix, nil for none.
func (m *poolsModel) lives(p netip.Prefix) *ipam.Lease {
	for _, l := range m.live {
		if l.Prefix().Overlaps(p) {
			return l
		}
	}
	return nil
}

// give has a sandbox ask for an address or a prefix, as the allocator does.
func (m *poolsModel) give() {
	p, sandbox := m.pool(), fmt.Sprint("s", m.IntN(12))
	if p == nil {
		return
	}
	bits, wish := 0, m.addrIn(p.Prefix)
	if m.IntN(3) == 0 {
		bits = p.Prefix.Bits() + 1 + m.IntN(31-p.Prefix.Bits())
	}
	owner := ipam.Owner{PoolUID: p.UID, UID: sandbox, Interface: "eth0"}
	c, err := m.pick(owner, sandbox, wish, bits)
	if err != nil {
		return
	}
	l, err := take(m.book, c, sandbox)
	if err != nil {
		m.note("%s is not given: %v", c.Text(), err)
		return
	}
	m.note("%s gets %s of %s", sandbox, l.Text(), p.Name)
	if other := m.lives(l.Prefix()); other != nil {
		m.wrong("%s is given to %s, and %s of %s lives", l.Text(), sandbox, other.Text(), other.Sandbox)
	}
	for a, since := range m.rests {
		if rest := m.clock.Wall.Sub(since); l.Covers(a) && rest < Policy.CooldownMin {
			m.wrong("%s is given to %s, and %s was a gateway until %v ago", l.Text(), sandbox, a, rest)
		}
	}
	if _, err := m.book.Bind(ctx, client, l.ID, 0, ipam.Binding{HostInterface: "veth-" + sandbox}); err != nil {
		m.wrong("bind %s: %v", l.Text(), err)
	}
	m.live = append(m.live, l)
}

func (m *poolsModel) pick(owner ipam.Owner, sandbox string, wish netip.Addr, bits int) (netdb.Candidate, error) {
	switch {
	case bits != 0 && m.IntN(4) == 0:
		return m.book.PickPrefixAt(owner, netip.PrefixFrom(wish, bits).Masked(), Policy)
	case bits == 0 && m.IntN(4) == 0:
		return m.book.PickAddr(owner, wish, Policy)
	case bits == 0:
		if c, kept, err := m.book.PickKept(owner, sandbox, Policy); kept {
			return c, err
		}
	}
	if c, own := m.book.PickOwn(owner, bits); own {
		return c, nil
	}
	if bits != 0 {
		return m.book.PickPrefix(owner.PoolUID, bits, Policy)
	}
	return m.book.Pick(owner.PoolUID, Policy)
}

// end has a sandbox end: what it has cools, or was withheld when its pool was removed.
func (m *poolsModel) end() {
	if len(m.live) == 0 {
		return
	}
	i := m.IntN(len(m.live))
	ends := m.live[i]
	m.live = slices.Delete(m.live, i, i+1)
	l, err := m.book.Lease(ends.ID)
	if err == nil && l.State == ipam.Bound {
		Cool(m.T, m.book, l)
	}
	m.note("%s with %s ends: %v", ends.Sandbox, ends.Text(), err)
}

// see quarantines an address, adopts one, or clears what no sandbox that lives has.
func (m *poolsModel) see(n int) {
	a := netip.AddrFrom4([4]byte{10, 8, 64, byte(m.IntN(100))})
	row, has := m.book.At(a)
	switch m.IntN(4) {
	case 0:
		_, err := m.book.Quarantine(ctx, Who(ipam.ByReconciler, ipam.SeenOnWire), a, []byte(`[{"witness":"probe"}]`))
		m.note("quarantine %s: %v", a, err)
	case 1:
		if m.lives(netip.PrefixFrom(a, 32)) != nil || has && (row.PrefixLen != 0 || row.State != ipam.Cooling) {
			return
		}
		adoption := ipam.Adoption{Addr: a, Sandbox: fmt.Sprint("adopted", n), Binding: ipam.Binding{HostInterface: "veth"}}
		if has {
			adoption.Rev = row.Rev
		}
		l, err := m.book.Adopt(ctx, Who(ipam.ByReconciler, "adopted"), adoption)
		m.note("adopt %s: %v", a, err)
		if err == nil {
			m.live = append(m.live, l)
		}
	default:
		all, _ := m.book.Leases()
		for _, l := range all {
			if l.State == ipam.Quarantined && m.lives(l.Prefix()) == nil {
				if _, err := Clear(m.book, l.Addr); err != nil {
					m.wrong("clear %s: %v", l.Text(), err)
				}
			}
		}
	}
}

// set makes a pool, or changes one in some way.
func (m *poolsModel) set() {
	prefixes := []string{"10.8.64.0/26", "10.8.64.0/27", "10.8.64.32/27", "10.8.64.0/28", "10.8.64.16/28", "10.8.64.64/27", "10.8.64.32/28", "10.8.64.0/25"}
	prefix := prefixes[m.IntN(len(prefixes))]
	s := spec([]string{"a", "b"}[m.IntN(2)], prefix)
	if m.IntN(2) == 0 {
		for _, p := range m.book.Pools() {
			if p.Name == s.Name {
				s = p.PoolSpec
			}
		}
	}
	switch m.IntN(7) {
	case 0:
		s.Gateway = m.addrIn(s.Prefix)
	case 1:
		r := ipam.Range{From: m.addrIn(s.Prefix), To: m.addrIn(s.Prefix)}
		s.Exclude = []ipam.Range{r}
	case 2:
		s.Exclude = nil
	case 3:
		s.MTU = 1300 + m.IntN(100)
	case 4:
		s.Kept, s.Exclude, s.Prefix = nil, nil, netip.MustParsePrefix(prefix)
		if !s.Prefix.Contains(s.Gateway) {
			s.Gateway = ipam.FirstHost(s.Prefix)
		}
	case 5:
		s.Kept = nil
	default:
		s.Kept = []ipam.Kept{{Sandbox: fmt.Sprint("s", m.IntN(12)), Address: m.addrIn(s.Prefix)}}
	}
	c := netdb.PoolChange{Spec: s, Drain: m.IntN(3) > 0}
	if m.IntN(4) == 0 {
		c.Generation = int64(m.IntN(30))
	}
	out, err := m.book.SetPool(ctx, operator, c)
	m.note("set %s %s, gateway %s, without %v, for %v: %v", s.Name, s.Prefix, s.Gateway, s.Exclude, s.Kept, err)
	if err != nil || !out.Changed {
		return
	}
	if out.Pool.Generation <= m.at[s.Name] {
		m.wrong("pool %s is of generation %d behind %d", s.Name, out.Pool.Generation, m.at[s.Name])
	}
	m.at[s.Name] = out.Pool.Generation
	if out.Was != nil && out.Was.Gateway == s.Gateway {
		return
	}
	if l := m.lives(netip.PrefixFrom(s.Gateway, 32)); l != nil {
		m.wrong("%s is the gateway, and %s of %s lives", s.Gateway, l.Text(), l.Sandbox)
	}
	if out.Was != nil && out.Stay+len(out.Effects) > 0 {
		m.rests[out.Was.Gateway] = m.clock.Wall
	}
}
