package watchdog

import (
	"errors"
	"slices"
	"sync"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/workload"
)

// errStillSeen keeps a lease from ending.
var errStillSeen = errors.New("it may still be there")

// A snapshot is the board's containers at one moment, kept until the board has
// news: many are asked about in one commit.
type snapshot struct {
	mu      sync.Mutex
	changed <-chan struct{}
	there   *containerIndex // read only
}

func (g *snapshot) of(b *census.Board) *containerIndex {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.there != nil {
		select {
		case <-g.changed:
		default:
			return g.there
		}
	}
	g.changed = b.Changed()
	g.there = newIndex(onBoard(b.By(census.Runtime)))
	return g.there
}

// visible is what shows of a lease now: a port that is being made with its address; on the board, who sees the
// address and which cannot answer, and the containers that belong to it, with or without an address.
func (w *Watchdog) visible(l *ipam.Lease, belong func(*containerIndex) []Container) []obstacle {
	if found := w.cfg.inTheMaking(l); len(found) > 0 {
		return found
	}
	found := onWire(workload.About(w.cfg.Board, l))
	if len(found) > 0 {
		return found
	}
	for _, c := range belong(w.snapshot.of(w.cfg.Board)) {
		o := isThere(c, nil)
		o.witness = census.Runtime
		found = append(found, o)
	}
	return found
}

// inTheMaking is the obstacle of a port that may be made yet with the address. Only time ends it: whose port a
// change of ports is about is not known, and a confirmation costs a walk of all tracked connections.
func (c *Config) inTheMaking(l *ipam.Lease) []obstacle {
	if c.Making == nil || !c.Making(l.ID) {
		return nil
	}
	return []obstacle{obstruct(KindUnconfirmed, "a port with its address is being made")}
}

// unseen returns the check in the transaction that ends a lease: errStillSeen while anything shows of
// it. A container that was made after the runtime's list was read is on the board by then, or it is made
// after the lease has ended.
func (w *Watchdog) unseen(l *ipam.Lease, belong func(*containerIndex) []Container) func() error {
	return func() error {
		if len(w.visible(l, belong)) > 0 {
			return errStillSeen
		}
		return nil
	}
}

// seenAgain words errStillSeen for a person.
func (w *Watchdog) seenAgain(l *ipam.Lease, belong func(*containerIndex) []Container) []obstacle {
	if found := w.visible(l, belong); len(found) > 0 {
		return found
	}
	return []obstacle{obstruct(KindUnconfirmed, "a witness saw it just now")}
}

// belonging returns a function that says which containers belong to a lease that was bound.
func belonging(l *ipam.Lease, x *workload.Leases) func(*containerIndex) []Container {
	return func(r *containerIndex) []Container { return r.of(l, x, false) }
}

// belonging returns a function that says which containers belong to the attempt's lease, without those
// that block no release and that the board shows without a task.
func (a *attempt) belonging() func(*containerIndex) []Container {
	return func(r *containerIndex) []Container {
		return slices.DeleteFunc(r.of(a.lease, a.leases, false), a.ignored(r, r))
	}
}

// ignored returns a function that says which of the containers in r block no release: those that
// are the lease's by name alone, have no task on the board, and either were noted by askByName or, once
// the grace is over, were found by no look-up: one that was found has been judged by it. A container that is made after the grace is not looked up.
func (a *attempt) ignored(r, board *containerIndex) func(Container) bool {
	return func(c Container) bool {
		m := board.member(c)
		return (a.facts.blockNothing[c] || a.graceOver && !a.facts.looks[c].Found) && len(r.byNameAlone(a.lease, []Container{c})) > 0 && (m == nil || !m.ran)
	}
}
