package census

import "net/netip"

// A Port is the link of a port of a bridge.
type Port struct {
	Index  int // an index is used again where a link came from another namespace with it
	Name   string
	Bridge string
	// ForwardsGroups: frames to the group addresses 01-80-C2-00-00-00 to -0F go the way of all others
	// (IFLA_BRPORT_GROUP_FWD_MASK).
	ForwardsGroups bool
}

// A Bridge is what a bridge itself is.
type Bridge struct {
	Name  string
	Index int          // of its link; 0 where there is none
	Addrs []netip.Addr // of its link, those by which no sandbox could be reached too
	MAC   string       // of its link
	// LearnsGroups: it learns where the senders of frames to 01-80-C2-00-00-00 to -0F are (no_linklocal_learn is off).
	LearnsGroups bool
}
