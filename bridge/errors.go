package bridge

import (
	"errors"
	"time"

	"github.com/ipamd/ipamd/bridge/rtnl"
)

var (
	// ErrNotReady is wrapped by every [NotReadyError].
	ErrNotReady = errors.New("bridge is not ready")
	// ErrLocked means that another process looks after this bridge already.
	ErrLocked = errors.New("bridge is looked after by another process")

	// ErrClosed means that the Bridge was closed.
	ErrClosed = rtnl.ErrClosed
	// ErrNoNetnsID means that no link leads from the bridge's namespace to
	// that one, so the kernel has no id for it.
	ErrNoNetnsID = rtnl.ErrNoNetnsID

	// errEndsEarly means that the list of a namespace's links lacks some, though the
	// kernel ended it like a whole one.
	errEndsEarly = errors.New("the kernel's list of links ends early")
)

// A NotReadyError says why no address may be handed out on a bridge, or none of the pools
// of one of its gateways.
type NotReadyError struct {
	Bridge string    // its name
	Reason string    // one sentence for a person: "rt0 is missing"
	Since  time.Time // when it ceased to be ready, whatever the reason was then
	Repair []string  // the commands that make it ready, in this order; none where a person has to look first
	cause  error
}

func (e *NotReadyError) Error() string { return ErrNotReady.Error() + ": " + e.Reason }

func (e *NotReadyError) Unwrap() []error {
	if e.cause == nil {
		return []error{ErrNotReady}
	}
	return []error{ErrNotReady, e.cause}
}
