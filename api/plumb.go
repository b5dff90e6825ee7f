package api

// AttachRequest has ipamd make the port of a lease's interface, and bind its lease by it.
type AttachRequest struct {
	Netns string `json:"netns,omitempty"` // path of the sandbox's network namespace, as of a bind
	// Tap is in place of Netns, for a virtual machine: the port is a tap on the bridge, which the
	// machine's monitor opens by the lease's host_interface. The lease's mac is the machine's to take.
	Tap        bool   `json:"tap,omitempty"`
	MAC        string `json:"mac,omitempty"`         // of the sandbox's end; "" is any, of a tap one made from the address
	IfRevision int64  `json:"if_revision,omitempty"` // as of BindRequest
}

// DetachRequest has the port taken away that an attach made.
type DetachRequest struct {
	IfRevision int64 `json:"if_revision,omitempty"` // as of BindRequest
}

// PlumbRequest is how the helper asks for work.
type PlumbRequest struct {
	Worker string   `json:"worker"`         // one life of a helper: a new one gets what the one before it had in hand
	Wait   Duration `json:"wait,omitempty"` // for work, at most 60s
	// Verbs are what the worker has the rights for: those of ports, attach and detach, or those
	// of warm slots. Empty: those of ports.
	Verbs []string `json:"verbs,omitempty"`
}

// What a helper can be asked for. The verbs of slots need the right to mount as well.
const (
	PlumbAttach     = "attach"
	PlumbDetach     = "detach"
	PlumbSlotMake   = "slot_make"   // make a namespace with a port, or finish what was begun of it
	PlumbSlotCheck  = "slot_check"  // say how one differs from what it was made as
	PlumbSlotRemove = "slot_remove" // take a namespace down, and its port
	PlumbSlotList   = "slot_list"   // list the namespaces of the runner's slots
)

// PlumbVerbs are those of ports, and PlumbSlotVerbs those of warm slots.
func PlumbVerbs() []string { return []string{PlumbAttach, PlumbDetach} }

// PlumbSlotVerbs are those of warm slots.
func PlumbSlotVerbs() []string {
	return []string{PlumbSlotMake, PlumbSlotCheck, PlumbSlotRemove, PlumbSlotList}
}

// PlumbReply is one piece of work; without an id there is none yet.
type PlumbReply struct {
	ID       string    `json:"id,omitempty"`
	Verb     string    `json:"verb,omitempty"`  // as PlumbAttach
	Owner    string    `json:"owner,omitempty"` // whose port it is, as package plumb marks it
	Host     string    `json:"host,omitempty"`  // of a detach: the bridge's end
	Netns    string    `json:"netns,omitempty"`
	Tap      bool      `json:"tap,omitempty"` // in place of netns
	MAC      string    `json:"mac,omitempty"`
	Runner   string    `json:"runner,omitempty"`   // of a slot: no other runner's is touched
	Leases   []Lease   `json:"leases,omitempty"`   // of the interface, v4 first
	Networks []Network `json:"networks,omitempty"` // one a lease, in the same order
}

// PlumbDoneRequest is what came of a piece of work.
type PlumbDoneRequest struct {
	ID    string `json:"id"`
	Host  string `json:"host,omitempty"`        // the bridge's end, of what was made
	MAC   string `json:"mac,omitempty"`         // of the sandbox's end
	Inode uint64 `json:"netns_inode,omitempty"` // of the namespace, as the helper sees it; of a slot
	Field string `json:"field,omitempty"`
	Error string `json:"error,omitempty"` // why not; with a field where one is to blame
	// Paths are the namespaces of a slot_list, and Differences what a slot_check found, a
	// sentence each.
	Paths       []string `json:"paths,omitempty"`
	Differences []string `json:"differences,omitempty"`
}

// PlumbDoneReply is what becomes of what was made.
type PlumbDoneReply struct {
	Keep bool `json:"keep"` // else it is to be taken away: no lease has it
}

// PlumbStatus says whether ports can be made.
type PlumbStatus struct {
	Ready  bool   `json:"ready"`
	Why    string `json:"why,omitempty"`    // not
	Wanted bool   `json:"wanted,omitempty"` // they were asked for, and could not be made
}
