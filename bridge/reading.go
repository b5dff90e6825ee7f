package bridge

import (
	"context"
	"errors"
	"net/netip"
)

// Refresh reads everything anew, repairs the bridge first if it manages it, and
// posts what it finds. It returns an error when the kernel could not be asked
// about something; the witness concerned is then silent. A bridge that is
// missing or wrong is no error: [Bridge.Ready] tells.
//
// With a thousand ports it takes tens of milliseconds, but an allocation that
// settles meanwhile waits for a small part of that only.
func (b *Bridge) Refresh(ctx context.Context) error {
	b.refreshing.Lock()
	defer b.refreshing.Unlock()
	addrs, spaces, err := b.overview(ctx)
	if err != nil || addrs == nil {
		return err
	}
	b.nameSpaces(ctx)
	for _, id := range spaces {
		if err := b.piece(ctx, func() { b.readSpace(id) }); err != nil {
			return err
		}
	}
	if err := b.readEach(ctx, addrs); err != nil {
		return err
	}
	if err := b.searchChildren(ctx); err != nil {
		return err
	}
	for _, id := range b.crowdedSpaces(true) {
		if err := b.readCrowd(ctx, id); err != nil {
			return err
		}
	}
	return b.locked(ctx, func() error { return b.conclude(ctx) })
}

// overview reads all but what is behind the ports, and returns the neighbours
// and the namespaces that are to be read; no neighbours but nil is no bridge.
//
// The long lists are read without the lock while memory is worth something:
// with a thousand ports an allocation waited 22 ms for them.
func (b *Bridge) overview(ctx context.Context) (addrs []netip.Addr, spaces []int, err error) {
	index, known := 0, false
	err = b.locked(ctx, func() error {
		b.lock.drain()
		b.drain()
		known = !b.lost && b.lookLink() == nil && !b.lost && b.isThere()
		if known {
			b.judge()
			index, b.neighboursLost = b.link.Index, false
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	var l *listing
	if known {
		if l, err = b.list(ctx, index); err != nil {
			return nil, nil, b.locked(ctx, func() error { return b.fail(err) })
		}
	}
	err = b.locked(ctx, func() (err error) {
		if known && !b.lost && b.isThere() && b.link.Index == index {
			addrs = b.compare(l)
		} else if addrs, err = b.survey(); err != nil || addrs == nil {
			return err
		}
		for id := range b.spaces {
			spaces = append(spaces, id)
		}
		return nil
	})
	return addrs, spaces, err
}

// piece does one piece of a whole reading, unless ctx ended or the bridge
// went meanwhile. A reading that was cut short counts for nothing.
func (b *Bridge) piece(ctx context.Context, read func()) error {
	return b.locked(ctx, func() error {
		if err := ctx.Err(); err != nil {
			b.lost = b.lost || b.netns.whole != nil
			return err
		}
		if !b.lost && b.isThere() {
			read()
		}
		return nil
	})
}

// locked calls f with the lock held, unless there is nothing to read with, or ctx
// ends first.
func (b *Bridge) locked(ctx context.Context, f func() error) error {
	if err := b.mu.LockContext(ctx); err != nil {
		return err
	}
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return ErrClosed
	case b.trouble != nil:
		return b.trouble
	}
	return f()
}

// survey reads all but what is behind the ports: the bridge, the host, the
// list of ports, the list of neighbours. It returns the neighbours to be read;
// nil when there is no bridge.
func (b *Bridge) survey() ([]netip.Addr, error) {
	if err := b.look(); err != nil {
		return nil, b.fail(err)
	}
	if !b.isThere() {
		b.vanish()
		return nil, nil
	}
	if b.lost {
		b.silence(errUnread)
		for _, s := range b.spaces {
			s.macs = nil
			s.lose()
		}
		for _, n := range b.nests {
			n.lose()
		}
	}
	if err := b.listPorts(); err != nil {
		return nil, b.fail(err)
	}
	addrs, err := b.listNeighbours()
	if err != nil {
		return nil, b.fail(err)
	}
	b.lost = false
	return addrs, nil
}

// vanish is for when there is no bridge: what is remembered is about none,
// and what the board has stands.
func (b *Bridge) vanish() {
	l := b.link
	b.forget()
	b.setLink(l)
	b.lost = false // there is no more to know, until a link comes
	b.silence(b.absent())
	b.tellMoves()
}

// conclude ends a whole reading: the witnesses may speak again.
func (b *Bridge) conclude(ctx context.Context) error {
	if b.lost || !b.isThere() {
		return b.settle(ctx, nil) // it became another bridge, or none, while we read
	}
	b.complete()
	return errors.Join(b.settle(ctx, nil), b.tell(true))
}

// complete lets the witnesses speak, for everything was read.
func (b *Bridge) complete() {
	for _, r := range b.reports() {
		r.whole = nil
	}
	b.forgetOthers()
}

// readAll is Refresh in one piece, for when memory is worth nothing. Many
// neighbours are left to Run, unless nothing was known of them before.
func (b *Bridge) readAll(ctx context.Context) error {
	known := b.neighbour.whole == nil
	addrs, err := b.survey()
	if err != nil || addrs == nil {
		return err
	}
	if err := b.readInsides(ctx); err != nil {
		b.lost = true
		return err
	}
	b.childrenAgain = true // the end of a nest may have been missed
	if known && len(addrs) > neighboursPerSettle {
		b.loseNeighbours()
		addrs = nil
	}
	for _, addr := range addrs {
		b.readNeighbour(addr)
	}
	b.complete()
	return b.tell(true)
}

// Settle takes in the kernel's news of links and addresses so far and reads
// again the parts that it is about, so that [Bridge.Ready] and the board are right
// as of the call. What the neighbour table holds is read for the addresses that it
// is called for; of the others as much as takes no time that matters, which is
// all of it unless a guest floods, and the rest by [Bridge.Run]. It costs one
// system call when there is no news. An error means that something could not be
// read, in which case the witness concerned is silent, or that ctx ended.
func (b *Bridge) Settle(ctx context.Context, about ...netip.Addr) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return b.locked(ctx, func() error {
		b.drain()
		err := b.settle(ctx, about)
		if b.neighboursMore.Load() || !b.neighboursLost && len(b.neighboursAgain) > 0 {
			b.alarm.ring() // Run does the rest
		}
		return err
	})
}

// settle reads again what has to be. Reading one part can show that another
// moved, hence the rounds; what is left then could not be read, and is tried
// again the next time.
func (b *Bridge) settle(ctx context.Context, about []netip.Addr) error {
	if b.trouble != nil {
		return b.trouble
	}
	const rounds = 3
	for range rounds {
		if b.settled() || ctx.Err() != nil {
			break
		}
		if b.lookAgain && !b.lost {
			if err := b.look(); err != nil {
				return b.fail(err)
			}
			if !b.isThere() {
				b.vanish()
			}
		}
		if b.lost {
			return b.readAll(ctx)
		}
		if b.hostAgain && b.readHost() == nil {
			b.lookAgain = b.cfg.Manage && len(b.missingGateways()) != 0
			b.judge()
		}
		if !b.isThere() {
			break
		}
		for index := range b.linksAgain {
			if ctx.Err() == nil {
				b.readPort(index)
			}
		}
		for id := range b.spacesAgain {
			if ctx.Err() == nil {
				b.readSpace(id)
			}
		}
		for id := range b.nestsAgain {
			if ctx.Err() == nil {
				b.readNest(id)
			}
		}
	}
	if b.isThere() && !b.lost {
		b.settleNeighbours(about)
	}
	return errors.Join(b.tell(false), ctx.Err())
}

func (b *Bridge) settled() bool {
	return !b.lost && !b.lookAgain && !b.hostAgain &&
		len(b.linksAgain) == 0 && len(b.spacesAgain) == 0 && len(b.nestsAgain) == 0
}

// tell brings the board up to date with who can speak.
func (b *Bridge) tell(anew bool) error {
	var all []error
	for _, r := range b.reports() {
		all = append(all, r.tell(anew))
	}
	b.tellMoves()
	if !b.isThere() {
		return nil // Ready tells
	}
	return errors.Join(all...)
}
