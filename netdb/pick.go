package netdb

import (
	"context"
	"fmt"
	"net/netip"
	"sort"
	"time"
)

// A Candidate is an address that the book would give next. While it is held
// no other caller is offered it. A hold lives in memory only: it ends with
// [Book.Reserve], [Book.Quarantine] or [Book.Drop].
type Candidate struct {
	Addr  netip.Addr
	Pool  *Pool
	Early bool // its cooldown was cut short, because nothing else is left

	cut Cut
	rev int64 // of the cooling row that was found rested; 0: there was none
}

// Pick offers the address that the pool would give next, and holds it: never
// used first, in address order, walking on from the last one given; then the
// one that became free longest ago; then the one released longest ago whose
// cooldown is over and whose row is still there; at exhaustion, unless the
// policy is strict, the one released longest ago whose CooldownMin is over.
// The cost does not depend on how many leases there are.
//
// Nothing to offer is [ErrExhausted]; an unknown pool is [ErrNotFound].
func (b *Book) Pick(poolUID string, policy Policy) (Candidate, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	pi := b.idx.pools[poolUID]
	if pi == nil {
		return Candidate{}, fmt.Errorf("pick from pool %s: %w", poolUID, ErrNotFound)
	}
	if a, ok := pi.free.next(pi.cursor); ok {
		pi.held[a] = pi.take(a)
		pi.cursor = a.Next()
		return Candidate{Addr: a, Pool: pi.pool}, nil
	}
	if a, ok := pi.freed.first(); ok {
		pi.held[a] = pi.take(a)
		return Candidate{Addr: a, Pool: pi.pool}, nil
	}
	exhausted := &ExhaustedError{Pool: pi.pool.Name, ByState: pi.byState()}
	if l := pi.rested(); l != nil {
		rest := b.clock.now().Since(l.Since)
		exhausted.Next = policy.least() - rest
		early := rest < policy.Cooldown
		if !early || !policy.Strict && rest >= policy.CooldownMin {
			pi.held[l.Addr] = 0
			c := Candidate{Addr: l.Addr, Pool: pi.pool, Early: early, rev: l.Rev}
			if early {
				c.cut = CutEarly
			}
			return c, nil
		}
	}
	return Candidate{}, exhausted
}

// Available counts the addresses of a pool that can be given now: those without
// a row, and those that have cooled for as long as the policy wants at exhaustion.
// When there is none, next is how long until the one that cools for longest can
// be given; 0 when none cools. The cost does not depend on how many leases there are.
func (b *Book) Available(poolUID string, policy Policy) (n uint64, next time.Duration) {
	now := b.clock.now()
	b.mu.RLock()
	defer b.mu.RUnlock()
	pi := b.idx.pools[poolUID]
	if pi == nil {
		return 0, 0
	}
	n = saturatingAdd(pi.free.count(), uint64(pi.freed.len()))
	var oldest *Lease
	pi.cooling.Scan(func(_ int64, l *Lease) bool {
		if usable, _ := pi.pool.usable(l.Addr); usable {
			oldest = l
		}
		return oldest == nil
	})
	switch {
	case oldest == nil:
		return n, 0
	case now.Since(oldest.Since) < policy.least() && n == 0:
		return 0, policy.least() - now.Since(oldest.Since)
	}
	return saturatingAdd(n, uint64(sort.Search(pi.cooling.Len(), func(at int) bool {
		_, l, _ := pi.cooling.GetAt(at)
		return now.Since(l.Since) < policy.least()
	}))), 0
}

// rested returns the cooling lease that was released longest ago and is not
// offered to anybody. Revisions order it, not clocks.
func (pi *poolIndex) rested() (found *Lease) {
	pi.cooling.Scan(func(_ int64, l *Lease) bool {
		if _, held := pi.held[l.Addr]; held {
			return true
		}
		if usable, _ := pi.pool.usable(l.Addr); !usable {
			return true
		}
		found = l
		return false
	})
	return found
}

func (pi *poolIndex) byState() map[State]int {
	out := make(map[State]int)
	for _, s := range States() {
		out[s] = pi.count[s]
	}
	return out
}

// PickOwn offers an owner its own last address while that is still cooling:
// its own stale neighbours cannot hurt it. No other owner is offered it before
// the cooldown is over.
func (b *Book) PickOwn(o Owner) (Candidate, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	pi := b.idx.pools[o.PoolUID]
	if pi == nil {
		return Candidate{}, false
	}
	l := pi.own[o]
	if l == nil {
		return Candidate{}, false
	}
	if _, held := pi.held[l.Addr]; held {
		return Candidate{}, false
	}
	if usable, _ := pi.pool.usable(l.Addr); !usable {
		return Candidate{}, false
	}
	pi.held[l.Addr] = 0
	return Candidate{Addr: l.Addr, Pool: pi.pool, cut: CutOwn, rev: l.Rev}, true
}

// PickAddr offers one wished address, if its owner-to-be may have it:
// [ErrNotInPool], [ErrTaken] (also while another call is offered it, or while
// it cools after another owner) or [ErrQuarantined].
func (b *Book) PickAddr(o Owner, a netip.Addr, policy Policy) (Candidate, error) {
	now := b.clock.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	pi := b.idx.pools[o.PoolUID]
	if pi == nil {
		return Candidate{}, fmt.Errorf("pick from pool %s: %w", o.PoolUID, ErrNotFound)
	}
	if usable, note := pi.pool.usable(a); !usable {
		return Candidate{}, fmt.Errorf("address %s: %w %s: it is %s", a, ErrNotInPool, pi.pool.Name, note)
	}
	if _, walled := pi.walled[a]; walled {
		return Candidate{}, fmt.Errorf("address %s: %w by a row that cannot be read; see doctor", a, ErrTaken)
	}
	if _, held := pi.held[a]; held {
		return Candidate{}, fmt.Errorf("address %s: %w by a call under way", a, ErrTaken)
	}
	l := b.idx.byAddr.at(a)
	var cut Cut
	if l != nil {
		rest := now.Since(l.Since)
		switch {
		case l.State == Quarantined:
			return Candidate{}, fmt.Errorf("address %s: %w", a, ErrQuarantined)
		case l.State != Cooling:
			return Candidate{}, fmt.Errorf("address %s: %w: %s by sandbox %q", a, ErrTaken, l.State, l.Sandbox)
		case l.Owner() != o && rest < policy.Cooldown:
			return Candidate{}, fmt.Errorf("address %s: %w: it cools for another %v", a, ErrTaken, policy.Cooldown-rest)
		case rest < policy.Cooldown:
			cut = CutOwn
		}
	}
	pi.held[a] = pi.take(a)
	return Candidate{Addr: a, Pool: pi.pool, cut: cut, rev: revOf(l)}, nil
}

// Drop ends the hold on a candidate that was not taken. It may be called
// after [Book.Reserve] too, and twice.
func (b *Book) Drop(c Candidate) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if pi := b.idx.pools[c.Pool.UID]; pi != nil {
		if _, held := pi.held[c.Addr]; held {
			b.idx.unhold(pi, c.Addr)
		}
	}
}

// Upcoming lists up to n addresses that [Book.Pick] would offer next, for
// those who look ahead. It holds nothing.
func (b *Book) Upcoming(poolUID string, n int, policy Policy) []netip.Addr {
	now := b.clock.now()
	b.mu.RLock()
	defer b.mu.RUnlock()
	pi := b.idx.pools[poolUID]
	if pi == nil {
		return nil
	}
	out := pi.free.upcoming(pi.cursor, n)
	out = append(out, pi.freed.upcoming(n-len(out))...)
	pi.cooling.Scan(func(_ int64, l *Lease) bool {
		if len(out) >= n || now.Since(l.Since) < policy.CooldownMin {
			return false
		}
		if usable, _ := pi.pool.usable(l.Addr); usable {
			out = append(out, l.Addr)
		}
		return true
	})
	return out
}

// Pools returns the pools as created.
func (b *Book) Pools() []*Pool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	out := make([]*Pool, len(b.idx.order))
	for i, pi := range b.idx.order {
		out[i] = pi.pool
	}
	return out
}

// An ExhaustedError says what the pool is full of. It is [ErrExhausted].
type ExhaustedError struct {
	Pool    string
	ByState map[State]int
	Next    time.Duration // until the next address has rested for long enough; 0 when none rests
}

func (e *ExhaustedError) Error() string {
	s := fmt.Sprintf("%v: %s holds %d reserved, %d bound, %d paused, %d releasing, %d cooling, %d quarantined",
		ErrExhausted, e.Pool, e.ByState[Reserved], e.ByState[Bound], e.ByState[Paused],
		e.ByState[Releasing], e.ByState[Cooling], e.ByState[Quarantined])
	if e.Next > 0 {
		s += fmt.Sprintf("; the next address will have rested in %s", max(e.Next.Round(time.Second), time.Second))
	}
	return s
}

func (e *ExhaustedError) Unwrap() error { return ErrExhausted }

// Rested returns up to n cooling rows of a pool whose cooldown is over, the one
// released longest ago first. after is the revision of the last row that the
// caller has looked at, 0 at first. The cost does not depend on how many leases
// there are.
func (b *Book) Rested(poolUID string, cooldown time.Duration, after int64, n int) []*Lease {
	now := b.clock.now()
	b.mu.RLock()
	defer b.mu.RUnlock()
	pi := b.idx.pools[poolUID]
	if pi == nil {
		return nil
	}
	var out []*Lease
	pi.cooling.Ascend(after+1, func(_ int64, l *Lease) bool {
		if len(out) == n || now.Since(l.Since) < cooldown {
			return false
		}
		out = append(out, l)
		return true
	})
	return out
}

// Free ends the rest of cooling rows, in one commit: their addresses are free
// and keep their place in the order of reuse. A row that changed since it was
// read stays, one whose address is being offered to a caller, and one of which
// unseen returns an error; unseen is asked in the transaction, about each
// address, and must not wait. Free returns how many rows went.
//
// That the cooldown is over is the caller's to know: see [Book.Rested].
func (b *Book) Free(ctx context.Context, who Who, rested []*Lease, unseen func(netip.Addr) error) (freed int, err error) {
	err = b.update(ctx, func(t *tx) error {
		freed = 0
		for _, l := range rested {
			if t.at(l.Addr) != l || b.offered(l) || unseen(l.Addr) != nil {
				continue
			}
			now := *l
			now.State = Free
			if _, err := t.move(who, l, now, nil); err != nil {
				return err
			}
			freed++
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return freed, nil
}

// offered reports whether a caller is offered the address of a row.
func (b *Book) offered(l *Lease) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	_, held := b.idx.pools[l.PoolUID].held[l.Addr]
	return held
}
