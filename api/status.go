package api

import "time"

// Status is what a person wants first.
type Status struct {
	Ready              bool           `json:"ready"`
	NotReady           []string       `json:"not_ready,omitempty"` // each reason, one sentence
	Version            string         `json:"version"`
	Commit             string         `json:"commit"`
	Started            time.Time      `json:"started"`
	PID                int            `json:"pid"`
	Book               BookStatus     `json:"book"`
	Bridge             BridgeStatus   `json:"bridge"`            // the daemon's own
	Bridges            []BridgeStatus `json:"bridges,omitempty"` // all that pools are on, and its own first
	Pools              []Pool         `json:"pools"`
	Silent             []Silence      `json:"silent,omitempty"`
	Stuck              []Stuck        `json:"stuck,omitempty"`                // longest wait first, at most 16
	StuckTotal         int            `json:"stuck_total"`                    // also those that Stuck has no room for
	Quarantined        []Lease        `json:"quarantined,omitempty"`          // now, newest first, at most 16; by_state of the pools counts them all
	LastConflict       *Change        `json:"last_conflict,omitempty"`        // the newest of the kept history, whatever became of it
	LastConflictStands bool           `json:"last_conflict_stands,omitempty"` // its address is still quarantined for it, or held and in conflict
	Findings           map[string]int `json:"findings"`                       // of doctor, by kind; from memory, a moment old
	Conflicts          []Finding      `json:"conflicts,omitempty"`            // of them, those with Conflict, at most 16
	LastPass           *Report        `json:"last_pass,omitempty"`            // of the reconciler; previews do not count
	Plumb              *PlumbStatus   `json:"plumb,omitempty"`                // whether ports can be made: attach
	Allocation         string         `json:"allocation"`                     // "require kernel" or "require all"
	UnreadableRows     int            `json:"unreadable_rows"`
	CommitP50          time.Duration  `json:"commit_p50_ns"` // of the last 256; 0 before the first
	CommitP99          time.Duration  `json:"commit_p99_ns"`
	Revision           int64          `json:"revision"`
	Epoch              string         `json:"epoch"`
}

// A Stuck lease ought to have moved on: it is releasing and its removal is not
// confirmed, or reserved and past its bind_by.
type Stuck struct {
	Lease    Lease     `json:"lease"`
	Blockers []Blocker `json:"blockers,omitempty"` // of one that is releasing: what keeps it
}

// BookStatus describes the lease book.
type BookStatus struct {
	Path        string `json:"path"`
	Bytes       int64  `json:"bytes"`
	WALBytes    int64  `json:"wal_bytes"`
	Synchronous string `json:"synchronous"`
	RunnerUID   string `json:"runner_uid"`
	ReadOnly    string `json:"read_only,omitempty"` // why, when it cannot be written
	Growing     string `json:"growing,omitempty"`   // why, when its files grow and cannot be cut, though changes go on
	Exposed     string `json:"exposed,omitempty"`   // who else may change its file or folder
}

// BridgeStatus describes the bridge.
type BridgeStatus struct {
	Name    string `json:"name"`
	Ready   bool   `json:"ready"`
	Reason  string `json:"reason,omitempty"`
	Managed bool   `json:"managed"`
	Ports   int    `json:"ports"`
	MAC     string `json:"mac,omitempty"`
	MTU     int    `json:"mtu,omitempty"`
	// Gaps are places where no witness can look, each in one sentence; at most
	// [MostGaps], and doctor has them all.
	Gaps []string `json:"gaps,omitempty"`
}

// MostGaps bounds the gaps in a status.
const MostGaps = 16

// Health answers /healthz and /readyz.
type Health struct {
	Status  string   `json:"status"` // "ok" or "unavailable"
	Reasons []string `json:"reasons,omitempty"`
}

// VersionReply answers /v1/version.
type VersionReply struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Go      string `json:"go"`
	Schema  int    `json:"schema"`
}
