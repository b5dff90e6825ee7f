package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/feed"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/server/admission"
)

// codeOf is the table of errors: what each sentinel is called on the socket.
// The status and whether to retry follow from the code, in package api. The
// first row that fits wins; what no row fits is internal.
func codeOf(err error) api.Code {
	for _, row := range []struct {
		is   error
		code api.Code
	}{
		{errDenied, api.PermissionDenied},
		{admission.ErrBusy, api.TooManyRequests},
		{ipam.ErrInvalid, api.InvalidArgument},
		{ipam.ErrWakeTimeout, api.WakeTimeout},
		{ipam.ErrWakeRefused, api.WakeRefused},
		{allocator.ErrNoSlot, api.NoWarmSlot},
		{ipam.ErrNotFound, api.NotFound},
		{ipam.ErrGone, api.LeaseGone},
		{ipam.ErrStale, api.StaleRevision},
		{ipam.ErrState, api.StateNotAllowed},
		{ipam.ErrCancelled, api.AttemptCancelled},
		{ipam.ErrTaken, api.AddressTaken},
		{ipam.ErrQuarantined, api.AddressQuarantined},
		{ipam.ErrNameTaken, api.NameTaken},
		{ipam.ErrNotInPool, api.NotInPool},
		{ipam.ErrExhausted, api.PoolExhausted},
		{ipam.ErrOverlap, api.PoolOverlap},
		{feed.ErrCompacted, api.Compacted},
		{ipam.ErrPoolNotEmpty, api.PoolNotEmpty},
		{ipam.ErrStaleGeneration, api.StaleGeneration},
		{ipam.ErrDraining, api.StateNotAllowed},
		{ipam.ErrTombstones, api.TooManyRequests},
		{ipam.ErrQuarantineFull, api.StateNotAllowed},
		{allocator.ErrConflictLimit, api.ConflictLimit},
		{allocator.ErrEvidence, api.EvidenceUnavailable},
		{allocator.ErrNotReady, api.NotReady},
		{allocator.ErrBridge, api.BridgeNotReady},
		{netdb.ErrIdentity, api.IdentityMismatch},
		{netdb.ErrBusy, api.BookBusy},
		{netdb.ErrReadOnly, api.BookReadonly},
		{ipam.ErrClosed, api.NotReady},
		{context.DeadlineExceeded, api.DeadlineExceeded},
		{context.Canceled, api.DeadlineExceeded}, // the caller hung up, see fail, or the daemon stops
	} {
		if errors.Is(err, row.is) {
			return row.code
		}
	}
	return api.Internal
}

var errDenied = errors.New("permission denied")

// A deniedError is a peer who may not.
type deniedError struct {
	peer *admission.Peer
	end  *api.Endpoint
}

func (e *deniedError) Error() string {
	if e.peer.Role == "" {
		return fmt.Sprintf("%v: the peer %s", errDenied, e.peer.Why)
	}
	return fmt.Sprintf("%v: %s needs the role %s, and %s has the role %s",
		errDenied, e.end.Verb, e.end.Least, e.peer.Name, e.peer.Role)
}

func (e *deniedError) Unwrap() error { return errDenied }

// A slotError is a sandbox's verb on the lease of a warm slot that no sandbox has.
type slotError struct {
	lease *ipam.Lease
	slot  string // its id; "" where it has ended since
}

func (e *slotError) Error() string {
	return fmt.Sprintf("the lease of %s: %v: it is of a warm slot that no sandbox has; a sandbox is given one by an allocation with warm (ipamctl allocate --warm), and a pool keeps fewer by its warm.size (ipamctl pool apply %s --warm)",
		e.lease.Addr, ipam.ErrState, e.lease.Pool)
}

func (e *slotError) Unwrap() error { return ipam.ErrState }

// ofSandbox refuses what is a sandbox's to ask for on a lease that is held and is none's.
func (h *view) ofSandbox(id string) error {
	l, err := h.book.Lease(id)
	if err != nil || !ipam.IsSlotUID(l.UID) || !l.State.Open() && l.State != ipam.Releasing {
		return nil // an error is the verb's to return
	}
	e := &slotError{lease: l}
	if slot := h.book.Slot(id); slot != nil {
		e.slot = slot.ID
	}
	return e
}

// A seenError is a verb on an address that a witness speaks against: it is in use. seen
// is not empty.
type seenError struct {
	verb  string
	class error
	seen  []census.Sighting
}

func (e *seenError) Error() string {
	s := e.seen[0]
	return fmt.Sprintf("%s %s: %v: the %s witness sees it%s", e.verb, s.Addr, e.class, s.Witness, s.Where())
}

func (e *seenError) Unwrap() error { return e.class }

// errTooLarge travels with 413.
var errTooLarge = field("body", "is larger than %d bytes", bodyBytes)

// A methodError is a method that the path does not have; it travels with 405.
type methodError struct{ method, path, allowed string }

func (e *methodError) Error() string {
	return fmt.Sprintf("method: %s knows %s, not %s", e.path, e.allowed, e.method)
}

func (e *methodError) Unwrap() error { return ipam.ErrInvalid }

// cancelled is what a call is counted as whose caller did not wait for the
// answer. It is no code of the API, as no caller waits for it.
const cancelled api.Code = "cancelled"

// fail answers with the error, and ends its journey: an internal one is
// logged here, and its text stays here.
func (s *Server) fail(c *call, err error) (observed api.Code) {
	reply := s.errorReply(c, err)
	code := reply.Code
	if c.hungUp() && errors.Is(err, context.Canceled) {
		// It is answered all the same: one that closed its sending side only may read.
		s.cfg.Log.Debug("a caller hung up", "verb", c.end.Verb, "peer", c.peer.Name, "err", err)
		reply.Message = fmt.Sprintf("%s: the caller hung up, or closed its sending side, before it was answered", c.end.Verb)
		defer func() { observed = cancelled }()
	}
	if busy, is := errors.AsType[*admission.BusyError](err); is {
		// In whole seconds, and never sooner than the error says (RFC 9110, section 10.2.3).
		c.w.Header().Set("Retry-After", fmt.Sprint(int((busy.After+time.Second-1)/time.Second)))
	}
	if c.unread {
		c.w.Header().Set("Connection", "close") // what it still sends is not read
	}
	s.encode(c, statusOf(c, err, code), reply)
	if c.unread {
		c.sayLast()
	}
	return code
}

// errorReply is an error as it is said on the socket. One that has no code is logged,
// and not shown.
func (s *Server) errorReply(c *call, err error) *api.Error {
	code := codeOf(err)
	reply := &api.Error{Code: code, Message: err.Error(), Retryable: code.Retryable(),
		Details: details(err), Revision: s.cfg.Book.Rev(), Epoch: s.cfg.Book.Epoch()}
	if code == api.Internal {
		s.cfg.Log.Error("a call failed", "verb", c.end.Verb, "err", err, "peer", c.peer.Name,
			"lease", c.lease, "addr", c.address, "sandbox", c.sandbox)
		reply.Message = fmt.Sprintf("%s: internal error; ipamd's log has it", c.end.Verb)
	}
	return reply
}

func statusOf(c *call, err error, code api.Code) int {
	_, method := errors.AsType[*methodError](err)
	switch {
	case errors.Is(err, errTooLarge):
		return http.StatusRequestEntityTooLarge
	case method:
		return http.StatusMethodNotAllowed
	case code == api.StaleRevision && c.ifMatch:
		return http.StatusPreconditionFailed
	}
	return code.Status()
}

// details is what a program needs beside the code. A pool that ran out while
// addresses in use were skipped has both.
func details(err error) map[string]any {
	d := make(map[string]any)
	if wrong, is := errors.AsType[*ipam.FieldError](err); is {
		d["field"], d["reason"] = wrong.Field, wrong.Reason
	}
	if stale, is := errors.AsType[*ipam.StaleError](err); is {
		d["revision"], d["state"] = stale.Lease.Rev, stale.Lease.State
	}
	if unclaimed, is := errors.AsType[*slotError](err); is {
		d["slot"] = unclaimed.slot
	}
	if kept, is := errors.AsType[*ipam.KeptError](err); is {
		d["field"], d["address"], d["kept_for"] = "address", kept.Addr.String(), kept.Sandbox
	}
	poolDetails(err, d)
	if _, is := errors.AsType[*methodError](err); is {
		d["field"] = "method"
	}
	if denied, is := errors.AsType[*deniedError](err); is {
		d["role"] = denied.end.Least
	}
	if conflict, is := errors.AsType[*allocator.ConflictError](err); is {
		d["addresses"] = skipped(conflict.Skipped)
	}
	if lacking, is := errors.AsType[*allocator.BridgeError](err); is {
		d["pool"], d["bridge"], d["repair"] = lacking.Pool, lacking.Bridge, append([]string{}, lacking.Repair...)
	}
	if evidence, is := errors.AsType[*allocator.EvidenceError](err); is {
		d["silent"] = silences(evidence.Silent)
	}
	if inUse, is := errors.AsType[*seenError](err); is {
		d["address"], d["evidence"] = inUse.seen[0].Addr.String(), sightings(inUse.seen)
	}
	if busy, is := errors.AsType[*admission.BusyError](err); is {
		d["limit"], d["most"], d["retry_after"] = busy.Limit, busy.Most, busy.After.String()
	}
	if full, is := errors.AsType[*fullError](err); is && full.released != nil {
		d["released"] = full.released
	}
	if exhausted, is := errors.AsType[*ipam.ExhaustedError](err); is {
		d["pool"], d["by_state"] = exhausted.Pool, byState(exhausted.ByState)
		if exhausted.PrefixLen != 0 {
			d["prefix_length"] = exhausted.PrefixLen
		}
		if exhausted.Next > 0 {
			d["next_in"] = exhausted.Next.String()
		}
	}
	return d
}
