package api

import "time"

// A State is an address's state as the socket spells it. "free" is the
// absence of a lease.
type State string

const (
	Free        State = "free"
	Reserved    State = "reserved"
	Bound       State = "bound"
	Paused      State = "paused"
	Releasing   State = "releasing"
	Cooling     State = "cooling"
	Quarantined State = "quarantined"

	// Cancelled is what became of an attempt; in the history only.
	Cancelled State = "cancelled"
)

// A Family is the address family of an allocation.
type Family string

const (
	V4   Family = "v4"
	V6   Family = "v6"
	Dual Family = "dual" // one of each, all or nothing
)

// A Lease is one address and who holds it.
type Lease struct {
	ID                string            `json:"id"`
	Address           string            `json:"address"`                 // without a prefix length: "10.8.64.2"
	PrefixLen         int               `json:"prefix_len"`              // of the pool
	PrefixLength      int               `json:"prefix_length,omitempty"` // of the delegated prefix that begins at address; 0 of one address
	Pool              string            `json:"pool"`
	PoolUID           string            `json:"pool_uid"`
	State             State             `json:"state"`
	Sandbox           string            `json:"sandbox"`
	UID               string            `json:"uid"`
	Interface         string            `json:"interface"`
	Attempt           int64             `json:"attempt"`
	Revision          int64             `json:"revision"` // of the change that made it so
	Created           time.Time         `json:"created"`
	Since             time.Time         `json:"since"` // entered its state
	BindBy            *time.Time        `json:"bind_by,omitempty"`
	Containers        []Container       `json:"containers,omitempty"`
	Netns             string            `json:"netns,omitempty"`
	HostInterface     string            `json:"host_interface,omitempty"`
	HostInterfaceName string            `json:"host_interface_name,omitempty"` // leased to its interface: no other lease has it
	MAC               string            `json:"mac,omitempty"`
	HostIndex         int               `json:"host_index,omitempty"`  // of the link that host_interface named when it was recorded
	NetnsInode        uint64            `json:"netns_inode,omitempty"` // of the namespace that netns led to then
	Labels            map[string]string `json:"labels,omitempty"`
	Reason            string            `json:"reason,omitempty"` // of the last change
	Evidence          []Sighting        `json:"evidence,omitempty"`
	Conflict          []Sighting        `json:"conflict,omitempty"`     // of a held address, while another is seen on it
	Hold              string            `json:"hold,omitempty"`         // an operator's words: the quarantine stands until it is cleared
	Outside           string            `json:"outside,omitempty"`      // why its pool does not give the address any more
	Sleep             *Sleep            `json:"sleep,omitempty"`        // how it is paused and woken, where that was said
	LastTraffic       *time.Time        `json:"last_traffic,omitempty"` // of an open lease, while idle.after is set
}

// A Container names one container in the runtime.
type Container struct {
	Namespace string `json:"namespace"`
	ID        string `json:"id"`
}

// BindRequest says where the lease is used. It adds to what is recorded: what
// it leaves out stays as it was. What is recorded already is a no-op.
type BindRequest struct {
	Containers    []Container `json:"containers,omitempty"`
	Gone          []Container `json:"gone,omitempty"` // containers that the lease has no more
	Netns         string      `json:"netns,omitempty"`
	HostInterface string      `json:"host_interface,omitempty"`
	MAC           string      `json:"mac,omitempty"`
	// IfRevision is the revision at which the caller saw the lease: if it
	// changed since, the answer is stale_revision. 0 does not ask.
	IfRevision int64 `json:"if_revision,omitempty"`
}

// PauseRequest pauses or resumes a lease. A resume has only if_revision.
type PauseRequest struct {
	IfRevision int64 `json:"if_revision,omitempty"` // as of BindRequest
	// Mode says what becomes of the sandbox, and that what wakes it is recorded anew.
	// Without it what is recorded stays.
	Mode SleepMode   `json:"mode,omitempty"`
	Do   bool        `json:"do,omitempty"`   // ipamd freezes the tasks itself, and resumes them
	Wake *WakePolicy `json:"wake,omitempty"` // traffic that wakes it; without it none does
}

// ReleaseRequest releases a lease.
type ReleaseRequest struct {
	UID        string   `json:"uid,omitempty"`         // when given it must be the lease's own
	Wait       Duration `json:"wait,omitempty"`        // Go duration: wait so long for the confirmation, at most 60s
	IfRevision int64    `json:"if_revision,omitempty"` // as of BindRequest
}

// ForceReleaseRequest quarantines the address of a releasing lease whose
// removal cannot be confirmed.
type ForceReleaseRequest struct {
	Reason     string `json:"reason"`
	IfRevision int64  `json:"if_revision,omitempty"` // as of BindRequest
}

// LeaseReply answers verbs on one lease.
type LeaseReply struct {
	Lease    Lease     `json:"lease"`
	Blockers []Blocker `json:"blockers,omitempty"` // of a releasing lease: what keeps the address from cooling
	// Warnings are of a bind: what it names and the kernel shows otherwise. It is
	// recorded all the same.
	Warnings []BindWarning `json:"warnings,omitempty"`
	// Networks are of an attach: what the interface was plumbed by, v4 first. Its name servers are
	// for the caller to give the sandbox: nothing is written into its files.
	Networks []Network `json:"networks,omitempty"`
	Revision int64     `json:"revision"`
	Epoch    string    `json:"epoch"`
}

// A BindWarning is one field of a bind that differs from what the kernel shows.
type BindWarning struct {
	Field   string `json:"field"` // mac, host_interface, netns
	Given   string `json:"given"`
	Seen    string `json:"seen,omitempty"` // "" when only that it cannot be is known
	Message string `json:"message"`        // one sentence
}

// A Blocker is one reason why a released address is not reusable yet.
type Blocker struct {
	Kind   string `json:"kind"` // container, task, port, sighting, silent, runtime, unconfirmed
	Detail string `json:"detail"`
}

// CancelRequest has the attempts of a sandbox up to this one refused for an hour, or what
// allocation.tombstone says: also those that arrive later. What is recorded of that is a
// tombstone. An open lease of such an attempt is released.
type CancelRequest struct {
	UID     string `json:"uid"`
	Attempt int64  `json:"attempt"`
}

// CancelReply answers a cancel.
type CancelReply struct {
	Released []Lease `json:"released,omitempty"`
	Revision int64   `json:"revision"`
	Epoch    string  `json:"epoch"`
}

// LeaseList is a consistent listing, or a page of one, in numeric order of the
// addresses.
type LeaseList struct {
	Leases   []Lease `json:"leases"`
	Next     string  `json:"next,omitempty"` // the page ends at this address and more follow: ask for those after it
	Revision int64   `json:"revision"`
	Epoch    string  `json:"epoch"`
}
