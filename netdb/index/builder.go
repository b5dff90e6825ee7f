package index

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/free"
)

// A Builder makes an index from the rows of a book: first the pools, then the leases, then what is
// withheld, and then all others in any order. A row that contradicts those before it is an error, and is
// left out: the caller hands it to [Builder.Unreadable].
type Builder struct {
	x         *tables
	lastGiven map[*poolIndex]netip.Addr // last
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

// Lease adds a row, and sets the name of its pool in it.
func (b *Builder) Lease(l *ipam.Lease) error {
	x := b.x
	switch {
	case len(x.rowByAddr.overlapping(l.Range())) > 0:
		return fmt.Errorf("another row leases an address of %s", l.Text())
	case x.poolByUID[l.PoolUID] == nil:
		return errors.New("its pool " + l.PoolUID + " is unknown")
	case x.rowByID[l.ID] != nil:
		return fmt.Errorf("its id %s is that of %s", l.ID, x.rowByID[l.ID].Addr)
	}
	l.Pool = x.poolByUID[l.PoolUID].pool.Name
	x.rev = max(x.rev, l.Rev)
	x.apply(nil, l, l.Rev)
	return nil
}

// Unreadable notes a row that is left out, and keeps every address from being given that it may lease.
func (b *Builder) Unreadable(u Unreadable) {
	b.x.blockAll(u)
	b.x.unreadable = append(b.x.unreadable, u)
}

func (b *Builder) Withheld(w ipam.Withheld) error {
	if why := b.x.notWithheld(&w); why != "" {
		return errors.New(why)
	}
	b.x.withheldByAddr[w.Addr] = w
	return nil
}

func (b *Builder) PoolName(n ipam.PoolName) { b.x.poolNames[PoolKeyOfName(&n)] = n }

func (b *Builder) Tombstone(uid string, t Tombstone) { b.x.setTombstone(uid, t) }

func (b *Builder) HostName(n ipam.HostName) {
	b.x.hostNameByName[n.Name], b.x.hostNameByInterface[InterfaceOf(&n)] = &n, &n
}

func (b *Builder) Sleep(s *ipam.Sleep) error {
	l := b.x.rowByID[s.LeaseID]
	if l == nil || !l.State.Open() {
		return errors.New("no open lease has that id")
	}
	if err := s.Check(l.Addr); err != nil {
		return err
	}
	b.x.sleepByLeaseID[s.LeaseID] = s
	return nil
}

func (b *Builder) Slot(s *ipam.Slot) error {
	if l := b.x.rowByID[s.LeaseID]; l == nil || !l.State.Open() && l.State != ipam.Releasing {
		return errors.New("no lease that is held has that id")
	}
	b.x.slotByLeaseID[s.LeaseID] = s
	return nil
}

// Freed queues addresses of a pool that became free at a revision, as far as the queues have room. The
// caller begins with the last that became free, so that those without room have been free for longest.
func (b *Builder) Freed(poolUID string, r ipam.Range, rev int64) {
	x := b.x
	pi := x.poolByUID[poolUID]
	if pi == nil {
		return
	}
	inside, outside := splitRange(&pi.pool.PoolSpec, r)
	for _, in := range inside {
		if pi.freed.Len() < x.opts.MostFreed {
			pi.queueFreed(in, rev) // what has a row, or became free later, is not free
		}
	}
	for _, out := range outside {
		if pi.freedOutside.Len() >= x.opts.MostFreed {
			break
		}
		for _, r := range free.Rest(out, x.takenIn(pi, out)...) {
			pi.queueOutside(r, rev)
		}
	}
}

// LastGiven says which address a pool gave last of those that had never been given.
func (b *Builder) LastGiven(poolUID string, a netip.Addr) {
	if pi := b.x.poolByUID[poolUID]; pi != nil {
		b.lastGiven[pi] = a
	}
}

// Index returns what was built. Each pool goes on through its never given addresses where it was, also
// after a restart: the low addresses of a large pool may have been given a short while ago, and dropped
// from its queue since. Where [Builder.LastGiven] does not say it, a pool goes on behind its youngest
// lease, by the time in its id, or behind the range that became free last.
func (b *Builder) Index() *Index {
	youngest := make(map[*poolIndex]*ipam.Lease)
	for l := range b.x.rowByAddr.all() {
		if pi := b.x.poolByUID[l.PoolUID]; youngest[pi] == nil || youngest[pi].ID < l.ID {
			youngest[pi] = l
		}
	}
	for _, pi := range b.x.poolsInOrder {
		if a, given := b.lastGiven[pi]; given {
			pi.cursor = a.Next()
		} else if l := youngest[pi]; l != nil {
			pi.cursor = l.Addr.Next()
		} else if f, ok := pi.freed.Last(); ok {
			pi.cursor = f.To.Next()
		}
	}
	return newIndex(b.x.opts, b.x)
}
