package netdb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/ipamd/ipamd/internal/elapsed"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/bookfile"
	"github.com/ipamd/ipamd/netdb/group"
)

// A writer makes commits, for all that wait in its group. The lock holder alone uses what
// writes: the writing connection of the [store], the rows of the [memory], the [upkeep].
type writer struct {
	group  *group.Group[*tx]
	opts   *Options
	clock  *elapsed.Clock
	store  *store
	memory *memory
	upkeep *upkeep
	staged *overlay // for the lock holder
}

// update makes fn part of a commit: see [group.Group.Update].
func (w *writer) update(ctx context.Context, fn func(*tx) error) error {
	if w.opts.ReadOnly {
		return fmt.Errorf("%w: opened for reading", ErrReadOnly)
	}
	return w.group.Update(ctx, fn)
}

// Begin takes the write lock of the file.
func (w *writer) Begin() (busy bool, err error) {
	// While it is known that the files were taken away no change is begun. Known it is to
	// the commit that finds out, and to [Book.Info], which a daemon asks each second; a
	// reading that fails behind those has another reason.
	if w.store.Failing.Now() != nil {
		if err := w.store.Look(bookfile.AllFiles); err != nil {
			return false, err
		}
	}
	if _, err = w.store.sql.begin.Exec(); err != nil {
		err = w.store.Classify("begin", err)
	}
	return errors.Is(err, ErrBusy), err
}

// Try runs one transaction and returns each request's answer, or the error
// that ended the transaction for all. behind is a panic behind a durable commit.
func (w *writer) Try(batch []*group.Request[*tx]) (answers []error, behind, err error) {
	began := time.Now()
	staged := w.staged
	staged.reset(w.memory.idx.rev)
	t := &tx{opts: w.opts, now: w.clock.Now(), idx: w.memory.idx, staged: staged, store: w.store, memory: w.memory}
	answers = make([]error, len(batch))
	for i, o := range batch {
		before := len(staged.steps)
		if answers[i] = o.Run(t); answers[i] == nil {
			answers[i] = t.refuse(before)
		}
		if answers[i] != nil {
			staged.rewind(before, w.memory.idx.rev)
		}
	}
	if len(staged.steps) == 0 {
		return answers, nil, w.rollback(nil)
	}
	if err := group.Safely(func() error { return w.store.write(staged.steps) }); err != nil {
		return nil, nil, w.rollback(err)
	}
	took := time.Since(began)
	w.store.Failing.Over()
	if h := staged.steps[0].holding; h != nil {
		w.store.holding.Store(h)
	}
	w.upkeep.pages += stepPages * (1 + len(staged.steps))
	behind = group.Safely(func() error { w.memory.publish(staged, took); return nil })
	if behind != nil {
		w.readAnew(behind)
	}
	if err := w.store.Settle(w.store.whose().Epoch, staged.rev); err != nil {
		return nil, behind, err
	}
	return answers, behind, nil
}

// refuse is why what was staged from a step on is not committed: the book is another
// runner's, and these steps do not make it this one's.
func (t *tx) refuse(from int) error {
	if len(t.staged.steps) == from || t.staged.steps[from].holding != nil {
		return nil
	}
	return t.store.foreign()
}

// rollback takes a transaction back and returns why. The index has nothing of
// it yet, but is loaded again all the same: a row that is not as it was read
// was changed behind our back, and behind an error of the file whatever SQLite
// says is there is the truth.
func (w *writer) rollback(why error) error {
	if _, err := w.store.sql.rollback.Exec(); err != nil && why == nil {
		why = w.store.Classify("roll back", err)
	}
	if why != nil {
		// When the file cannot even be read, the index stays: it is what was last known
		// to be durable.
		if err := group.Safely(func() error { return w.load(context.Background()) }); err != nil {
			w.store.CannotWrite(err)
		}
	}
	return why
}

// OfAll reports that the file, not a request, is the reason.
func (w *writer) OfAll(err error) bool {
	return errors.Is(err, ErrReadOnly) || errors.Is(err, ErrBusy) ||
		errors.Is(err, ErrDamaged) || errors.Is(err, ipam.ErrClosed)
}

// Committed is before the requests of a commit are answered.
func (w *writer) Committed(took time.Duration, batch int) {
	if w.opts.OnCommit != nil {
		w.opts.OnCommit(took, batch)
	}
}

// Keep is once they are.
func (w *writer) Keep() { w.upkeep.keep() }

// keepMark makes a mark again that was taken away; while the lock is held it is left
// for the next look.
func (w *writer) keepMark() {
	if w.opts.ReadOnly || w.store.Failing.Now() != nil || !w.group.TryLock() {
		return
	}
	defer w.group.Unlock()
	w.store.Mark.Keep(w.memory.idx.rev)
}

// load reads the whole book into a new index.
func (w *writer) load(ctx context.Context) error {
	idx, err := w.store.readIndex(ctx, w.store.Conn)
	if err != nil {
		return w.store.Classify("read", err)
	}
	w.memory.replace(idx)
	return nil
}

// readAnew reads the book into a new index behind a durable commit that could
// not be published: half of it may be in the old one. Where that is not possible
// the process ends, by a panic that is not recovered: an address could be given
// twice by an index that does not know the newest leases.
func (w *writer) readAnew(why error) {
	err := group.Safely(func() error {
		w.opts.meet("read anew")
		return w.load(context.Background())
	})
	if err != nil {
		go panic(fmt.Sprintf("the book cannot be read behind a commit: %v\n\n%v", err, why))
		select {}
	}
	w.memory.signal.send(^stateSet(0))
}

// A tx is what one request sees and does inside a commit: the committed index,
// and on top what was staged by the requests before it in the batch and by
// itself. It has a method for each step of a change, in the file of the step's noun: all of them
// read and stage the same rows.
type tx struct {
	opts   *Options
	store  *store
	memory *memory
	now    ipam.Stamp
	idx    *index // read only
	staged *overlay
}

// at returns the row of an address, or nil.
// [rowset.at] has which.
func (t *tx) at(a netip.Addr) *ipam.Lease {
	if l := t.staged.leases[a]; l != nil {
		return l
	}
	for _, l := range t.staged.prefixes {
		if l.Covers(a) && t.staged.leases[l.Addr] == l {
			return l
		}
	}
	l := t.idx.byAddr.at(a)
	if l != nil {
		if _, staged := t.staged.leases[l.Addr]; staged {
			return nil // as it is now, it was looked for above
		}
	}
	return l
}

// overlapping returns the rows that lease an address of a range, in order.
func (t *tx) overlapping(r ipam.Range) []*ipam.Lease {
	found := slices.DeleteFunc(t.idx.byAddr.overlapping(r), func(l *ipam.Lease) bool {
		_, staged := t.staged.leases[l.Addr]
		return staged
	})
	for _, l := range t.staged.leases {
		if l != nil && l.Range().Overlaps(r) {
			found = append(found, l)
		}
	}
	slices.SortFunc(found, func(x, y *ipam.Lease) int { return x.Addr.Compare(y.Addr) })
	return found
}

// lease returns the row with an id, or nil.
func (t *tx) lease(id string) *ipam.Lease { return look(id, t.staged.ids, t.idx.byID) }

// open returns the owner's open lease, or nil.
func (t *tx) open(o ipam.Owner) *ipam.Lease {
	if l, ok := t.staged.owners[o]; ok {
		return l
	}
	return t.idx.open(o)
}

// removed reports whether this batch took the row with an id away.
func (t *tx) removed(id string) bool {
	l, ok := t.staged.ids[id]
	return ok && l == nil
}

// poolFor returns the pool of an address that could be handed out, as the batch leaves
// it. A row outside its pool stays that pool's.
func (t *tx) poolFor(a netip.Addr) (*ipam.Pool, error) {
	if l := t.at(a); l != nil {
		if p := t.pool(l.PoolUID); p.Outside(l) != "" {
			return p, nil
		}
	}
	for _, p := range t.pools() {
		if !p.Prefix.Contains(a) {
			continue
		}
		if note := p.OutsideAddr(a); note != "" {
			return p, fmt.Errorf("%w %s: it is %s", ipam.ErrNotInPool, p.Name, note)
		}
		if pi := t.idx.pools[p.UID]; pi != nil {
			return p, pi.mayGive(a)
		}
		return p, nil
	}
	return nil, fmt.Errorf("%w: no pool contains it", ipam.ErrNotInPool)
}

// sizeOf returns how many addresses a pool could give at all.
func (t *tx) sizeOf(p *ipam.Pool) uint64 {
	if pi := t.idx.pools[p.UID]; pi != nil && pi.pool == p {
		return pi.size
	}
	return newPoolIndex(p).size
}

// revOf returns the revision of a row, 0 for none.
func revOf(l *ipam.Lease) int64 {
	if l == nil {
		return 0
	}
	return l.Rev
}

func isIn(l *ipam.Lease, pool string, s ipam.State) bool {
	return l != nil && l.PoolUID == pool && l.State == s
}

func (t *tx) countOf(pool string, s ipam.State) int {
	n := 0
	if pi := t.idx.pools[pool]; pi != nil { // it may be made in this batch
		n = pi.count[s]
	}
	for _, step := range t.staged.steps {
		if isIn(step.old, pool, s) {
			n--
		}
		if isIn(step.now, pool, s) {
			n++
		}
	}
	return n
}

// move stages the change of one row, if the table of moves allows it. now is
// completed here: revision, times of its state, reason. Nothing else in this
// package writes a lease.
func (t *tx) move(who ipam.Who, old *ipam.Lease, now ipam.Lease, evidence json.RawMessage) (*ipam.Lease, error) {
	if evidence != nil {
		now.Evidence = evidence
	}
	return t.record(who, old, now, evidence)
}

// setState is move of a lease to another state.
func (t *tx) setState(who ipam.Who, l *ipam.Lease, to ipam.State, evidence json.RawMessage) (*ipam.Lease, error) {
	now := *l
	now.State = to
	return t.move(who, l, now, evidence)
}

// record is move with evidence that the change keeps, and the lease does not.
func (t *tx) record(who ipam.Who, old *ipam.Lease, now ipam.Lease, evidence json.RawMessage) (*ipam.Lease, error) {
	return t.recordWith(who, old, now, evidence, nil)
}

// recordWith is record of a row that goes and leaves its address withheld, or that takes
// a withheld one over.
func (t *tx) recordWith(who ipam.Who, old *ipam.Lease, now ipam.Lease, evidence json.RawMessage, w *ipam.Withheld) (*ipam.Lease, error) {
	from := ipam.Free
	if old != nil {
		from = old.State
	}
	if err := ipam.Legal(who.Actor, from, now.State); err != nil {
		return nil, err
	}
	if old != nil && old.Hold != "" && who.Actor != ipam.ByOperator {
		return nil, fmt.Errorf("move %s to %s: %w: an operator holds it back: %s", old.Addr, now.State, ipam.ErrState, old.Hold)
	}
	if other := t.lease(now.ID); other != nil && other != old {
		return nil, fmt.Errorf("move %s to %s: %w: its id %s is that of %s", now.Addr, now.State, ipam.ErrTaken, now.ID, other.Addr)
	}
	now.Rev, now.Reason = t.staged.rev+1, who.Reason
	if old != nil && old.Former() && now.State == ipam.Quarantined {
		now.Reason = old.Reason // a hold takes no claim away
	}
	if now.State != from {
		now.Since, now.Cooled = t.now, 0
	}
	if now.Created.IsZero() {
		now.Created = t.now
	}
	if now.State == ipam.Cooling || now.State == ipam.Quarantined {
		now.Cut = "" // its cooldown begins anew
	}
	if now.State == ipam.Free || now.State == ipam.Cooling || now.State == ipam.Quarantined {
		now.Conflict = nil // it ends with the lease
	}
	if now.State != ipam.Quarantined {
		now.Hold = ""
	}
	if evidence == nil && from == ipam.Paused && now.State == ipam.Bound {
		evidence = took(t.sleep(old.ID), &now, t.now)
	}
	s := step{old: old, now: &now, withheld: w, change: &ipam.Change{
		Rev: now.Rev, At: t.now, Subject: ipam.OfLease, Addr: now.Addr, PrefixLen: now.PrefixLen, LeaseID: now.ID, PoolUID: now.PoolUID, Pool: now.Pool,
		Sandbox: now.Sandbox, UID: now.UID, Interface: now.Interface, Attempt: now.Attempt,
		From: from, To: now.State, Who: who, Evidence: evidence,
	}}
	if now.State == ipam.Free {
		s.now = nil
	}
	t.staged.stage(s)
	t.unname(old)
	t.followSleep(old, &now)
	t.followSlot(old, &now)
	return &now, nil
}

// change is the record of a step that is staged next.
func (t *tx) change(of ipam.Subject, who ipam.Who) *ipam.Change {
	return &ipam.Change{Rev: t.staged.rev + 1, At: t.now, Subject: of, Who: who}
}

// newID returns a lease id: time-ordered, because random keys in a unique
// index cost more than the driver.
func newID() string { return uuid.Must(uuid.NewV7()).String() }

// openOf returns every open lease of a sandbox uid, in address order.
func (t *tx) openOf(uid string) []*ipam.Lease {
	return slices.DeleteFunc(t.heldBy(uid), func(l *ipam.Lease) bool { return !l.State.Open() })
}

// heldBy returns every row of a sandbox uid that does not cool, in address order.
func (t *tx) heldBy(uid string) []*ipam.Lease {
	found := slices.Clone(t.idx.byUID[uid])
	for a, l := range t.staged.leases {
		found = slices.DeleteFunc(found, func(f *ipam.Lease) bool { return f.Addr == a })
		if l != nil && l.UID == uid && holdsName(l) {
			found = append(found, l)
		}
	}
	slices.SortFunc(found, func(x, y *ipam.Lease) int { return x.Addr.Compare(y.Addr) })
	return found
}
