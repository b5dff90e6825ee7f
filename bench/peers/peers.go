// Package peers runs other people's allocators on the work that ipamd does.
//
// A peer's choices that cost it time and that ipamd's figures do not pay for
// are made in its favour: no log, no cooldown, leases as short as they can be.
package peers

import "net/netip"

// A Store is a peer with what it remembers. It is safe for concurrent use.
// The functions that open one write the first taken addresses after the gateway's as
// the peer itself would.
type Store interface {
	Allocate(sandbox string) (netip.Addr, error)
	// Undo ends an allocation in the quickest way. It is not part of any figure.
	Undo(sandbox string, addr netip.Addr) error
}

// First is the first address of a prefix that a sandbox may have.
func First(prefix netip.Prefix) netip.Addr { return gateway(prefix).Next() }

func gateway(prefix netip.Prefix) netip.Addr { return prefix.Masked().Addr().Next() }

// takenOf lists the first n addresses that sandboxes may have.
func takenOf(prefix netip.Prefix, n int) []netip.Addr {
	out := make([]netip.Addr, n)
	addr := First(prefix)
	for i := range out {
		out[i], addr = addr, addr.Next()
	}
	return out
}
