package index

import (
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/ipamd/ipamd/ipam"
)

// A View is what a request sees inside a commit: the committed rows, and on top what the requests
// before it in the batch and it itself have staged. A nil row is gone.
type View struct {
	is      *tables // what is committed
	steps   []Step
	rev     int64 // of the last step
	runtime string

	leases   map[netip.Addr]*ipam.Lease
	prefixes []*ipam.Lease // rows of delegated prefixes, also as they were in between
	ids      map[string]*ipam.Lease
	owners   map[ipam.Owner]*ipam.Lease
	tombs    map[string]Tombstone

	pools      map[string]*ipam.Pool // by uid
	names      map[PoolKey]ipam.PoolName
	withheld   map[netip.Addr]*ipam.Withheld
	hostNames  map[string]*ipam.HostName
	hostNameOf map[Link]*ipam.HostName
	sleeps     map[string]*ipam.Sleep // by lease
	slots      map[string]*ipam.Slot  // likewise
}

func newView() *View {
	return &View{
		leases: make(map[netip.Addr]*ipam.Lease),
		ids:    make(map[string]*ipam.Lease),
		owners: make(map[ipam.Owner]*ipam.Lease),
		tombs:  make(map[string]Tombstone),

		pools:      make(map[string]*ipam.Pool),
		names:      make(map[PoolKey]ipam.PoolName),
		withheld:   make(map[netip.Addr]*ipam.Withheld),
		hostNames:  make(map[string]*ipam.HostName),
		hostNameOf: make(map[Link]*ipam.HostName),
		sleeps:     make(map[string]*ipam.Sleep),
		slots:      make(map[string]*ipam.Slot),
	}
}

// look finds what is staged under a key, or else what is committed.
func look[K comparable, V any](k K, staged, committed map[K]V) V {
	if v, ok := staged[k]; ok {
		return v
	}
	return committed[k]
}

// Rev is the revision of the last step, or else of what is committed.
func (v *View) Rev() int64 { return v.rev }

// At returns the row that leases an address, or nil: its own, or that of the delegated prefix
// which contains it.
func (v *View) At(a netip.Addr) *ipam.Lease {
	if l := v.leases[a]; l != nil {
		return l
	}
	for _, l := range v.prefixes {
		if l.Covers(a) && v.leases[l.Addr] == l {
			return l
		}
	}
	l := v.is.byAddr.at(a)
	if l != nil {
		if _, staged := v.leases[l.Addr]; staged {
			return nil // as it is now, it was looked for above
		}
	}
	return l
}

// Overlapping returns the rows that lease an address of a range, in order.
func (v *View) Overlapping(r ipam.Range) []*ipam.Lease {
	found := slices.DeleteFunc(v.is.byAddr.overlapping(r), func(l *ipam.Lease) bool {
		_, staged := v.leases[l.Addr]
		return staged
	})
	for _, l := range v.leases {
		if l != nil && l.Range().Overlaps(r) {
			found = append(found, l)
		}
	}
	slices.SortFunc(found, byFirst)
	return found
}

func byFirst(x, y *ipam.Lease) int { return x.Addr.Compare(y.Addr) }

// Rows yields every row, in no order.
func (v *View) Rows() iter.Seq[*ipam.Lease] {
	return func(yield func(*ipam.Lease) bool) {
		for l := range v.is.byAddr.all() {
			if _, staged := v.leases[l.Addr]; !staged && !yield(l) {
				return
			}
		}
		for _, l := range v.leases {
			if l != nil && !yield(l) {
				return
			}
		}
	}
}

// Lease returns the row with an id, or nil.
func (v *View) Lease(id string) *ipam.Lease { return look(id, v.ids, v.is.byID) }

// Removed reports whether this batch took the row with an id away.
func (v *View) Removed(id string) bool {
	l, ok := v.ids[id]
	return ok && l == nil
}

// Open returns the owner's open lease, or nil.
func (v *View) Open(o ipam.Owner) *ipam.Lease {
	if l, ok := v.owners[o]; ok {
		return l
	}
	return v.is.open(o)
}

// OpenOf returns every open lease of a sandbox uid, in address order.
func (v *View) OpenOf(uid string) []*ipam.Lease {
	return slices.DeleteFunc(v.heldBy(uid), func(l *ipam.Lease) bool { return !l.State.Open() })
}

// heldBy returns every row of a sandbox uid that does not cool, in address order.
func (v *View) heldBy(uid string) []*ipam.Lease {
	found := slices.Clone(v.is.byUID[uid])
	for a, l := range v.leases {
		found = slices.DeleteFunc(found, func(f *ipam.Lease) bool { return f.Addr == a })
		if l != nil && l.UID == uid && holdsName(l) {
			found = append(found, l)
		}
	}
	slices.SortFunc(found, byFirst)
	return found
}

// Still returns the row in whose place a candidate is given, nil for none, and those that end
// for it. Each is to be as it was when the candidate was picked, else the answer is [ipam.ErrTaken].
func (v *View) Still(c Candidate) (old *ipam.Lease, ends []*ipam.Lease, err error) {
	if c.PrefixLen == 0 {
		old = v.At(c.Addr)
		if RevOf(old) != c.rev || old != nil && old.PrefixLen != 0 { // it was free or cooled as it was picked, alone, and is so still
			return nil, nil, fmt.Errorf("address %s: %w", c.Addr, ipam.ErrTaken)
		}
		return old, nil, nil
	}
	rows := v.Overlapping(c.Range())
	if !slices.EqualFunc(rows, slices.SortedFunc(slices.Values(c.cooled), byFirst), func(is, was *ipam.Lease) bool { return is.ID == was.ID && is.Rev == was.Rev }) {
		return nil, nil, fmt.Errorf("prefix %s: %w", c.Text(), ipam.ErrTaken)
	}
	for i, l := range rows {
		if l.Addr == c.Addr && l.PrefixLen == c.PrefixLen {
			return l, rows[:i], nil
		}
	}
	return nil, rows, nil
}

// RevOf returns the revision of a row, 0 for none.
func RevOf(l *ipam.Lease) int64 {
	if l == nil {
		return 0
	}
	return l.Rev
}

// Tombstone returns that of a sandbox uid, zero for none.
func (v *View) Tombstone(uid string) Tombstone { return look(uid, v.tombs, v.is.tombs) }

// Tombstones returns how many there may be at the most, and the oldest of those that are committed.
func (v *View) Tombstones() (n int, oldest Tombstone) {
	_, uid, _ := v.is.stones.Min()
	return len(v.is.tombs) + len(v.tombs), v.is.tombs[uid]
}

// Sleep returns the sleep of a lease, or nil.
func (v *View) Sleep(lease string) *ipam.Sleep { return look(lease, v.sleeps, v.is.sleeps) }

// Slot returns the slot of a lease, or nil.
func (v *View) Slot(lease string) *ipam.Slot { return look(lease, v.slots, v.is.slots) }

// Slots yields every slot.
func (v *View) Slots() iter.Seq[*ipam.Slot] {
	return func(yield func(*ipam.Slot) bool) {
		for id, s := range v.is.slots {
			if _, staged := v.slots[id]; !staged && !yield(s) {
				return
			}
		}
		for _, s := range v.slots {
			if s != nil && !yield(s) {
				return
			}
		}
	}
}

// HostNameOf returns the name of a link, or nil.
func (v *View) HostNameOf(of Link) *ipam.HostName { return look(of, v.hostNameOf, v.is.hostNameOf) }

// HostNamed returns who has a name, or nil.
func (v *View) HostNamed(name string) *ipam.HostName { return look(name, v.hostNames, v.is.hostNames) }

// RowsOf returns the rows by which a link keeps its name.
func (v *View) RowsOf(of Link) []*ipam.Lease {
	return slices.DeleteFunc(v.heldBy(of.UID), func(l *ipam.Lease) bool { return l.Interface != of.Interface })
}

// LastName returns the name that has lost its last row with one that goes, or nil.
func (v *View) LastName(gone *ipam.Lease) *ipam.HostName {
	if gone == nil || !holdsName(gone) {
		return nil
	}
	of := Link{gone.UID, gone.Interface}
	if has := v.HostNameOf(of); has != nil && len(v.RowsOf(of)) == 0 {
		return has
	}
	return nil
}

// Runtime is the container runtime that the book knows, "" before the first was noted.
func (v *View) Runtime() string {
	if v.runtime != "" {
		return v.runtime
	}
	return v.is.runtime
}

// Unreadable are the rows that could not be read.
func (v *View) Unreadable() []Unreadable { return v.is.broken }

// Withheld lists the withheld addresses.
func (v *View) Withheld() []ipam.Withheld {
	all := v.is.withheld
	if len(v.withheld) > 0 {
		all = maps.Clone(all)
		for a, w := range v.withheld {
			if w == nil {
				delete(all, a)
			} else {
				all[a] = *w
			}
		}
	}
	return slices.Collect(maps.Values(all))
}

// WithheldAt returns what is withheld of an address, alone or in a delegated prefix.
func (v *View) WithheldAt(a netip.Addr) *ipam.Withheld {
	if len(v.withheld) == 0 {
		return v.is.withheldAt(a)
	}
	return withheldAround(a, func(at netip.Addr) (*ipam.Withheld, bool) {
		if w, staged := v.withheld[at]; staged {
			return w, w != nil
		}
		w, ok := v.is.withheld[at]
		return &w, ok
	})
}
