package api

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// A Code is the class of an error; programs branch on it, people read the
// message.
type Code string

const (
	InvalidArgument     Code = "invalid_argument"     // 400: details.field names it
	PermissionDenied    Code = "permission_denied"    // 403
	NotFound            Code = "not_found"            // 404
	LeaseGone           Code = "lease_gone"           // 410: drop the id
	StaleRevision       Code = "stale_revision"       // 409: look again; details.revision is the present one
	AttemptCancelled    Code = "attempt_cancelled"    // 409: try a higher attempt
	AddressTaken        Code = "address_taken"        // 409
	AddressQuarantined  Code = "address_quarantined"  // 409
	NameTaken           Code = "name_taken"           // 409
	NotInPool           Code = "not_in_pool"          // 400
	PoolOverlap         Code = "pool_overlap"         // 409
	PoolNotEmpty        Code = "pool_not_empty"       // 409
	StaleGeneration     Code = "stale_generation"     // 409
	StateNotAllowed     Code = "state_not_allowed"    // 409
	WakeTimeout         Code = "wake_timeout"         // 504, retryable
	WakeRefused         Code = "wake_refused"         // 409
	NoWarmSlot          Code = "no_warm_slot"         // 503, retryable
	PoolExhausted       Code = "pool_exhausted"       // 503, retryable
	ConflictLimit       Code = "conflict_limit"       // 503, retryable
	EvidenceUnavailable Code = "evidence_unavailable" // 503, retryable
	BridgeNotReady      Code = "bridge_not_ready"     // 503, retryable
	NotReady            Code = "not_ready"            // 503, retryable
	IdentityMismatch    Code = "identity_mismatch"    // 503: an operator adopts the book
	BookReadonly        Code = "book_readonly"        // 503, retryable
	BookBusy            Code = "book_busy"            // 503, retryable
	TooManyRequests     Code = "too_many_requests"    // 429, retryable: after the header Retry-After
	Compacted           Code = "compacted"            // 410: list again
	DeadlineExceeded    Code = "deadline_exceeded"    // 504, retryable
	Internal            Code = "internal"             // 500
)

// An Error is the body of every reply that is not a success.
type Error struct {
	Code      Code           `json:"code"`
	Message   string         `json:"message"`
	Retryable bool           `json:"retryable"`
	Details   map[string]any `json:"details,omitempty"`
	Revision  int64          `json:"revision"`
	Epoch     string         `json:"epoch"`
}

// Error is the message, and behind it the code, to search for, unless the message has
// each word of it, as a word of its own: "overlaps" is one for "overlap", "nothing" is none for "not".
func (e *Error) Error() string {
	has := strings.FieldsFunc(e.Message, func(r rune) bool { return !unicode.IsLetter(r) })
	for word := range strings.SplitSeq(string(e.Code), "_") {
		if !slices.ContainsFunc(has, func(w string) bool { return strings.TrimSuffix(w, "s") == strings.TrimSuffix(word, "s") }) {
			return fmt.Sprintf("%s (%s)", e.Message, e.Code)
		}
	}
	return e.Message
}
