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
// before it in the batch and it itself have staged. The maps have what is staged, each named for its
// key; a nil in one is a row that is committed, and that a step has removed.
type View struct {
	committed *tables
	steps     []Step
	rev       int64  // of the last step
	runtime   string // staged; "": as committed

	rowByAddr   map[netip.Addr]*ipam.Lease
	prefixRows  []*ipam.Lease // of delegated prefixes, also those that a later step has replaced
	rowByID     map[string]*ipam.Lease
	openByOwner map[ipam.Owner]*ipam.Lease

	tombstoneByUID      map[string]Tombstone
	poolByUID           map[string]*ipam.Pool
	poolNames           map[PoolKey]ipam.PoolName
	withheldByAddr      map[netip.Addr]*ipam.Withheld
	hostNameByName      map[string]*ipam.HostName
	hostNameByInterface map[SandboxInterface]*ipam.HostName
	sleepByLeaseID      map[string]*ipam.Sleep
	slotByLeaseID       map[string]*ipam.Slot
}

func newView() *View {
	return &View{
		rowByAddr:      make(map[netip.Addr]*ipam.Lease),
		rowByID:        make(map[string]*ipam.Lease),
		openByOwner:    make(map[ipam.Owner]*ipam.Lease),
		tombstoneByUID: make(map[string]Tombstone),

		poolByUID:           make(map[string]*ipam.Pool),
		poolNames:           make(map[PoolKey]ipam.PoolName),
		withheldByAddr:      make(map[netip.Addr]*ipam.Withheld),
		hostNameByName:      make(map[string]*ipam.HostName),
		hostNameByInterface: make(map[SandboxInterface]*ipam.HostName),
		sleepByLeaseID:      make(map[string]*ipam.Sleep),
		slotByLeaseID:       make(map[string]*ipam.Slot),
	}
}

// look returns what is staged under a key, or else what is committed.
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
	if l := v.rowByAddr[a]; l != nil {
		return l
	}
	for _, l := range v.prefixRows {
		if l.Covers(a) && v.rowByAddr[l.Addr] == l {
			return l
		}
	}
	l := v.committed.rowByAddr.at(a)
	if l != nil {
		if _, staged := v.rowByAddr[l.Addr]; staged {
			return nil // a step has changed that row; how it is now was looked for above
		}
	}
	return l
}

// Overlapping returns the rows that lease an address of a range, in order.
func (v *View) Overlapping(r ipam.Range) []*ipam.Lease {
	found := slices.DeleteFunc(v.committed.rowByAddr.overlapping(r), func(l *ipam.Lease) bool {
		_, staged := v.rowByAddr[l.Addr]
		return staged
	})
	for _, l := range v.rowByAddr {
		if l != nil && l.Range().Overlaps(r) {
			found = append(found, l)
		}
	}
	slices.SortFunc(found, byAddr)
	return found
}

func byAddr(x, y *ipam.Lease) int { return x.Addr.Compare(y.Addr) }

// Rows yields every row, in no order.
func (v *View) Rows() iter.Seq[*ipam.Lease] {
	return func(yield func(*ipam.Lease) bool) {
		for l := range v.committed.rowByAddr.all() {
			if _, staged := v.rowByAddr[l.Addr]; !staged && !yield(l) {
				return
			}
		}
		for _, l := range v.rowByAddr {
			if l != nil && !yield(l) {
				return
			}
		}
	}
}

// Lease returns the row with an id, or nil.
func (v *View) Lease(id string) *ipam.Lease { return look(id, v.rowByID, v.committed.rowByID) }

// Removed reports whether a step of this batch has removed the row with an id.
func (v *View) Removed(id string) bool {
	l, ok := v.rowByID[id]
	return ok && l == nil
}

// Open returns the owner's open lease, or nil.
func (v *View) Open(o ipam.Owner) *ipam.Lease {
	if l, ok := v.openByOwner[o]; ok {
		return l
	}
	return v.committed.open(o)
}

// OpenOf returns every open lease of a sandbox uid, in address order.
func (v *View) OpenOf(uid string) []*ipam.Lease {
	return slices.DeleteFunc(v.notCooling(uid), func(l *ipam.Lease) bool { return !l.State.Open() })
}

// notCooling returns every row of a sandbox uid that does not cool, in address order.
func (v *View) notCooling(uid string) []*ipam.Lease {
	found := slices.Clone(v.committed.rowsBySandboxUID[uid])
	for a, l := range v.rowByAddr {
		found = slices.DeleteFunc(found, func(f *ipam.Lease) bool { return f.Addr == a })
		if l != nil && l.UID == uid && sandboxRow(l) {
			found = append(found, l)
		}
	}
	slices.SortFunc(found, byAddr)
	return found
}

// RowsFor returns what a candidate replaces: old is the row of the same address or prefix, which becomes
// the candidate's; nil for none. ends are the rows inside a candidate's prefix that end for it. Where a row
// is not as it was when the candidate was picked, the error is [ipam.ErrTaken].
func (v *View) RowsFor(c Candidate) (old *ipam.Lease, ends []*ipam.Lease, err error) {
	if c.PrefixLen == 0 {
		old = v.At(c.Addr)
		if RevOf(old) != c.rowRev || old != nil && old.PrefixLen != 0 { // as it was picked it was free, or cooled as a single address
			return nil, nil, fmt.Errorf("address %s: %w", c.Addr, ipam.ErrTaken)
		}
		return old, nil, nil
	}
	rows := v.Overlapping(c.Range())
	if !slices.EqualFunc(rows, slices.SortedFunc(slices.Values(c.coolingRows), byAddr), func(is, was *ipam.Lease) bool { return is.ID == was.ID && is.Rev == was.Rev }) {
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

// Tombstone returns the tombstone of a sandbox uid, the zero one for none.
func (v *View) Tombstone(uid string) Tombstone {
	return look(uid, v.tombstoneByUID, v.committed.tombstoneByUID)
}

// Tombstones returns how many tombstones there are, or a few more: one that a step of this batch replaces
// counts twice. oldest is the oldest of those that are committed.
func (v *View) Tombstones() (n int, oldest Tombstone) {
	_, uid, _ := v.committed.tombstoneUIDByRev.Min()
	return len(v.committed.tombstoneByUID) + len(v.tombstoneByUID), v.committed.tombstoneByUID[uid]
}

// Sleep returns the sleep of a lease, or nil.
func (v *View) Sleep(lease string) *ipam.Sleep {
	return look(lease, v.sleepByLeaseID, v.committed.sleepByLeaseID)
}

// Slot returns the slot of a lease, or nil.
func (v *View) Slot(lease string) *ipam.Slot {
	return look(lease, v.slotByLeaseID, v.committed.slotByLeaseID)
}

// Slots yields every slot.
func (v *View) Slots() iter.Seq[*ipam.Slot] {
	return func(yield func(*ipam.Slot) bool) {
		for id, s := range v.committed.slotByLeaseID {
			if _, staged := v.slotByLeaseID[id]; !staged && !yield(s) {
				return
			}
		}
		for _, s := range v.slotByLeaseID {
			if s != nil && !yield(s) {
				return
			}
		}
	}
}

// HostNameOf returns the host interface name that is leased to an interface, or nil.
func (v *View) HostNameOf(of SandboxInterface) *ipam.HostName {
	return look(of, v.hostNameByInterface, v.committed.hostNameByInterface)
}

// HostNamed returns the lease of a host interface name, or nil.
func (v *View) HostNamed(name string) *ipam.HostName {
	return look(name, v.hostNameByName, v.committed.hostNameByName)
}

// RowsOfInterface returns the rows for which an interface keeps its host interface name.
func (v *View) RowsOfInterface(of SandboxInterface) []*ipam.Lease {
	return slices.DeleteFunc(v.notCooling(of.UID), func(l *ipam.Lease) bool { return l.Interface != of.Interface })
}

// HostNameEndedBy returns the host interface name that ends with a row which was just removed, because
// its interface has no other row that keeps it; or nil.
func (v *View) HostNameEndedBy(gone *ipam.Lease) *ipam.HostName {
	if gone == nil || !sandboxRow(gone) {
		return nil
	}
	of := SandboxInterface{gone.UID, gone.Interface}
	if has := v.HostNameOf(of); has != nil && len(v.RowsOfInterface(of)) == 0 {
		return has
	}
	return nil
}

// Runtime is the container runtime that the book knows, "" before the first was noted.
func (v *View) Runtime() string {
	if v.runtime != "" {
		return v.runtime
	}
	return v.committed.runtime
}

// Unreadable are the rows that could not be read.
func (v *View) Unreadable() []Unreadable { return v.committed.unreadable }

// Withheld returns the withheld addresses, in no order.
func (v *View) Withheld() []ipam.Withheld {
	all := v.committed.withheldByAddr
	if len(v.withheldByAddr) > 0 {
		all = maps.Clone(all)
		for a, w := range v.withheldByAddr {
			if w == nil {
				delete(all, a)
			} else {
				all[a] = *w
			}
		}
	}
	return slices.Collect(maps.Values(all))
}

// WithheldAt returns the entry that withholds an address, alone or with the delegated prefix that it
// is in; nil if none does.
func (v *View) WithheldAt(a netip.Addr) *ipam.Withheld {
	if len(v.withheldByAddr) == 0 {
		return v.committed.withheldAt(a)
	}
	return withheldAround(a, func(at netip.Addr) (*ipam.Withheld, bool) {
		if w, staged := v.withheldByAddr[at]; staged {
			return w, w != nil
		}
		w, ok := v.committed.withheldByAddr[at]
		return &w, ok
	})
}
