package index

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ipamd/ipamd/ipam"
)

// A memoryBook is a book without a file: the rows as a map, and what became free, for an index to be
// built from anew.
type memoryBook struct {
	t     *rapid.T
	pool  *ipam.Pool
	rows  map[netip.Addr]*ipam.Lease
	freed []netip.Addr // newest first
	revs  []int64      // of freed
	now   ipam.Stamp
	ids   int
}

var options = &Options{QuarantineShare: 1, MostFreed: MostFreed, Failpoint: func(string) {}}

func (b *memoryBook) built(rev int64) *Index {
	n := NewBuilder(options, rev, "")
	n.Pool(b.pool)
	for _, l := range b.rows {
		row := *l
		if err := n.Lease(&row); err != nil {
			b.t.Fatal(err)
		}
	}
	for i, a := range b.freed {
		n.Freed(b.pool.UID, ipam.RangeOf(a, 0), b.revs[i])
	}
	return n.Index()
}

func idOf(n int) string { return fmt.Sprintf("%08d", n) }

// next is a row as a move leaves it, with its state Free where it goes.
func (b *memoryBook) next(old *ipam.Lease, a netip.Addr) ipam.Lease {
	to := map[ipam.State][]ipam.State{
		ipam.Reserved:    {ipam.Bound, ipam.Releasing, ipam.Free},
		ipam.Bound:       {ipam.Paused, ipam.Releasing},
		ipam.Paused:      {ipam.Bound, ipam.Releasing},
		ipam.Releasing:   {ipam.Cooling, ipam.Quarantined},
		ipam.Quarantined: {ipam.Cooling},
		ipam.Cooling:     {ipam.Reserved, ipam.Quarantined, ipam.Free},
	}
	is, state := ipam.Lease{Addr: a, PoolUID: b.pool.UID, Pool: b.pool.Name}, ipam.Reserved
	if old != nil {
		is, state = *old, rapid.SampledFrom(to[old.State]).Draw(b.t, "to")
	}
	if state == ipam.Reserved {
		b.ids++
		is.ID, is.UID, is.Interface = idOf(b.ids), fmt.Sprintf("sandbox %d", b.ids), "eth0"
	}
	is.State, is.Since = state, b.now
	return is
}

// What a commit staged, and only that, is what readers see of it once it is applied; and an index
// that has followed commits is the one that is built from what they left.
func TestAnIndexThatFollowsIsTheOneBuiltAnew(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := &memoryBook{t: t, rows: map[netip.Addr]*ipam.Lease{}, now: ipam.Stamp{BootID: "boot", Wall: time.Unix(1, 0)}}
		b.pool = &ipam.Pool{UID: "pool", State: ipam.PoolActive, PoolSpec: ipam.PoolSpec{Name: "default",
			Prefix: netip.MustParsePrefix("10.8.64.0/28"), Gateway: netip.MustParseAddr("10.8.64.1"), Bridge: "rt0",
			Kept: []ipam.Kept{{Address: netip.MustParseAddr("10.8.64.5"), Sandbox: "kept"}}}}
		x := b.built(0)
		offers := x.Offers(func() ipam.Stamp { return b.now })
		policy := ipam.Policy{Cooldown: time.Hour, CooldownMin: time.Minute}
		batch := x.Batch()
		for range rapid.IntRange(1, 40).Draw(t, "commits") {
			b.now.Boottime += 7 * time.Minute
			var held []Candidate
			for range rapid.IntRange(0, 2).Draw(t, "offers") {
				c, err := offers.Pick(b.pool.UID, policy)
				if err != nil {
					break
				}
				if l := b.rows[c.Addr]; l != nil && l.State != ipam.Cooling || slices.ContainsFunc(held, func(h Candidate) bool { return h.Addr == c.Addr }) {
					t.Fatalf("%s is offered, and is %v", c.Addr, l)
				}
				held = append(held, c)
			}
			b.commit(x, batch)
			for _, c := range held {
				offers.Drop(c)
			}
			fresh := b.built(x.Rev())
			x.Check(fresh, func(invariant, format string, args ...any) { t.Errorf(invariant+": "+format, args...) })
			if is, was := slices.Collect(x.tables.poolByUID["pool"].freed.All()), slices.Collect(fresh.tables.poolByUID["pool"].freed.All()); !slices.Equal(is, was) {
				t.Errorf("freed: %v in memory, %v built anew", is, was)
			}
			b.compare(x)
		}
	})
}

// commit makes up to four requests of one batch, of which some fail and are rewound.
func (b *memoryBook) commit(x *Index, batch *Batch) {
	batch.Reset()
	staged := maps.Clone(b.rows)
	freed, revs := slices.Clone(b.freed), slices.Clone(b.revs)
	for range rapid.IntRange(1, 4).Draw(b.t, "requests") {
		before, rev, kept := len(batch.Steps()), batch.Rev(), maps.Clone(staged)
		keptFreed, keptRevs := freed, revs
		for range rapid.IntRange(1, 3).Draw(b.t, "steps") {
			a := netip.AddrFrom4([4]byte{10, 8, 64, byte(rapid.IntRange(2, 14).Draw(b.t, "address"))})
			old := batch.At(a)
			if old != staged[a] {
				b.t.Fatalf("%s is %v in the batch, and %v was staged", a, old, staged[a])
			}
			now := b.next(old, a)
			now.Rev = batch.Rev() + 1
			s := Step{Old: old, Now: &now, Change: &ipam.Change{Rev: now.Rev, Subject: ipam.OfLease, Addr: a, To: now.State}}
			if now.State == ipam.Free {
				s.Now = nil
				delete(staged, a)
				freed, revs = append([]netip.Addr{a}, freed...), append([]int64{now.Rev}, revs...)
			} else {
				staged[a] = &now
			}
			batch.Stage(s)
			if now.State.Open() && (batch.Open(now.Owner()) != &now || batch.Lease(now.ID) != &now) {
				b.t.Fatalf("%s is staged, and not found by its owner and id", a)
			}
		}
		if rapid.IntRange(0, 3).Draw(b.t, "fails") == 0 {
			batch.Rewind(before)
			staged, freed, revs = kept, keptFreed, keptRevs
			if batch.Rev() != rev {
				b.t.Fatalf("revision %d is left of a request that failed at %d", batch.Rev(), rev)
			}
		}
	}
	b.compare(x) // of what is staged nothing shows
	x.Apply(batch, func() {})
	b.rows, b.freed, b.revs = staged, freed, revs
}

func (b *memoryBook) compare(x *Index) {
	rows, rev := x.Leases()
	if len(rows) != len(b.rows) {
		b.t.Fatalf("revision %d has %d rows, not %d", rev, len(rows), len(b.rows))
	}
	for id := 1; id <= b.ids; id++ {
		if l, is := x.Lease(idOf(id)); is && b.rows[l.Addr] != l {
			b.t.Fatalf("revision %d finds %v, which is gone", rev, l)
		}
	}
	for _, l := range rows {
		if is, _ := x.Lease(l.ID); b.rows[l.Addr] != l || is != l {
			b.t.Fatalf("revision %d has %s as %v, by its id as %v, not %v", rev, l.Addr, l, is, b.rows[l.Addr])
		}
		if held, _ := x.OpenLease(l.Owner()); l.State.Open() && held != l {
			b.t.Fatalf("revision %d does not find %s by its owner", rev, l.Addr)
		}
	}
}
