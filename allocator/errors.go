package allocator

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
)

var (
	// ErrConflictLimit is wrapped by every [ConflictError].
	ErrConflictLimit = errors.New("too many conflicts")
	// ErrEvidence is wrapped by every [EvidenceError].
	ErrEvidence = errors.New("evidence is unavailable")
	// ErrNotReady means that the daemon has not finished starting.
	ErrNotReady = errors.New("not ready")
	// ErrBridge means that the bridge is missing, down, or without the
	// pool's gateway. Nothing was reserved.
	ErrBridge = errors.New("bridge is not ready")
	// ErrNoSlot means that no warm slot is ready that the request could have. Nothing was
	// reserved.
	ErrNoSlot = errors.New("no warm slot is ready")
)

// A BridgeError refuses an allocation because the bridge is not as the pool needs it. Nothing
// was reserved.
type BridgeError struct {
	Pool   string
	Bridge string
	Reason string    // one sentence: "rt0 is missing"
	Since  time.Time // when it ceased to be ready
	Repair []string  // the commands that make it ready, in this order; none where a person has to look first
}

func (e *BridgeError) Error() string { return ErrBridge.Error() + ": " + e.Reason }

func (e *BridgeError) Unwrap() error { return ErrBridge }

// A ConflictError ends an allocation that found only addresses in use.
type ConflictError struct{ Skipped []Skipped }

func (e *ConflictError) Error() string {
	return fmt.Sprintf("%v: %d addresses in a row are in use on the wire: %s",
		ErrConflictLimit, len(e.Skipped), strings.Join(ipam.Texts(e.Addrs()), ", "))
}

func (e *ConflictError) Unwrap() error { return ErrConflictLimit }

// Addrs lists the conflicting addresses, in the order they were tried.
func (e *ConflictError) Addrs() []netip.Addr {
	out := make([]netip.Addr, len(e.Skipped))
	for i, s := range e.Skipped {
		out[i] = s.Addr
	}
	return out
}

// An EvidenceError refuses an allocation because a witness that must answer
// could not. Nothing was reserved; ask again.
type EvidenceError struct{ Silent []census.Silence }

func (e *EvidenceError) Error() string {
	parts := make([]string, len(e.Silent))
	for i, s := range e.Silent {
		parts[i] = fmt.Sprintf("%s (%s)", s.Witness, s.Reason)
	}
	return fmt.Sprintf("%v: no answer from %s", ErrEvidence, strings.Join(parts, ", "))
}

func (e *EvidenceError) Unwrap() error { return ErrEvidence }
