package client

import (
	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client/answer"
)

// The classes of refusals. See [api.Code] for what each means.
const (
	ErrInvalidArgument     = answer.Class(api.InvalidArgument)
	ErrPermissionDenied    = answer.Class(api.PermissionDenied) // also when the socket cannot be opened
	ErrNotFound            = answer.Class(api.NotFound)
	ErrLeaseGone           = answer.Class(api.LeaseGone)
	ErrStaleRevision       = answer.Class(api.StaleRevision)
	ErrAttemptCancelled    = answer.Class(api.AttemptCancelled)
	ErrAddressTaken        = answer.Class(api.AddressTaken)
	ErrAddressQuarantined  = answer.Class(api.AddressQuarantined)
	ErrNameTaken           = answer.Class(api.NameTaken)
	ErrNotInPool           = answer.Class(api.NotInPool)
	ErrPoolOverlap         = answer.Class(api.PoolOverlap)
	ErrPoolNotEmpty        = answer.Class(api.PoolNotEmpty)
	ErrStaleGeneration     = answer.Class(api.StaleGeneration)
	ErrStateNotAllowed     = answer.Class(api.StateNotAllowed)
	ErrPoolExhausted       = answer.Class(api.PoolExhausted)
	ErrConflictLimit       = answer.Class(api.ConflictLimit)
	ErrEvidenceUnavailable = answer.Class(api.EvidenceUnavailable)
	ErrBridgeNotReady      = answer.Class(api.BridgeNotReady)
	ErrNotReady            = answer.Class(api.NotReady)
	ErrIdentityMismatch    = answer.Class(api.IdentityMismatch)
	ErrBookReadonly        = answer.Class(api.BookReadonly)
	ErrBookBusy            = answer.Class(api.BookBusy)
	ErrWakeTimeout         = answer.Class(api.WakeTimeout) // ask again
	ErrWakeRefused         = answer.Class(api.WakeRefused)
	ErrNoWarmSlot          = answer.Class(api.NoWarmSlot)
	ErrTooManyRequests     = answer.Class(api.TooManyRequests)
	ErrCompacted           = answer.Class(api.Compacted)
	ErrDeadlineExceeded    = answer.Class(api.DeadlineExceeded) // the daemon's; the caller's own is context.DeadlineExceeded
	ErrInternal            = answer.Class(api.Internal)
)

// ErrNotRunning means that nothing listens on the socket.
const ErrNotRunning = answer.NotRunning
