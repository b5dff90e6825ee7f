package api

// MostBookLeases bounds how many leases the preview of an adoption lists.
const MostBookLeases = 1000

// BackupRequest has the daemon copy its book to a file of its machine.
type BackupRequest struct {
	Path    string `json:"path"`              // absolute; its folder is there
	Replace bool   `json:"replace,omitempty"` // it may be there already
}

// BackupReply names a copy that is whole, checked and durable.
type BackupReply struct {
	Path     string `json:"path"`
	Bytes    int64  `json:"bytes"`
	Revision int64  `json:"revision"` // the last one that the copy has
	Epoch    string `json:"epoch"`
}

// MostBookFindings bounds how many findings a check of the book lists.
const MostBookFindings = 1000

// CheckBookReply is what a check of the book found at one revision.
type CheckBookReply struct {
	Whole     bool          `json:"whole"`               // nothing is broken
	Findings  []BookFinding `json:"findings"`            // what is, the first 1000
	Truncated bool          `json:"truncated,omitempty"` // there are more
	Addresses int           `json:"addresses"`           // in use or cooling
	Revision  int64         `json:"revision"`            // that was looked at
	Epoch     string        `json:"epoch"`
}

// A BookFinding is one broken invariant.
type BookFinding struct {
	Invariant string `json:"invariant"` // its name, as ipamd check has it
	Detail    string `json:"detail"`    // what breaks it
}

// AdoptBookRequest takes a book over that was made for another runner or machine.
type AdoptBookRequest struct {
	Epoch  string `json:"epoch,omitempty"`  // of the book that a person has looked at; left out: look, and do nothing
	Reason string `json:"reason,omitempty"` // for the history
}

// BookIdentity says whose a book is.
type BookIdentity struct {
	RunnerUID string `json:"runner_uid"`      // "" of the host: none is configured, an adoption makes one
	MachineID string `json:"machine_id"`      // "" where the machine has none
	Epoch     string `json:"epoch,omitempty"` // of a book
}

// AdoptBookReply is what an adoption did, or would do.
type AdoptBookReply struct {
	Adopted  bool         `json:"adopted"`
	Mismatch string       `json:"mismatch,omitempty"` // why the book is not this runner's; "": it is
	Book     BookIdentity `json:"book"`               // whose it is now
	Host     BookIdentity `json:"host"`               // whose it would be
	Live     int          `json:"live"`               // held leases whose workload is seen here
	Unproven int          `json:"unproven"`           // held leases whose address is seen, and nothing shows that it is their own workload
	NotSeen  int          `json:"not_seen"`           // held leases of which nothing is seen: they stay, and end only confirmed
	Disputed int          `json:"disputed"`           // held leases whose address another uses here
	Withheld int          `json:"withheld"`           // addresses that cool or are quarantined: they stay so
	Leases   []BookLease  `json:"leases"`             // the first 1000 held ones, in the order of addresses
	// Refused rows are not taken over: those that cannot be read, and those in the way of the
	// configuration's pools. Refusals has the first 1000.
	Refused  int           `json:"refused"`
	Refusals []BookRefusal `json:"refusals"`
	Blocked  string        `json:"blocked,omitempty"` // why a confirmation would be refused
	Plan     *Report       `json:"plan,omitempty"`    // what the first pass would do; not after an adoption
	Revision int64         `json:"revision"`
	Epoch    string        `json:"epoch"`
}

// A BookRefusal is a row that an adoption does not take over, and why.
type BookRefusal struct {
	Address    string `json:"address"` // as the row has it
	State      State  `json:"state,omitempty"`
	Sandbox    string `json:"sandbox,omitempty"`
	LeaseID    string `json:"lease_id,omitempty"`
	PoolUID    string `json:"pool_uid,omitempty"`     // of the pool that it is of
	NewPoolUID string `json:"new_pool_uid,omitempty"` // of the one that the configuration would have it in
	Reason     string `json:"reason"`
}

// A BookLease is a held lease of the book, compared with what lives here.
type BookLease struct {
	Address  string `json:"address"` // of a delegated prefix with its length
	State    State  `json:"state"`
	Sandbox  string `json:"sandbox"`
	LeaseID  string `json:"lease_id"`
	Standing string `json:"standing"`         // live, unproven, not_seen or disputed
	Detail   string `json:"detail,omitempty"` // where it is seen, or who else uses it
}
