package api

import "slices"

// A Role is what a peer of the socket may do. Each role may do everything
// that the ones before it may.
type Role string

const (
	Reader  Role = "reader"  // any peer that can open the socket
	Runtime Role = "runtime" // configured uids and gids: may change leases
	Admin   Role = "admin"   // root: also the operator's verbs
)

// Includes reports whether a peer of role r may do what least asks for. The
// zero Role includes nothing.
func (r Role) Includes(least Role) bool {
	order := []Role{"", Reader, Runtime, Admin}
	return slices.Index(order, r) >= slices.Index(order, least)
}

// A Verb names one thing that can be asked on the socket.
type Verb string

const (
	VerbAllocate   Verb = "allocate"
	VerbBind       Verb = "bind"
	VerbPause      Verb = "pause"
	VerbResume     Verb = "resume"
	VerbWake       Verb = "wake"
	VerbWakeAck    Verb = "wake_ack"
	VerbAttach     Verb = "attach"
	VerbDetach     Verb = "detach"
	VerbPlumbWork  Verb = "plumb_work"
	VerbPlumbDone  Verb = "plumb_done"
	VerbRelease    Verb = "release"
	VerbForce      Verb = "force_release"
	VerbCancel     Verb = "cancel"
	VerbLeases     Verb = "leases"
	VerbLease      Verb = "lease"
	VerbWhois      Verb = "whois"
	VerbQuarantine Verb = "quarantine"
	VerbClear      Verb = "clear"
	VerbAdopt      Verb = "adopt"
	VerbChanges    Verb = "changes"
	VerbWatch      Verb = "watch"
	VerbPools      Verb = "pools"
	VerbPool       Verb = "pool"
	VerbApply      Verb = "apply_pool"
	VerbDrain      Verb = "drain_pool"
	VerbUndrain    Verb = "undrain_pool"
	VerbRemove     Verb = "remove_pool"
	VerbReconcile  Verb = "reconcile"
	VerbAdoptBook  Verb = "adopt_book"
	VerbBackup     Verb = "backup"
	VerbCheckBook  Verb = "check_book"
	VerbWithheld   Verb = "withheld"
	VerbWarm       Verb = "warm"
	VerbRules      Verb = "rules"
	VerbStatus     Verb = "status"
	VerbDoctor     Verb = "doctor"
	VerbVersion    Verb = "version"
	VerbHealth     Verb = "health"
	VerbReady      Verb = "ready"
	VerbMetrics    Verb = "metrics"
)

// An Endpoint is one row of the table of routes.
type Endpoint struct {
	Verb    Verb
	Method  string
	Path    string   // as net/http's mux writes patterns: "/v1/leases/{id}"
	Least   Role     // the least role that may ask
	Mutates bool     // may change the book
	Query   []string // the parameters that it knows; others are refused
	Codes   []Code   // every code that it may answer
}

// Endpoints is the table of routes. The server registers its handlers from it,
// and openapi.yaml is tested against it.
//
// No route frees by address: the predecessor's did, and a late release then
// freed the next owner's address.
func Endpoints() []Endpoint {
	return []Endpoint{
		{VerbAllocate, "POST", "/v1/leases", Runtime, true, nil, mutation(
			NotFound, LeaseGone, AttemptCancelled, AddressTaken, AddressQuarantined, NameTaken, NotInPool, StateNotAllowed,
			PoolExhausted, ConflictLimit, EvidenceUnavailable, BridgeNotReady, NoWarmSlot)},
		{VerbBind, "POST", "/v1/leases/{id}/bind", Runtime, true, nil, onLease(AddressTaken, NameTaken, EvidenceUnavailable, BridgeNotReady)},
		{VerbPause, "POST", "/v1/leases/{id}/pause", Runtime, true, nil, onLease()},
		{VerbResume, "POST", "/v1/leases/{id}/resume", Runtime, true, nil, onLease()},
		{VerbWake, "POST", "/v1/leases/{id}/wake", Runtime, true, nil, onLease(WakeTimeout, WakeRefused)},
		{VerbWakeAck, "POST", "/v1/leases/{id}/wake/ack", Runtime, true, nil, onLease()},
		{VerbAttach, "POST", "/v1/leases/{id}/attach", Runtime, true, nil, onLease(AddressTaken, NameTaken, EvidenceUnavailable, BridgeNotReady)},
		{VerbDetach, "POST", "/v1/leases/{id}/detach", Runtime, true, nil, onLease()},
		{VerbPlumbWork, "POST", "/v1/plumb/work", Admin, true, nil, mutation()},
		{VerbPlumbDone, "POST", "/v1/plumb/done", Admin, true, nil, mutation()},
		{VerbRelease, "POST", "/v1/leases/{id}/release", Runtime, true, nil, onLease()},
		{VerbForce, "POST", "/v1/leases/{id}/force-release", Admin, true, nil, onLease()},
		{VerbCancel, "POST", "/v1/tombstones", Runtime, true, nil, mutation(StateNotAllowed)},
		{VerbLeases, "GET", "/v1/leases", Reader, false, []string{"sandbox", "state", "pool", "after", "limit"}, reading()},
		{VerbLease, "GET", "/v1/leases/{id}", Reader, false, nil, reading(NotFound, LeaseGone)},
		{VerbWhois, "GET", "/v1/addresses/{ip}", Reader, false, nil, reading()},
		{VerbQuarantine, "POST", "/v1/addresses/{ip}/quarantine", Admin, true, nil, mutation(
			NotFound, NotInPool, AddressTaken, AddressQuarantined, StateNotAllowed)},
		{VerbClear, "POST", "/v1/addresses/{ip}/clear", Admin, true, nil, mutation(
			NotFound, LeaseGone, StaleRevision, NotInPool, StateNotAllowed, EvidenceUnavailable)},
		{VerbAdopt, "POST", "/v1/addresses/{ip}/adopt", Admin, true, nil, mutation(
			LeaseGone, StaleRevision, NotInPool, StateNotAllowed, AddressTaken, EvidenceUnavailable)},
		{VerbChanges, "GET", "/v1/changes", Reader, false,
			[]string{"address", "sandbox", "lease", "since", "before", "limit"}, reading()},
		{VerbWatch, "GET", "/v1/watch", Reader, false, []string{"epoch", "since", "kinds"}, reading(Compacted)},
		{VerbReconcile, "POST", "/v1/reconcile", Admin, true, nil, mutation()},
		{VerbAdoptBook, "POST", "/v1/book/adopt", Admin, true, nil, mutation(StaleRevision, StateNotAllowed, PoolOverlap, PoolNotEmpty)},
		{VerbBackup, "POST", "/v1/book/backup", Admin, true, nil, mutation(StateNotAllowed)},
		{VerbCheckBook, "GET", "/v1/book/check", Admin, false, nil, reading(BookReadonly, StateNotAllowed)},
		{VerbPools, "GET", "/v1/pools", Reader, false, nil, reading()},
		{VerbPool, "GET", "/v1/pools/{name}", Reader, false, []string{"family"}, reading(NotFound)},
		{VerbApply, "PUT", "/v1/pools/{name}", Admin, true, nil, mutation(NotFound, StaleGeneration, PoolOverlap, PoolNotEmpty, StateNotAllowed)},
		{VerbDrain, "POST", "/v1/pools/{name}/drain", Admin, true, nil, onPool(StaleGeneration)},
		{VerbUndrain, "POST", "/v1/pools/{name}/undrain", Admin, true, nil, onPool(StaleGeneration)},
		{VerbRemove, "DELETE", "/v1/pools/{name}", Admin, true, []string{"uid", "mode", "reason", "preview"}, onPool(PoolNotEmpty)},
		{VerbWithheld, "GET", "/v1/withheld", Reader, false, []string{"pool"}, reading()},
		{VerbWarm, "GET", "/v1/warm", Reader, false, []string{"pool"}, reading()},
		{VerbRules, "GET", "/v1/rules", Reader, false, []string{"lease"}, reading()},
		{VerbStatus, "GET", "/v1/status", Reader, false, nil, reading()},
		{VerbDoctor, "GET", "/v1/doctor", Reader, false, nil, reading()},
		{VerbVersion, "GET", "/v1/version", Reader, false, nil, reading()},
		{VerbHealth, "GET", "/healthz", Reader, false, nil, reading()},
		{VerbReady, "GET", "/readyz", Reader, false, nil, reading()},
		{VerbMetrics, "GET", "/metrics", Reader, false, nil, reading()},
	}
}

func reading(more ...Code) []Code {
	return append([]Code{InvalidArgument, PermissionDenied, TooManyRequests, NotReady, DeadlineExceeded, Internal}, more...)
}

func mutation(more ...Code) []Code {
	return append(reading(BookReadonly, BookBusy, IdentityMismatch), more...)
}

func onPool(more ...Code) []Code {
	return append(mutation(NotFound, StateNotAllowed), more...)
}

func onLease(more ...Code) []Code {
	return append(mutation(NotFound, LeaseGone, StaleRevision, StateNotAllowed), more...)
}
