package bridge

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/ipamd/ipamd/bridge/probe"
	"github.com/ipamd/ipamd/bridge/rtnl"
)

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
		if b.neighbour.isBehind() {
			b.wakeup.wake() // Run does the rest
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
		if b.device.again && !b.lost {
			if err := b.look(); err != nil {
				return b.fail(err)
			}
			if !b.device.isThere() {
				b.vanish()
			}
		}
		if b.lost {
			return b.readAll(ctx)
		}
		if b.host.again && b.readHost() == nil {
			b.device.again = b.cfg.Manage && len(b.device.missing()) != 0
			b.device.judge()
		}
		if !b.device.isThere() {
			break
		}
		b.netns.settle(ctx, b.wire())
	}
	if b.isKnown() {
		b.neighbour.settle(b.wire(), about)
	}
	return errors.Join(b.post(false), ctx.Err())
}

func (b *Bridge) settled() bool {
	return !b.lost && !b.device.again && !b.host.again && len(b.netns.linksAgain) == 0 && len(b.netns.again) == 0 && !b.netns.stacked.isDue()
}

// look reads the bridge's own link and the host's addresses again, repairs the
// bridge if it is managed, and says whether it is ready. An error means
// that the kernel could not be asked; a bridge that is not as it should be is
// no error but not ready.
func (b *Bridge) look() error {
	if err := b.lookLink(); err != nil {
		return err
	}
	err := b.readHost()
	if err == nil && b.device.setGateways(b.kernel) {
		err = b.readHost()
	}
	if err != nil {
		b.device.unready("the addresses of "+b.cfg.Name+" could not be listed", err)
		return err
	}
	b.device.judge()
	return nil
}

// lookLink is look without the host's addresses, of which there may be one for
// each port.
func (b *Bridge) lookLink() error {
	another, err := b.device.look(b.kernel)
	if err != nil {
		return err
	}
	if another {
		b.lost = true // nothing that is known is about this one
		b.netns.bridges++
		b.neighbour.whole = errUnread
		clear(b.answers.unlocated)
		if b.device.isThere() {
			b.netns.fail(nestsScope, errUnread) // no search and no news was about it
		}
	}
	b.netns.setOwn(&b.device)
	l := b.device.link
	if b.device.isThere() {
		b.answers.removeFrom(b.wire(), func(o origin) bool { return o.bridge != l.Index })
	}
	if err := b.probe.Aim(l); err != nil {
		b.device.again = true
		b.device.unready("no probe can be sent on "+b.cfg.Name, err)
		return err
	}
	return nil
}

func (b *Bridge) readHost() error {
	err := b.host.read(b.kernel, b.device.link)
	if err == nil {
		b.device.addrs = b.host.all
		b.netns.setOwn(&b.device)
	}
	return err
}

// vanish is for when there is no bridge: what is remembered is about none,
// and what the board has stands.
func (b *Bridge) vanish() {
	l := b.device.link
	b.forget()
	b.device.set(l)
	b.netns.setOwn(&b.device)
	b.lost = false // there is no more to know, until a link comes
	b.silence(absent(b.cfg.Name, l))
	b.netns.show()
}

// readAll is Refresh in one piece, for when memory is worth nothing. Many
// neighbours are left to Run, unless nothing was known of them before.
func (b *Bridge) readAll(ctx context.Context) error {
	known := b.neighbour.whole == nil
	addrs, err := b.survey()
	if err != nil || !b.device.isThere() {
		return err
	}
	b.netns.readStacked(b.wire())
	b.netns.searchAgain() // the end of a nest may have been missed
	if err := b.netns.readAll(ctx, b.wire()); err != nil {
		b.lost = true
		return err
	}
	if known && len(addrs) > neighboursPerSettle {
		b.neighbour.lose()
		addrs = nil
	}
	for _, addr := range addrs {
		b.neighbour.read(b.wire(), addr)
	}
	b.complete()
	return b.post(true)
}

// survey reads all but what is behind the ports: the bridge, the host, the
// list of ports, the list of neighbours. It returns the neighbours to be read.
func (b *Bridge) survey() ([]netip.Addr, error) {
	if err := b.look(); err != nil {
		return nil, b.fail(err)
	}
	if !b.device.isThere() {
		b.vanish()
		return nil, nil
	}
	if b.lost {
		b.silence(errUnread)
		b.netns.lose()
	}
	b.neighbour.lost = false
	l, err := listBridge(b.kernel, b.device.link)
	if err == nil && b.netns.whole != nil {
		err = l.short
	}
	if err != nil {
		return nil, b.fail(err)
	}
	b.netns.replacePorts(b.wire(), l.ports)
	b.forgetOthers()
	b.lost = false
	return b.neighbour.compare(l.neighbours), nil
}

// A listing is what the kernel lists of a bridge.
type listing struct {
	ports      map[int]*rtnl.Link
	neighbours map[netip.Addr]bool
	hosts      []rtnl.Address // where they were listed, too
	// short is why ports may be missing: they come and go faster than they can be listed.
	// Where what is known is complete that is no harm, for every one of these changes is
	// also news, and what the list lacks is looked up one by one.
	short error
}

func listBridge(k *rtnl.Socket, bridge *rtnl.Link) (l *listing, err error) {
	l = &listing{ports: make(map[int]*rtnl.Link)}
	err = rtnl.Steady(func() error {
		return k.PortsOf(bridge.Index, func(p *rtnl.Link) { l.ports[p.Index] = p })
	})
	if err != nil {
		err = fmt.Errorf("list the ports of %s: %w", bridge.Name, err)
		if !errors.Is(err, rtnl.ErrInterrupted) {
			return nil, err
		}
		l.short = err
	}
	l.neighbours, err = listNeighbours(k, bridge)
	return l, err
}

// forgetOthers drops what was seen at ports that are none any more.
func (b *Bridge) forgetOthers() {
	b.netns.forgetOthers()
	b.answers.removeFrom(b.wire(), func(o origin) bool { return o.port != 0 && b.netns.ports[o.port] == nil })
}

// complete lets the witnesses speak, for everything was read.
func (b *Bridge) complete() {
	for _, r := range b.reports {
		r.whole = nil
	}
	b.forgetOthers()
}

// fail makes all witnesses silent because the kernel could not be asked.
// The next caller reads everything.
func (b *Bridge) fail(err error) error {
	b.lost = true
	b.silence(err)
	return err
}

// silence makes all witnesses of the bridge silent.
func (b *Bridge) silence(reason error) {
	for _, r := range b.reports {
		r.whole = reason
		_ = r.post(false) // it returns the reason
	}
}

// post brings the board up to date with which witness can speak.
func (b *Bridge) post(anew bool) error {
	var all []error
	for _, r := range b.reports {
		all = append(all, r.post(anew))
	}
	b.netns.show()
	if !b.device.isThere() {
		return nil // see Ready
	}
	return errors.Join(all...)
}

// Probe sends one ARP probe (RFC 5227, section 2.1.1) or neighbour
// solicitation (RFC 4861, section 4.3) for addr, and does not wait. An answer
// lands on the board with the next [Bridge.Settle], or by itself while
// [Bridge.Run] runs; one from a container on this host is there when Probe
// returns. The frame never claims the address. On a bridge without carrier,
// which is one without a live port, it reaches no guest and is no error.
//
// An address that answered before stays seen until it kept silent for
// Config.ProbeWindow after a question that surely reached it, or until its
// port or the bridge goes. A probe that could not be sent changes nothing.
func (b *Bridge) Probe(ctx context.Context, addr netip.Addr) error {
	addr = addr.Unmap().WithZone("")
	if !rtnl.Assignable(addr) {
		return fmt.Errorf("probe %v: not an address that a neighbour can have", addr)
	}
	var p *probe.Prober
	doubted := false
	err := b.locked(ctx, func() error {
		p = b.probe
		doubted = b.answers.doubt(addr) // before: a local answer may be read before Ask returns
		return nil
	})
	if err == nil {
		err = p.Ask(ctx, addr) // without the lock: it takes a while on many ports
	}
	if errors.Is(err, probe.ErrNoBridge) {
		err = ErrNotReady
	}
	if doubted && b.mu.LockContext(ctx) == nil { // else it has no date, until the next question
		b.answers.doubtSince(addr, err == nil)
		b.mu.Unlock()
	}
	if err != nil {
		return fmt.Errorf("probe %v: %w", addr, err)
	}
	return nil
}
