package probe

import "net"

// A MAC is a hardware address that can be compared.
type MAC [6]byte

func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// A Reply is what an answer is known by: the MAC that its frame came from, and
// the one that it says the address is at.
type Reply struct{ From, Says MAC }
