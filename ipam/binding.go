package ipam

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// A Binding is what a caller knows of how a lease is used. It adds: what is left empty
// stays as it was.
type Binding struct {
	Containers    []Container
	Gone          []Container // not to be recorded any more; none of Containers
	Netns         string      // path of the network namespace
	HostInterface string      // the port of the bridge
	MAC           string      // of the sandbox's interface
	Plug          Plug        // the link and the namespace that HostInterface and Netns are now, as far as is known
	Seen          bool        // a witness sees the lease's sandbox on the pool's bridge, whatever else is named
	Takes         bool        // the lease takes the link of Plug back, which a lease of another sandbox has recorded since
}

// Check returns a [FieldError] for the first part that cannot be stored, and
// spells the MAC as the kernel does.
func (n *Binding) Check() error {
	if len(n.Containers) == 0 && len(n.Gone) == 0 && n.Netns == "" && n.HostInterface == "" && n.MAC == "" && !n.Seen {
		return Invalid("containers", "nothing to bind to: name a container, a netns, a host interface or a MAC")
	}
	if err := cmp.Or(checkContainers("containers", n.Containers), checkContainers("gone", n.Gone)); err != nil {
		return err
	}
	for i, c := range n.Gone {
		if slices.Contains(n.Containers, c) {
			return Invalid(fmt.Sprintf("gone[%d]", i), "%s/%s is among the containers, too", c.Namespace, c.ID)
		}
	}
	if n.Netns != "" && (!strings.HasPrefix(n.Netns, "/") || len(n.Netns) > 4095) {
		return Invalid("netns", "%.80q is no absolute path", n.Netns)
	}
	if n.HostInterface != "" {
		if err := CheckInterface(n.HostInterface); err != nil {
			return Invalid("host_interface", "%.40q is no interface name", n.HostInterface)
		}
	}
	if n.MAC != "" {
		mac, err := net.ParseMAC(n.MAC)
		if err != nil || len(mac) != 6 {
			return Invalid("mac", "%.40q is no Ethernet address", n.MAC)
		}
		if mac[0]&1 != 0 || [6]byte(mac) == ([6]byte{}) {
			return Invalid("mac", "%s is no interface's own address: want a unicast one", mac)
		}
		n.MAC = mac.String()
	}
	return nil
}

// Names reports whether a lease records what a binding names.
func (l *Lease) Names(n Binding) bool {
	for _, part := range [][2]string{{l.Netns, n.Netns}, {l.HostInterface, n.HostInterface}, {l.MAC, n.MAC}} {
		if part[1] != "" && part[0] != part[1] {
			return false
		}
	}
	return !slices.ContainsFunc(n.Containers, func(c Container) bool { return !slices.Contains(l.Containers, c) })
}

// An Adoption gives an address that is not held to the one workload that
// lives with it: the repair of a book that lost the lease.
type Adoption struct {
	Addr netip.Addr
	// PrefixLen is as of a [Lease]. 0 takes what the address's row is of, or what this book
	// last knew of the lease ID.
	PrefixLen int
	// Rev is that of the address's row (cooling or quarantined) on which it
	// was decided; 0 when there was none.
	Rev int64
	// ID is the lease id that the workload carries. It stays when it is a
	// UUID, this book never ended that lease, and knows it as no other's;
	// else the lease gets a new one. It may be empty.
	ID      string
	Sandbox string
	// UID, when empty, is what this book last knew of the lease ID, else the
	// sandbox's name.
	UID string
	// Interface, when empty, is what this book last knew of the lease ID, else
	// the first of eth0, eth1, … on which the sandbox holds no lease here.
	Interface string
	Binding
	Evidence json.RawMessage // what the witnesses report; a JSON array, may be empty

	// What another book says of the lease; the zero of each where none does. A late cancel
	// of an attempt below Attempt releases nothing.
	Attempt int64
	Labels  map[string]string
	Created Stamp
	PoolUID string // the pool that it was a row of, inside or outside; see netdb.Book.QuarantineFormer
	Sleep   *Sleep // how its sandbox is paused and woken, checked; what wakes it just now, too
}
