// Package api is what is said on ipamd's unix socket: the wire types, the
// error codes and the table of routes, in the standard library only, so that
// a client can import it without importing the daemon.
package api

import "time"

// DefaultSocket is where ipamd listens.
const DefaultSocket = "/run/ipamd/ipamd.sock"

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
	ID            string            `json:"id"`
	Address       string            `json:"address"` // without a prefix length: "10.8.64.2"
	PrefixLen     int               `json:"prefix_len"`
	Pool          string            `json:"pool"`
	PoolUID       string            `json:"pool_uid"`
	State         State             `json:"state"`
	Sandbox       string            `json:"sandbox"`
	UID           string            `json:"uid"`
	Interface     string            `json:"interface"`
	Attempt       int64             `json:"attempt"`
	Revision      int64             `json:"revision"` // of the change that made it so
	Created       time.Time         `json:"created"`
	Since         time.Time         `json:"since"` // entered its state
	BindBy        *time.Time        `json:"bind_by,omitempty"`
	Containers    []Container       `json:"containers,omitempty"`
	Netns         string            `json:"netns,omitempty"`
	HostInterface string            `json:"host_interface,omitempty"`
	MAC           string            `json:"mac,omitempty"`
	HostIndex     int               `json:"host_index,omitempty"`  // of the link that host_interface named when it was recorded
	NetnsInode    uint64            `json:"netns_inode,omitempty"` // of the namespace that netns led to then
	Labels        map[string]string `json:"labels,omitempty"`
	Reason        string            `json:"reason,omitempty"` // of the last change
	Evidence      []Sighting        `json:"evidence,omitempty"`
	Conflict      []Sighting        `json:"conflict,omitempty"` // of a held address, while another is seen on it
	Hold          string            `json:"hold,omitempty"`     // an operator's words: the quarantine stands until it is cleared
}

// A Container names one container in the runtime.
type Container struct {
	Namespace string `json:"namespace"`
	ID        string `json:"id"`
}

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
	Unknown  Belongs = "unknown"  // nothing recorded tells
)

// A Silence is a witness that could not answer.
type Silence struct {
	Witness string    `json:"witness"`
	Reason  string    `json:"reason"`
	Since   time.Time `json:"since"`
}

// AllocateRequest asks for an address. The same (pool, uid, interface,
// family) asked again gets the same lease.
type AllocateRequest struct {
	Sandbox    string            `json:"sandbox"`               // opaque, 1-253 bytes of UTF-8
	UID        string            `json:"uid,omitempty"`         // the sandbox's incarnation; defaults to sandbox
	Attempt    int64             `json:"attempt,omitempty"`     // from 1; defaults to 1
	Pool       string            `json:"pool,omitempty"`        // defaults to the only, or the first, pool
	Family     Family            `json:"family,omitempty"`      // defaults to v4 when the pool has it, else v6
	Interface  string            `json:"interface,omitempty"`   // defaults to "eth0"
	Address    string            `json:"address,omitempty"`     // a wish: this one or an error
	BindWithin Duration          `json:"bind_within,omitempty"` // Go duration; defaults to the daemon's
	Labels     map[string]string `json:"labels,omitempty"`
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
	Revision   int64     `json:"revision"`
	Epoch      string    `json:"epoch"`
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

// A Skipped address was next, but somebody is using it.
type Skipped struct {
	Address  string     `json:"address"`
	Evidence []Sighting `json:"evidence"`
}

// BindRequest tells where the lease is used. It adds to what is recorded: what
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

// PauseRequest pauses or resumes a lease.
type PauseRequest struct {
	IfRevision int64 `json:"if_revision,omitempty"` // as of BindRequest
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
	Revision int64         `json:"revision"`
	Epoch    string        `json:"epoch"`
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

// A Report tells what one pass planned and did.
type Report struct {
	Started  time.Time     `json:"started"`
	Took     time.Duration `json:"took_ns"`
	Preview  bool          `json:"preview"`
	Complete bool          `json:"complete"` // every witness answered; else nothing was let go
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
	Result  string `json:"result"`          // planned, done, held, or skipped: it changed meanwhile, or Error tells
	Error   string `json:"error,omitempty"` // why it failed
}

// Held tells that a brake kept a pass from releasing anything.
type Held struct {
	Releases int    `json:"releases"` // how many it would have been
	Most     int    `json:"most"`     // how many a pass may
	Reason   string `json:"reason"`
}

// CancelRequest leaves a tombstone: attempts up to this one of this sandbox
// are refused for an hour, also those that arrive later. An open lease of
// such an attempt is released.
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

// WhoisReply is everything that is known about one address.
type WhoisReply struct {
	Address   string          `json:"address"`
	Pool      string          `json:"pool,omitempty"` // "" when it is in no pool
	State     State           `json:"state"`
	Owner     string          `json:"owner,omitempty"` // the sandbox that holds it now; never a former one
	Usable    bool            `json:"usable"`          // could be handed out by its pool at all
	Note      string          `json:"note,omitempty"`  // why not usable: "network address", "gateway", "excluded", ...
	Lease     *Lease          `json:"lease,omitempty"`
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

// A Change is one recorded move of an address, or the end of a sandbox uid's
// attempts; that one has no address and no lease.
type Change struct {
	Revision  int64      `json:"revision"`
	At        time.Time  `json:"at"`
	Address   string     `json:"address"`
	LeaseID   string     `json:"lease_id"`
	Pool      string     `json:"pool"`
	Sandbox   string     `json:"sandbox"`
	UID       string     `json:"uid"`
	Interface string     `json:"interface"`
	Attempt   int64      `json:"attempt"`
	From      State      `json:"from"`
	To        State      `json:"to"`
	Actor     string     `json:"actor"`
	Peer      string     `json:"peer,omitempty"`
	Reason    string     `json:"reason"`
	Note      string     `json:"note,omitempty"` // an operator's words
	Evidence  []Sighting `json:"evidence,omitempty"`
}

// ChangeList is part of the history, newest first.
type ChangeList struct {
	Changes  []Change `json:"changes"`
	Revision int64    `json:"revision"`
	Epoch    string   `json:"epoch"`
}

// QuarantineRequest sets an address aside by hand.
type QuarantineRequest struct {
	Reason string `json:"reason"`
}

// AdoptRequest gives a quarantined address to the sandbox that a person says lives
// with it. What is left out is what the quarantine knows of a lease that a rebuild
// lost; the uid is the sandbox's name where nothing names it.
type AdoptRequest struct {
	Sandbox       string      `json:"sandbox,omitempty"`
	UID           string      `json:"uid,omitempty"`
	Interface     string      `json:"interface,omitempty"`
	LeaseID       string      `json:"lease_id,omitempty"` // of before; one that has ended or is another's is refused
	Containers    []Container `json:"containers,omitempty"`
	Netns         string      `json:"netns,omitempty"`
	HostInterface string      `json:"host_interface,omitempty"`
	MAC           string      `json:"mac,omitempty"`
	Reason        string      `json:"reason"`
}

// A Pool is a prefix that addresses are given from.
type Pool struct {
	Name       string         `json:"name"`
	UID        string         `json:"uid"`
	Generation int64          `json:"generation"`
	Prefix     string         `json:"prefix"`
	Gateway    string         `json:"gateway,omitempty"`
	Bridge     string         `json:"bridge"`
	Exclude    []string       `json:"exclude,omitempty"` // "10.8.64.200-10.8.64.250" or one address
	Routes     []Route        `json:"routes,omitempty"`
	DNS        []string       `json:"dns,omitempty"`
	State      string         `json:"state"`
	Size       uint64         `json:"size"`      // addresses that can be given at all
	Free       uint64         `json:"free"`      // addresses without a lease
	Available  uint64         `json:"available"` // addresses that can be given now: free, or rested for long enough
	ByState    map[string]int `json:"by_state"`
}

// PoolList lists the pools.
type PoolList struct {
	Pools    []Pool `json:"pools"`
	Revision int64  `json:"revision"`
	Epoch    string `json:"epoch"`
}

// Status is what a person wants first.
type Status struct {
	Ready              bool           `json:"ready"`
	NotReady           []string       `json:"not_ready,omitempty"` // each reason, one sentence
	Version            string         `json:"version"`
	Commit             string         `json:"commit"`
	Started            time.Time      `json:"started"`
	PID                int            `json:"pid"`
	Book               BookStatus     `json:"book"`
	Bridge             BridgeStatus   `json:"bridge"`
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

// MostGaps bounds what a status tells of gaps.
const MostGaps = 16

// A Finding is one disagreement of book, wire and runtime.
type Finding struct {
	Kind    string    `json:"kind"` // lower_snake
	Address string    `json:"address,omitempty"`
	LeaseID string    `json:"lease_id,omitempty"`
	Detail  string    `json:"detail"`
	Since   time.Time `json:"since,omitzero"`
	Mend    string    `json:"mend"`              // the command that repairs it, or shows how
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
