package api

import "net/http"

// Codes lists every error code.
func Codes() []Code {
	return []Code{
		InvalidArgument, PermissionDenied, NotFound, LeaseGone, StaleRevision,
		AttemptCancelled, AddressTaken, AddressQuarantined, NameTaken, NotInPool,
		PoolOverlap, PoolNotEmpty, StaleGeneration, StateNotAllowed,
		PoolExhausted, ConflictLimit, EvidenceUnavailable, BridgeNotReady,
		NotReady, IdentityMismatch, BookReadonly, BookBusy,
		WakeTimeout, WakeRefused, NoWarmSlot,
		TooManyRequests, Compacted, DeadlineExceeded, Internal,
	}
}

// Status is the HTTP status that the code travels with. There are three
// exceptions: invalid_argument is 405 for a method that the path does not have,
// and 413 for a body over 1 MiB; stale_revision is 412 when the revision was
// given as If-Match.
func (c Code) Status() int {
	switch c {
	case InvalidArgument, NotInPool:
		return http.StatusBadRequest
	case PermissionDenied:
		return http.StatusForbidden
	case NotFound:
		return http.StatusNotFound
	case LeaseGone, Compacted:
		return http.StatusGone
	case StaleRevision, AttemptCancelled, AddressTaken, AddressQuarantined, NameTaken,
		PoolOverlap, PoolNotEmpty, StaleGeneration, StateNotAllowed, WakeRefused:
		return http.StatusConflict
	case TooManyRequests:
		return http.StatusTooManyRequests
	case PoolExhausted, ConflictLimit, EvidenceUnavailable, BridgeNotReady,
		NotReady, IdentityMismatch, BookReadonly, BookBusy, NoWarmSlot:
		return http.StatusServiceUnavailable
	case DeadlineExceeded, WakeTimeout:
		return http.StatusGatewayTimeout
	}
	return http.StatusInternalServerError
}

// Retryable reports that the same request may succeed later without a
// change of it.
func (c Code) Retryable() bool {
	switch c {
	case PoolExhausted, ConflictLimit, EvidenceUnavailable, BridgeNotReady,
		NotReady, BookReadonly, BookBusy, TooManyRequests, DeadlineExceeded, WakeTimeout, NoWarmSlot:
		return true
	}
	return false
}
