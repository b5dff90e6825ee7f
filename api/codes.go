package api

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
// given as If-Match. The numbers are RFC 9110's, written out: a program that needs this package
// does not get a server and TLS with it.
func (c Code) Status() int {
	switch c {
	case InvalidArgument, NotInPool:
		return 400 // Bad Request
	case PermissionDenied:
		return 403 // Forbidden
	case NotFound:
		return 404 // Not Found
	case LeaseGone, Compacted:
		return 410 // Gone
	case StaleRevision, AttemptCancelled, AddressTaken, AddressQuarantined, NameTaken,
		PoolOverlap, PoolNotEmpty, StaleGeneration, StateNotAllowed, WakeRefused:
		return 409 // Conflict
	case TooManyRequests:
		return 429 // Too Many Requests
	case PoolExhausted, ConflictLimit, EvidenceUnavailable, BridgeNotReady,
		NotReady, IdentityMismatch, BookReadonly, BookBusy, NoWarmSlot:
		return 503 // Service Unavailable
	case DeadlineExceeded, WakeTimeout:
		return 504 // Gateway Timeout
	}
	return 500 // Internal Server Error
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
