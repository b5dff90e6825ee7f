package netdb

import (
	"fmt"
	"maps"
	"math"
	"math/bits"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ipamd/ipamd/internal/elapsed"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/free"
)

// A memory is what the book has in memory, the same as in its file: one index, which
// readers ask under mu and callers to be hold addresses in. The lock holder of the
// [writer] alone replaces or changes rows, and so reads them without mu. It has a method for each
// question, as one lock is over all of them.
type memory struct {
	opts  *Options
	clock *elapsed.Clock

	mu      sync.RWMutex
	idx     *index
	commits durations
	signal  signal

	nameCount atomic.Int64 // of names of patterns
}

// publish makes a durable batch visible to readers.
func (m *memory) publish(staged *overlay, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var touched stateSet
	for _, s := range staged.steps {
		m.opts.meet("publish")
		touched |= s.touched()
		switch {
		case s.removed:
			m.idx.removePool(s.pool)
		case s.pool != nil:
			m.idx.replacePool(s.pool)
		case s.tomb != "":
			m.idx.bury(s.tomb, s.stone)
		case s.runtime != "":
			m.idx.runtime = s.runtime
		case s.old != nil || s.now != nil:
			m.idx.apply(s.old, s.now, s.change.Rev)
			m.idx.setNames(s)
			s.sleep.apply(m.idx.sleeps)
			s.slot.apply(m.idx.slots)
		}
		if s.name != nil {
			m.idx.names[nameKeyOf(s.name)] = *s.name
		}
		if w := s.withheld; w != nil {
			if delete(m.idx.withheld, w.Addr); s.now == nil {
				m.idx.withheld[w.Addr] = *w
			}
		}
	}
	m.idx.rev = staged.rev
	m.commits.add(took)
	m.signal.send(touched)
}

// replace puts an index in the place of the one before; what is offered stays so.
func (m *memory) replace(idx *index) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid, was := range m.idx.pools {
		if pi := idx.pools[uid]; pi != nil {
			pi.takeOffers(was)
		}
	}
	m.idx = idx
}

// Now is the moment as the book dates it: the one to compare the book's own
// stamps with.
func (m *memory) Now() ipam.Stamp { return m.clock.Now() }

// Rev is the last committed revision.
func (m *memory) Rev() int64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.idx.rev
}

// At returns the row that leases an address: its own, or that of the delegated prefix which
// contains it.
func (m *memory) At(a netip.Addr) (*ipam.Lease, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	l := m.idx.byAddr.at(a)
	return l, l != nil
}

// Held returns the owner's open lease.
func (m *memory) Held(o ipam.Owner) (*ipam.Lease, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	l := m.idx.open(o)
	return l, l != nil
}

// OpenOf returns the open leases of a sandbox, in no order.
func (m *memory) OpenOf(uid string) []*ipam.Lease {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return slices.DeleteFunc(slices.Clone(m.idx.byUID[uid]), func(l *ipam.Lease) bool { return !l.State.Open() })
}

// Leases returns every row in numeric order of the addresses, and the
// revision at which that was so.
func (m *memory) Leases() ([]*ipam.Lease, int64) {
	rows, rev := m.snapshot()
	return slices.AppendSeq(make([]*ipam.Lease, 0, rows.len()), rows.all()), rev
}

// snapshot returns the rows as they are now, to be read without a lock, and the
// revision of that.
func (m *memory) snapshot() (rowset, int64) {
	defer m.opts.meet("scan")
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.idx.byAddr.snapshot(), m.idx.rev
}

// InState returns the rows in one state, in numeric order.
func (m *memory) InState(s ipam.State) []*ipam.Lease {
	rows, _ := m.snapshot()
	var out []*ipam.Lease
	for l := range rows.all() {
		if l.State == s {
			out = append(out, l)
		}
	}
	return out
}

// Usage returns what each pool holds, and the revision at which that was so.
func (m *memory) Usage() ([]ipam.Usage, int64) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var out []ipam.Usage
	for _, pi := range m.idx.order {
		u := ipam.Usage{Pool: *pi.pool, Size: pi.size, Free: saturatingAdd(pi.free.Count(), pi.freed.Count()), Kept: uint64(len(pi.kept)), ByState: maps.Clone(pi.count),
			Outside: pi.outside, QuarantineCap: m.opts.mostQuarantined(pi.size)}
		for h := range pi.offers {
			if m.idx.byAddr.at(h) == nil {
				u.Free = saturatingAdd(u.Free, 1)
			}
		}
		for _, pieces := range pi.offeredPrefixes {
			for _, f := range pieces {
				u.Free = saturatingAdd(u.Free, free.Saturated(f.Size()))
			}
		}
		out = append(out, u)
	}
	return out, m.idx.rev
}

func saturatingAdd(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return sum
}

// Runtime returns the id of the container runtime that the book knows: the one
// that its containers are in. It is "" before the first was noted.
func (m *memory) Runtime() string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.idx.runtime
}

// Pools returns the pools as created.
func (m *memory) Pools() []*ipam.Pool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	out := make([]*ipam.Pool, len(m.idx.order))
	for i, pi := range m.idx.order {
		out[i] = pi.pool
	}
	return out
}

// Place returns where an address lies.
func (m *memory) Place(a netip.Addr) ipam.Place {
	m.mu.RLock()
	defer m.mu.RUnlock()
	pi := m.idx.poolOf(a)
	if l := m.idx.byAddr.at(a); l != nil {
		pi = m.idx.pools[l.PoolUID] // also of a row outside it
	}
	w := m.idx.withheldAt(a)
	switch {
	case pi == nil && w != nil:
		return ipam.Place{Note: fmt.Sprintf("withheld since pool %s was removed", w.Pool), Withheld: w}
	case pi == nil:
		return ipam.Place{Note: "in no pool"}
	}
	note := pi.pool.OutsideAddr(a)
	if pi.isBlocked(a) {
		note = "named by a row that cannot be read"
	}
	return ipam.Place{Pool: pi.pool, Usable: note == "", Note: note, Kept: pi.keptFor[a], Withheld: w}
}

// A signal is a broadcast without a payload: look again. A subscriber to some states
// only is not woken by a commit that touches none of them, and a commit without
// waiters wakes no goroutine: each processor that is woken behind every commit is taken
// from the next one. Its zero value works.
type signal struct {
	mu      sync.Mutex
	waiting map[stateSet]chan struct{} // closed and dropped by the next that touches one of the states
}

// A stateSet has a bit for each state, and one that every commit touches.
type stateSet uint16

const (
	anyCommit  stateSet = 1 << 15
	poolCommit stateSet = 1 << 14
)

var stateBits = append([]ipam.State{ipam.Free}, ipam.States()...)

func setOf(states ...ipam.State) (set stateSet) {
	for _, s := range states {
		set |= 1 << slices.Index(stateBits, s)
	}
	return set
}

func (s *signal) next(of stateSet) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting == nil {
		s.waiting = make(map[stateSet]chan struct{})
	}
	if s.waiting[of] == nil {
		s.waiting[of] = make(chan struct{})
	}
	return s.waiting[of]
}

func (s *signal) send(touched stateSet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for of, ch := range s.waiting {
		if of&touched != 0 {
			close(ch)
			delete(s.waiting, of)
		}
	}
}

// touched is the states that a step leaves and enters.
func (s step) touched() stateSet {
	switch s.change.Subject {
	case ipam.OfPool, ipam.OfBook:
		return anyCommit | poolCommit
	case ipam.OfAttempt:
		return anyCommit
	}
	return anyCommit | setOf(s.change.From, s.change.To)
}

// Changed returns a channel that is closed at the next commit. It carries no
// payload: look again.
func (m *memory) Changed() <-chan struct{} { return m.signal.next(anyCommit) }

// Touched returns a channel that is closed at the next commit which moves a lease
// into one of the states, or out of it. It carries no payload: look again.
func (m *memory) Touched(states ...ipam.State) <-chan struct{} {
	return m.signal.next(setOf(states...))
}

// PoolsChanged returns a channel that is closed at the next commit that makes, changes or
// removes a pool, or is about the book itself: whose it is. It carries no payload: look again.
func (m *memory) PoolsChanged() <-chan struct{} { return m.signal.next(poolCommit) }
