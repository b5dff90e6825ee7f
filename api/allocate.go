package api

// AllocateRequest asks for an address. The same (pool, uid, interface,
// family) asked again gets the same lease.
type AllocateRequest struct {
	Sandbox   string `json:"sandbox"`             // opaque, 1-253 bytes of UTF-8
	UID       string `json:"uid,omitempty"`       // the sandbox's incarnation; defaults to sandbox
	Attempt   int64  `json:"attempt,omitempty"`   // from 1; defaults to 1
	Pool      string `json:"pool,omitempty"`      // defaults to the only, or the first, pool
	Family    Family `json:"family,omitempty"`    // defaults to v4 when the pool has it, else v6
	Interface string `json:"interface,omitempty"` // defaults to "eth0"
	Address   string `json:"address,omitempty"`   // a wish: this one or an error
	// A delegated prefix of this length; 0, 32 of IPv4 and 128 of IPv6 are one address.
	PrefixLength int `json:"prefix_length,omitempty"`
	// The name of the link on the host, leased beside the address: a name, or a pattern
	// like "veth%d". "" leases none.
	HostInterfaceName string            `json:"host_interface_name,omitempty"`
	BindWithin        Duration          `json:"bind_within,omitempty"` // Go duration; defaults to the daemon's
	Labels            map[string]string `json:"labels,omitempty"`
	// Attach also has the port made, and the lease bound by it: both or neither. It has
	// no if_revision.
	Attach *AttachRequest `json:"attach,omitempty"`
	// Bind is where the lease is used already: a new one is bound in the same transaction, and
	// answered after its rules hold. One that was there is bound where it was reserved or records
	// the same; one that records other plumbing is answered as it is. It has no if_revision, and
	// is not beside attach.
	Bind *BindRequest `json:"bind,omitempty"`
	// Netns is where the lease will be bound: a path that a bind would refuse is refused before
	// anything is given. It is not recorded, and is not beside attach or bind, which name one themselves.
	Netns string `json:"netns,omitempty"`
	// Warm asks for a warm slot: a network namespace with its port, made in advance. It is not
	// beside address, prefix_length, host_interface_name, bind, netns or the family dual.
	Warm *WarmRequest `json:"warm,omitempty"`
}

// AllocateReply is one lease, or two for family "dual", v4 first.
type AllocateReply struct {
	Leases     []Lease   `json:"leases"`
	Networks   []Network `json:"networks"`    // one a lease, in the same order
	Existing   bool      `json:"existing"`    // the lease was there before this call
	EarlyReuse bool      `json:"early_reuse"` // the pool was exhausted and the cooldown was cut short
	Skipped    []Skipped `json:"skipped,omitempty"`
	Claimed    []Skipped `json:"claimed,omitempty"`  // of these leases: another claims the address, and the kernel does not show it there
	Unprobed   []string  `json:"unprobed,omitempty"` // addresses given before the wire had time to answer a probe
	// Warnings are of a bind: what it names and the kernel shows otherwise.
	Warnings []BindWarning `json:"warnings,omitempty"`
	// Slot is the warm slot that the lease has; nil: none.
	Slot     *GivenSlot `json:"slot,omitempty"`
	Revision int64      `json:"revision"`
	Epoch    string     `json:"epoch"`
}

// A Network is what the sandbox's interface needs beside its address.
type Network struct {
	Bridge  string   `json:"bridge"`
	Gateway string   `json:"gateway,omitempty"`
	Routes  []Route  `json:"routes,omitempty"`
	MTU     int      `json:"mtu"`
	DNS     []string `json:"dns,omitempty"`
}

// A Route is one route for the sandbox's interface.
type Route struct {
	Destination string `json:"destination"`
	Via         string `json:"via"`
}

// A Skipped address was next, but is in use.
type Skipped struct {
	Address  string     `json:"address"`
	Evidence []Sighting `json:"evidence"`
}
