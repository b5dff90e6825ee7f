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

// AdoptBookRequest takes a book over that was made for another runner or machine.
type AdoptBookRequest struct {
	Epoch  string `json:"epoch,omitempty"`  // of the book that a person has looked at; left out: look, and do nothing
	Reason string `json:"reason,omitempty"` // for the history
}

// BookHolding says whose a book is.
type BookHolding struct {
	RunnerUID string `json:"runner_uid"`      // "" of the host: none is configured, an adoption makes one
	MachineID string `json:"machine_id"`      // "" where the machine has none
	Epoch     string `json:"epoch,omitempty"` // of a book
}

// AdoptBookReply is what an adoption did, or would do.
type AdoptBookReply struct {
	Adopted  bool        `json:"adopted"`
	Mismatch string      `json:"mismatch,omitempty"` // why the book is not this runner's; "": it is
	Book     BookHolding `json:"book"`               // whose it is now
	Host     BookHolding `json:"host"`               // whose it would be
	Live     int         `json:"live"`               // held leases whose workload is seen here
	NotSeen  int         `json:"not_seen"`           // held leases whose workload is not: they stay, and end only confirmed
	Disputed int         `json:"disputed"`           // held leases whose address another uses here
	Withheld int         `json:"withheld"`           // addresses that cool or are quarantined: they stay so
	Leases   []BookLease `json:"leases"`             // the first 1000 held ones, in the order of addresses
	Plan     *Report     `json:"plan,omitempty"`     // what the first pass would do; not after an adoption
	Revision int64       `json:"revision"`
	Epoch    string      `json:"epoch"`
}

// A BookLease is a held lease of the book, compared with what lives here.
type BookLease struct {
	Address  string `json:"address"`
	State    State  `json:"state"`
	Sandbox  string `json:"sandbox"`
	LeaseID  string `json:"lease_id"`
	Standing string `json:"standing"`         // live, not_seen or disputed
	Detail   string `json:"detail,omitempty"` // who else uses it
}
