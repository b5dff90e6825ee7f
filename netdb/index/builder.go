package index

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/free"
)

// A Builder makes an index from the rows of a book, of which it is given the pools first, then the
// leases, then what is withheld, and then all others in any order. A row that contradicts those
// before it is answered with the reason, and is not taken in: it is for [Builder.Unreadable].
type Builder struct {
	x     *tables
	given map[*poolIndex]netip.Addr // last
}

// NewBuilder begins with a book's last revision and the container runtime that it knows.
func NewBuilder(o *Options, rev int64, runtime string) *Builder {
	x := newTables(o)
	x.rev, x.runtime = rev, runtime
	return &Builder{x, make(map[*poolIndex]netip.Addr)}
}

// Rev is the last revision of the book, as far as it is read.
func (b *Builder) Rev() int64 { return b.x.rev }

func (b *Builder) Pool(p *ipam.Pool) { b.x.addPool(p) }

// Lease takes a row in, and sets its pool's name.
func (b *Builder) Lease(l *ipam.Lease) error {
	x := b.x
	switch {
	case len(x.byAddr.overlapping(l.Range())) > 0:
		return fmt.Errorf("another row leases an address of %s", l.Text())
	case x.pools[l.PoolUID] == nil:
		return errors.New("its pool " + l.PoolUID + " is unknown")
	case x.byID[l.ID] != nil:
		return fmt.Errorf("its id %s is that of %s", l.ID, x.byID[l.ID].Addr)
	}
	l.Pool = x.pools[l.PoolUID].pool.Name
	x.rev = max(x.rev, l.Rev)
	x.apply(nil, l, l.Rev)
	return nil
}

// Unreadable reports a row and keeps every address that it may mean from
// being handed out.
func (b *Builder) Unreadable(u Unreadable) {
	b.x.blockAll(u)
	b.x.broken = append(b.x.broken, u)
}

func (b *Builder) Withheld(w ipam.Withheld) error {
	if why := b.x.notWithheld(&w); why != "" {
		return errors.New(why)
	}
	b.x.withheld[w.Addr] = w
	return nil
}

func (b *Builder) PoolName(n ipam.PoolName) { b.x.names[KeyOfName(&n)] = n }

func (b *Builder) Tombstone(uid string, t Tombstone) { b.x.bury(uid, t) }

func (b *Builder) HostName(n ipam.HostName) {
	b.x.hostNames[n.Name], b.x.hostNameOf[LinkOf(&n)] = &n, &n
}

func (b *Builder) Sleep(s *ipam.Sleep) error {
	l := b.x.byID[s.LeaseID]
	if l == nil || !l.State.Open() {
		return errors.New("no open lease has that id")
	}
	if err := s.Check(l.Addr); err != nil {
		return err
	}
	b.x.sleeps[s.LeaseID] = s
	return nil
}

func (b *Builder) Slot(s *ipam.Slot) error {
	if l := b.x.byID[s.LeaseID]; l == nil || !l.State.Open() && l.State != ipam.Releasing {
		return errors.New("no lease that is held has that id")
	}
	b.x.slots[s.LeaseID] = s
	return nil
}

// Freed queues addresses of a pool that became free at a revision, as far as the queues have room.
// The newest come first, so that what is left out became free before all that is queued.
func (b *Builder) Freed(poolUID string, r ipam.Range, rev int64) {
	x := b.x
	pi := x.pools[poolUID]
	if pi == nil {
		return
	}
	inside, outside := splitRange(&pi.pool.PoolSpec, r)
	for _, in := range inside {
		if pi.freed.Len() < x.opts.MostFreed {
			pi.queue(in, rev) // what has a row, or became free later, is not free
		}
	}
	for _, out := range outside {
		if pi.away.Len() >= x.opts.MostFreed {
			break
		}
		for _, r := range free.Rest(out, x.takenIn(pi, out)...) {
			pi.sendAway(r, rev)
		}
	}
}

// Given says which address a pool gave last of those that were never given before.
func (b *Builder) Given(poolUID string, a netip.Addr) {
	if pi := b.x.pools[poolUID]; pi != nil {
		b.given[pi] = a
	}
}

// Index returns what was built. The walk over the never-used goes on where it was, so that a
// restart does not start again at the low addresses, which a large pool may have
// given and forgotten a moment ago. A pool that gave nothing of late goes on
// behind its youngest lease, by the time in its id, or behind what became free
// last.
func (b *Builder) Index() *Index {
	youngest := make(map[*poolIndex]*ipam.Lease)
	for l := range b.x.byAddr.all() {
		if pi := b.x.pools[l.PoolUID]; youngest[pi] == nil || youngest[pi].ID < l.ID {
			youngest[pi] = l
		}
	}
	for _, pi := range b.x.order {
		if a, given := b.given[pi]; given {
			pi.cursor = a.Next()
		} else if l := youngest[pi]; l != nil {
			pi.cursor = l.Addr.Next()
		} else if f, ok := pi.freed.Last(); ok {
			pi.cursor = f.To.Next()
		}
	}
	return newIndex(b.x.opts, b.x)
}
