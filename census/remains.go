package census

import "net/netip"

// A LastKnown is where a sandbox was last known to be, as this boot of the machine numbers it.
type LastKnown struct {
	Name   string // of the link of the host that it names; "" is none, or another sandbox's by now
	Link   int    // index of that link; 0: not known
	Behind int    // index of the port that it was last seen behind, where it names none; 0 is none
	Netns  string // path of its namespace; "" is none
	Inode  uint64 // of that namespace; 0: not known, and what is at the path may be another
}

// Remains are what the kernel has of where a sandbox was last known to be: links with the numbers and
// names that were recorded, whosever they are by now. A tap that its machine opens again, or
// a pair of links that is made anew, has the old name and another index; and the
// kernel gives an index again, to a link that comes from another namespace with it.
type Remains struct {
	Link   *HostLink // that has the recorded index; nil: none has
	Named  *HostLink // that has the recorded name, where Link has another
	Behind *HostLink // that has the index of the port which it was last seen behind
	Netns  bool      // the recorded namespace is at its path; where it is not known which that was, any is
	Inside string    // what that has of the sandbox: an address, or an open tap; "" is nothing
	Other  *Other    // at that path by now; nil: none that is known to be another
}

// An Other is a namespace at the path of another one: paths are used again.
type Other struct {
	Inode  uint64
	Inside string // as that of [Remains]
}

// A HostLink is a link of the host.
type HostLink struct {
	Index   int
	Name    string
	Bridge  string // that it is a port of; "" is none
	Watched bool   // witnesses look at that bridge
	Tap     bool   // it has no far end
	Leads   bool   // its far end is in another namespace
	Hidden  bool   // it could not be asked what is at the far end
	MAC     string // at the far end in another namespace; "": there is none, or it is gone
	Inside  string // what of the sandbox it leads to, as of [Remains]; not looked for behind a port that has the recorded name
}

// A Sought is what is looked for beside the bridges.
type Sought struct {
	Has     func(netip.Addr) bool // tells which addresses
	Sandbox bool                  // they are those of one sandbox; else of any
	MAC     string                // of that one's interface; "" is not known
}
