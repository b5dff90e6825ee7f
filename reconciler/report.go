package reconciler

import (
	"net/netip"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
)

// Kinds of action.
const (
	Adopt        = "adopt"           // bind an address that no lease holds to the one workload that claims it
	Bind         = "bind"            // a reserved lease's workload runs
	Pause        = "pause"           // the runtime has paused a bound lease's workload
	Still        = "still"           // note that the tasks stand still, or are gone, of a workload whose owner has paused its lease
	Resume       = "resume"          // a paused lease's workload runs
	Quarantine   = "quarantine"      // keep an address from being given that is seen, and that no lease explains
	Clear        = "clear"           // have a quarantined address cool that was unseen for long enough
	Expire       = "expire"          // end a reservation past its deadline
	ConflictSeen = ipam.ConflictSeen // note that another is seen on a held address
	ConflictOver = ipam.ConflictOver // note that it is not any more
	Reap         = "reap"            // begin the release of a bound lease whose workload is gone
)

// Results of an action.
const (
	Planned = "planned" // by a preview, which does nothing
	Done    = "done"
	Braked  = "held"    // by a brake
	Skipped = "skipped" // it changed meanwhile, or Err says why
)

// A Report is what one pass planned and did. It does not change once it is
// out.
type Report struct {
	Started  time.Time
	Took     time.Duration
	Preview  bool
	Complete bool // every witness answered; else nothing was released
	Silent   []census.Silence
	Leases   int // rows of the book that were compared
	Seen     int // addresses that were seen
	Absent   int // bound leases that were missed, reaped or not yet
	// AbsentSince is, by their ids, when the passes of this daemon's life began
	// to miss them in a row.
	AbsentSince map[string]time.Time
	Actions     []Action // in the order of the addresses; none: all agree
	Held        *Held    // nil: no brake
	Findings    []Finding
}

// An Action is one step of a pass. No two of one report are on one address.
type Action struct {
	Kind    string
	Addr    netip.Addr
	LeaseID string // "" for an address that has no row
	Sandbox string
	Reason  string // one sentence, for a person
	Result  string
	Err     string // why it was skipped, when that was an error
}

// Held says that a brake kept a pass from releasing what is not proven gone.
type Held struct {
	Releases int // how many it would have been
	Most     int // how many a pass may
	Reason   string
	Since    time.Time // the first of the passes in a row that were held
}
