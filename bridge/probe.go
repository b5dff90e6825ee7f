package bridge

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/ipamd/ipamd/bridge/probe"
	"github.com/ipamd/ipamd/bridge/rtnl"
)

// Probe sends one ARP probe (RFC 5227, section 2.1.1) or neighbour
// solicitation (RFC 4861, section 4.3) for addr, and does not wait. An answer
// lands on the board with the next [Bridge.Settle], or by itself while
// [Bridge.Run] runs; one from a container on this host is there when Probe
// returns. The frame never claims the address. On a bridge without carrier,
// which is one without a live port, it reaches nobody and is no error.
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
		doubted = b.doubt(addr) // before: a local answer may be read before ask returns
		return nil
	})
	if err == nil {
		err = p.Ask(ctx, addr) // without the lock: it takes a while on many ports
	}
	if errors.Is(err, probe.ErrNoBridge) {
		err = ErrNotReady
	}
	if doubted && b.mu.LockContext(ctx) == nil { // else it has no date, until the next question
		b.doubtSince(addr, err == nil)
		b.mu.Unlock()
	}
	if err != nil {
		return fmt.Errorf("probe %v: %w", addr, err)
	}
	return nil
}
