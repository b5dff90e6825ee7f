package watchdog

import (
	"errors"
	"sync"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/netdb"
)

// errNotDark keeps a lease from ending.
var errNotDark = errors.New("not dark")

// A glance is the board's containers at one moment, kept until the board tells
// something new: many are asked about in one commit.
type glance struct {
	mu      sync.Mutex
	changed <-chan struct{}
	roll    *roll // read only
}

func (g *glance) of(b *census.Board) *roll {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.roll != nil {
		select {
		case <-g.changed:
		default:
			return g.roll
		}
	}
	g.changed = b.Changed()
	g.roll = newRoll(onBoard(b.By(census.Runtime)))
	return g.roll
}

// visible tells what the board shows of a lease now: who sees its address and
// who cannot tell, and the containers that belong to it, with or without an
// address.
func (w *Watchdog) visible(l *netdb.Lease, belong func(*roll) []Container) []obstacle {
	found := onWire(w.cfg.Board.About(l.Addr))
	if len(found) > 0 {
		return found
	}
	for _, c := range belong(w.glance.of(w.cfg.Board)) {
		o := isThere(c, nil)
		o.witness = census.Runtime
		found = append(found, o)
	}
	return found
}

// unseen is asked in the transaction that lets an address go. A container that
// was made after the runtime's list was read is on the board by then, or it is
// made after the address has gone.
func (w *Watchdog) unseen(l *netdb.Lease, belong func(*roll) []Container) func() error {
	return func() error {
		if len(w.visible(l, belong)) > 0 {
			return errNotDark
		}
		return nil
	}
}

// seenAgain words errNotDark for a person.
func (w *Watchdog) seenAgain(l *netdb.Lease, belong func(*roll) []Container) []obstacle {
	if found := w.visible(l, belong); len(found) > 0 {
		return found
	}
	return []obstacle{obstruct(KindUnconfirmed, "a witness saw it just now")}
}

// belonging is which containers are a lease's that was bound.
func belonging(l *netdb.Lease, h heirs) func(*roll) []Container {
	return func(r *roll) []Container { return r.of(l, h, false) }
}
