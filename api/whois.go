package api

import "time"

// A Sighting is one address seen by one witness: runtime, netns, host,
// neighbour or probe.
type Sighting struct {
	Address   string    `json:"address"`
	Witness   string    `json:"witness"`
	At        time.Time `json:"at"`
	Bridge    string    `json:"bridge,omitempty"`
	Port      string    `json:"port,omitempty"`
	Netns     string    `json:"netns,omitempty"`
	MAC       string    `json:"mac,omitempty"`
	Namespace string    `json:"namespace,omitempty"`
	Container string    `json:"container,omitempty"`
	Sandbox   string    `json:"sandbox,omitempty"`
	UID       string    `json:"uid,omitempty"`
	LeaseID   string    `json:"lease_id,omitempty"`
	Task      string    `json:"task,omitempty"`
	Note      string    `json:"note,omitempty"`
	Belongs   Belongs   `json:"belongs,omitempty"` // to the lease that holds the address; "" where none does, and in the history
}

// Belongs says whose a sighting of a held address is.
type Belongs string

const (
	Owner    Belongs = "owner"    // of the lease's own workload
	Stranger Belongs = "stranger" // of another
	Unknown  Belongs = "unknown"  // nothing recorded says
)

// A Silence is a witness that could not answer.
type Silence struct {
	Witness string    `json:"witness"`
	Reason  string    `json:"reason"`
	Since   time.Time `json:"since"`
}

// WhoisReply is everything that is known about one address.
type WhoisReply struct {
	Address   string          `json:"address"`
	Pool      string          `json:"pool,omitempty"` // "" when it is in no pool
	State     State           `json:"state"`
	Owner     string          `json:"owner,omitempty"`    // the sandbox that holds it now; never a former one
	Usable    bool            `json:"usable"`             // could be handed out by its pool at all
	Note      string          `json:"note,omitempty"`     // why not usable: "network address", "gateway", "excluded", ...
	KeptFor   string          `json:"kept_for,omitempty"` // the only sandbox that its pool gives it to
	Lease     *Lease          `json:"lease,omitempty"`
	Withheld  *Withheld       `json:"withheld,omitempty"` // of an address that outlives its removed pool
	Witnesses []WitnessAnswer `json:"witnesses"`
	History   []Change        `json:"history"` // newest first
	Revision  int64           `json:"revision"`
	Epoch     string          `json:"epoch"`
}

// A WitnessAnswer is what one witness says about one address.
type WitnessAnswer struct {
	Witness string     `json:"witness"`
	Answer  string     `json:"answer"` // "seen", "not seen", "silent"
	Reason  string     `json:"reason,omitempty"`
	Seen    []Sighting `json:"seen,omitempty"`
}
