package bridge

import (
	"context"
	"net/netip"
	"slices"
)

// Desired is what the kernel's bridge has to be.
type Desired struct {
	Gateways []netip.Prefix // addresses, with prefix lengths, that must be on the bridge
	MTU      int            // bytes, where the bridge is managed; 0 leaves it alone
}

func (d Desired) equal(o Desired) bool {
	return d.MTU == o.MTU && slices.Equal(d.Gateways, o.Gateways)
}

// Set replaces the whole of what the bridge has to be. A managed bridge is made so
// before it returns, any other is judged by it: [Bridge.Ready] tells. What the bridge had to
// be before, and has not to be any more, stays on it. The same state again is one
// system call.
//
// An error means that the kernel could not be asked, or that ctx ended. The state is
// the wanted one nevertheless, unless the Bridge was closed or ctx ended while others had
// the lock, and the next reading sees to it. It is safe for concurrent use.
func (b *Bridge) Set(ctx context.Context, want Desired) error {
	want.Gateways = slices.Clone(want.Gateways)
	if err := b.mu.LockContext(ctx); err != nil {
		return err
	}
	if !b.closed && !want.equal(*b.want.Load()) {
		b.want.Store(&want)
		b.lookAgain = true
	}
	b.mu.Unlock()
	return b.Settle(ctx)
}
