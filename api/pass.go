package api

import "time"

// LongestPass is how long a pass that was asked for may take, in place of
// socket.deadline. One that is no preview goes on when the caller hangs up.
const LongestPass = 2 * time.Minute

// ReconcileRequest asks for a pass now. Preview excludes the others.
type ReconcileRequest struct {
	Preview bool `json:"preview,omitempty"` // plan, and do nothing
	Confirm bool `json:"confirm,omitempty"` // a person has looked: also release what would be held for being too much
	// ConfirmOrphans: a person has looked. The sweep ends the orphans, too, that are
	// held for being too many, if they are this set, as the finding orphans_held names it.
	ConfirmOrphans string `json:"confirm_orphans,omitempty"`
}

// ReconcileReply is the report of one pass.
type ReconcileReply struct {
	Report   Report `json:"report"`
	Revision int64  `json:"revision"`
	Epoch    string `json:"epoch"`
}

// A Report is what one pass planned and did.
type Report struct {
	Started  time.Time     `json:"started"`
	Took     time.Duration `json:"took_ns"`
	Preview  bool          `json:"preview"`
	Complete bool          `json:"complete"` // every witness answered; else nothing was released
	Silent   []Silence     `json:"silent,omitempty"`
	Leases   int           `json:"leases"`  // rows of the book that were compared
	Seen     int           `json:"seen"`    // addresses that were seen
	Absent   int           `json:"absent"`  // bound leases that were missed by this pass, reaped or not yet
	Actions  []Action      `json:"actions"` // in the order of the addresses; empty: all agree
	Held     *Held         `json:"held,omitempty"`
	Reports  []Finding     `json:"reports,omitempty"` // what a person has to decide
}

// An Action is one step of a pass.
type Action struct {
	Kind    string `json:"kind"` // adopt, bind, pause, resume, quarantine, clear, expire, reap, conflict_seen, conflict_over
	Address string `json:"address"`
	LeaseID string `json:"lease_id,omitempty"`
	Sandbox string `json:"sandbox,omitempty"`
	Reason  string `json:"reason"`          // one sentence
	Result  string `json:"result"`          // planned, done, held, or skipped: it changed meanwhile, or Error says why
	Error   string `json:"error,omitempty"` // why it failed
}

// Held says that a brake kept a pass from releasing anything.
type Held struct {
	Releases int    `json:"releases"` // how many it would have been
	Most     int    `json:"most"`     // how many a pass may
	Reason   string `json:"reason"`
}

// A Finding is one disagreement of book, wire and runtime.
type Finding struct {
	Kind    string    `json:"kind"` // lower_snake
	Address string    `json:"address,omitempty"`
	LeaseID string    `json:"lease_id,omitempty"`
	Detail  string    `json:"detail"`
	Since   time.Time `json:"since,omitzero"`
	Repair  string    `json:"mend"`              // the command that repairs it, or shows how; a comment of the shell may say when. Its name on the wire is of 0.1.0
	Because string    `json:"because,omitempty"` // the kind of the finding that this one follows from, and ends with

	// Count is how many findings this one stands for, where one stranger is seen
	// on many addresses, of which Addresses are the first.
	Count     int      `json:"count,omitempty"`
	Addresses []string `json:"addresses,omitempty"`
}

// Conflict reports that two use or claim an address at this moment.
func (f Finding) Conflict() bool { return f.Kind == "conflict" || f.Kind == "two_claimants" }

// DoctorReply lists every finding; empty means that all agree.
type DoctorReply struct {
	Findings []Finding `json:"findings"`
	Revision int64     `json:"revision"`
	Epoch    string    `json:"epoch"`
}
