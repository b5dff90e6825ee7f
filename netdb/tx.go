package netdb

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/uuid"
)

// A tx is what one request sees and does inside a commit: the committed
// index, what its batch has staged so far, and its own staged changes on top.
// A request that fails drops its own and leaves its neighbours alone.
type tx struct {
	now   Stamp
	idx   *index // read only
	batch *overlay
	own   *overlay
}

// An overlay is a set of staged rows. A nil lease means that the row is gone.
type overlay struct {
	leases map[netip.Addr]*Lease
	ids    map[string]*Lease
	owners map[Owner]*Lease
	tombs  map[string]tombstone
	count  map[string]map[State]int // by pool uid: difference to the index
	steps  []step
	rev    int64 // of the last staged change

	runtime string // noted; "" is none
}

// A step is one staged change: the row before and after it, and its record.
type step struct {
	old, now *Lease
	change   *Change
	pool     *Pool  // a pool made or changed
	tomb     string // a tombstone set for this uid
	stone    tombstone
	runtime  string // the runtime that was noted
}

func newOverlay(rev int64) *overlay {
	return &overlay{
		leases: make(map[netip.Addr]*Lease),
		ids:    make(map[string]*Lease),
		owners: make(map[Owner]*Lease),
		tombs:  make(map[string]tombstone),
		count:  make(map[string]map[State]int),
		rev:    rev,
	}
}

// merge moves everything staged in o onto the batch's overlay.
func (batch *overlay) merge(o *overlay) {
	for _, s := range o.steps {
		batch.stage(s)
	}
	batch.rev = o.rev
}

func (o *overlay) stage(s step) {
	o.steps = append(o.steps, s)
	if s.tomb != "" {
		o.tombs[s.tomb] = s.stone
	}
	if s.runtime != "" {
		o.runtime = s.runtime
	}
	if old := s.old; old != nil {
		o.leases[old.Addr] = nil
		o.ids[old.ID] = nil
		if old.State.Open() {
			o.owners[old.Owner()] = nil
		}
		o.add(old.PoolUID, old.State, -1)
	}
	if now := s.now; now != nil {
		o.leases[now.Addr] = now
		o.ids[now.ID] = now
		if now.State.Open() {
			o.owners[now.Owner()] = now
		}
		o.add(now.PoolUID, now.State, 1)
	}
}

func (o *overlay) add(pool string, s State, n int) {
	if o.count[pool] == nil {
		o.count[pool] = make(map[State]int)
	}
	o.count[pool][s] += n
}

// at returns the row of an address, or nil.
func (t *tx) at(a netip.Addr) *Lease {
	return look(a, t.own.leases, t.batch.leases, t.idx.byAddr)
}

// lease returns the row with an id, or nil.
func (t *tx) lease(id string) *Lease { return look(id, t.own.ids, t.batch.ids, t.idx.byID) }

// open returns the owner's open lease, or nil.
func (t *tx) open(o Owner) *Lease {
	for _, layer := range []*overlay{t.own, t.batch} {
		if l, ok := layer.owners[o]; ok {
			return l
		}
	}
	return t.idx.open(o)
}

func (t *tx) tomb(uid string) tombstone {
	return look(uid, t.own.tombs, t.batch.tombs, t.idx.tombs)
}

// removed reports whether this batch took the row with an id away.
func (t *tx) removed(id string) bool {
	for _, layer := range []*overlay{t.own, t.batch} {
		if l, ok := layer.ids[id]; ok {
			return l == nil
		}
	}
	return false
}

// poolFor returns the pool of an address that could be handed out.
func (t *tx) poolFor(a netip.Addr) (*poolIndex, error) {
	pi := t.idx.poolOf(a)
	if pi == nil {
		return nil, fmt.Errorf("%w: no pool contains it", ErrNotInPool)
	}
	if usable, note := pi.pool.usable(a); !usable {
		return nil, fmt.Errorf("%w %s: it is %s", ErrNotInPool, pi.pool.Name, note)
	}
	if _, walled := pi.walled[a]; walled {
		return nil, fmt.Errorf("%w by a row that cannot be read; see doctor", ErrTaken)
	}
	return pi, nil
}

// revOf returns the revision of a row, 0 for none.
func revOf(l *Lease) int64 {
	if l == nil {
		return 0
	}
	return l.Rev
}

// look finds a key in the first layer that knows it.
func look[K comparable, V any](k K, layers ...map[K]V) (v V) {
	for _, l := range layers {
		if v, ok := l[k]; ok {
			return v
		}
	}
	return v
}

func (t *tx) countOf(pool string, s State) int {
	return t.idx.pools[pool].count[s] + t.batch.count[pool][s] + t.own.count[pool][s]
}

// move stages the change of one row, if the table of moves allows it. now is
// completed here: revision, times of its state, reason. Nothing else in this
// package writes a lease.
func (t *tx) move(who Who, old *Lease, now Lease, evidence json.RawMessage) (*Lease, error) {
	from := Free
	if old != nil {
		from = old.State
	}
	if err := Legal(who.Actor, from, now.State); err != nil {
		return nil, err
	}
	t.own.rev++
	now.Rev, now.Reason = t.own.rev, who.Reason
	if now.State != from {
		now.Since = t.now
	}
	if now.Created.IsZero() {
		now.Created = t.now
	}
	if now.State == Cooling || now.State == Quarantined {
		now.Cut = "" // its rest begins anew
	}
	if evidence != nil {
		now.Evidence = evidence
	}
	s := step{old: old, now: &now, change: &Change{
		Rev: now.Rev, At: t.now, Addr: now.Addr, LeaseID: now.ID, PoolUID: now.PoolUID, Pool: now.Pool,
		Sandbox: now.Sandbox, UID: now.UID, Interface: now.Interface,
		From: from, To: now.State, Who: who, Evidence: evidence,
	}}
	if now.State == Free {
		s.now = nil
	}
	t.own.stage(s)
	return &now, nil
}

// newID returns a lease id: time-ordered, because random keys in a unique
// index cost more than the driver.
func newID() string { return uuid.Must(uuid.NewV7()).String() }

// openOf returns every open lease of a sandbox uid, in address order.
func (t *tx) openOf(uid string) []*Lease {
	found := slices.Clone(t.idx.byUID[uid])
	for _, layer := range []*overlay{t.batch, t.own} {
		for a, l := range layer.leases {
			found = slices.DeleteFunc(found, func(f *Lease) bool { return f.Addr == a })
			if l != nil && l.UID == uid && l.State.Open() {
				found = append(found, l)
			}
		}
	}
	slices.SortFunc(found, func(x, y *Lease) int { return x.Addr.Compare(y.Addr) })
	return found
}
