package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/census"
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
		{netdb.ErrInvalid, api.InvalidArgument},
		{netdb.ErrNotFound, api.NotFound},
		{netdb.ErrGone, api.LeaseGone},
		{netdb.ErrStale, api.StaleRevision},
		{netdb.ErrState, api.StateNotAllowed},
		{netdb.ErrCancelled, api.AttemptCancelled},
		{netdb.ErrTaken, api.AddressTaken},
		{netdb.ErrQuarantined, api.AddressQuarantined},
		{netdb.ErrNotInPool, api.NotInPool},
		{netdb.ErrExhausted, api.PoolExhausted},
		{netdb.ErrOverlap, api.PoolOverlap},
		{netdb.ErrPoolNotEmpty, api.PoolNotEmpty},
		{netdb.ErrTombstones, api.TooManyRequests},
		{netdb.ErrQuarantineFull, api.StateNotAllowed},
		{allocator.ErrConflictLimit, api.ConflictLimit},
		{allocator.ErrEvidence, api.EvidenceUnavailable},
		{allocator.ErrNotReady, api.NotReady},
		{allocator.ErrBridge, api.BridgeNotReady},
		{netdb.ErrIdentity, api.IdentityMismatch},
		{netdb.ErrBusy, api.BookBusy},
		{netdb.ErrReadOnly, api.BookReadonly},
		{netdb.ErrClosed, api.NotReady},
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

// A seenError is an address that cannot be cleared: it is in use. seen
// is not empty.
type seenError struct{ seen []census.Sighting }

func (e *seenError) Error() string {
	s := e.seen[0]
	return fmt.Sprintf("clear %s: %v: the %s witness sees it%s", s.Addr, netdb.ErrState, s.Witness, s.Where())
}

func (e *seenError) Unwrap() error { return netdb.ErrState }

// errTooLarge travels with 413.
var errTooLarge = field("body", "is larger than %d bytes", bodyBytes)

// A methodError is a method that the path does not have; it travels with 405.
type methodError struct{ method, path, allowed string }

func (e *methodError) Error() string {
	return fmt.Sprintf("method: %s knows %s, not %s", e.path, e.allowed, e.method)
}

func (e *methodError) Unwrap() error { return netdb.ErrInvalid }

// cancelled is what a call is counted as whose caller did not wait for the
// answer. It is no code of the API, as no caller waits for it.
const cancelled api.Code = "cancelled"

// fail answers with the error, and ends its journey: an internal one is
// logged here, and its text stays here.
func (s *Server) fail(c *call, err error) (observed api.Code) {
	code := codeOf(err)
	reply := &api.Error{Code: code, Message: err.Error(), Retryable: code.Retryable(),
		Details: details(err), Revision: s.cfg.Book.Rev(), Epoch: s.cfg.Book.Epoch()}
	if c.hungUp() && errors.Is(err, context.Canceled) {
		// It is answered all the same: one that closed its sending side only may read.
		s.cfg.Log.Debug("a caller hung up", "verb", c.end.Verb, "peer", c.peer.Name, "err", err)
		reply.Message = fmt.Sprintf("%s: the caller hung up, or closed its sending side, before it was answered", c.end.Verb)
		defer func() { observed = cancelled }()
	}
	if code == api.Internal {
		s.cfg.Log.Error("a call failed", "verb", c.end.Verb, "err", err, "peer", c.peer.Name,
			"lease", c.lease, "addr", c.address, "sandbox", c.sandbox)
		reply.Message = fmt.Sprintf("%s: internal error; ipamd's log has it", c.end.Verb)
	}
	if busy := new(admission.BusyError); errors.As(err, &busy) {
		busy.RetryAfter(c.w.Header())
	}
	if c.unread {
		c.w.Header().Set("Connection", "close") // what it still sends is not read
	}
	s.encode(c, statusOf(c, err, code), reply)
	if c.unread {
		s.hangUp(c)
	}
	return code
}

func statusOf(c *call, err error, code api.Code) int {
	var method *methodError
	switch {
	case errors.Is(err, errTooLarge):
		return http.StatusRequestEntityTooLarge
	case errors.As(err, &method):
		return http.StatusMethodNotAllowed
	case code == api.StaleRevision && c.ifMatch:
		return http.StatusPreconditionFailed
	}
	return code.Status()
}

// details is what a program needs beside the code. A pool that ran out while
// addresses in use were skipped has both.
func details(err error) map[string]any {
	var (
		wrong     *netdb.FieldError
		stale     *netdb.StaleError
		method    *methodError
		denied    *deniedError
		conflict  *allocator.ConflictError
		evidence  *allocator.EvidenceError
		exhausted *netdb.ExhaustedError
		inUse     *seenError
		against   *contradictedError
		full      *fullError
		busy      *admission.BusyError
	)
	d := make(map[string]any)
	if errors.As(err, &wrong) {
		d["field"] = wrong.Field
	}
	if errors.As(err, &stale) {
		d["revision"], d["state"] = stale.Lease.Rev, stale.Lease.State
	}
	if errors.As(err, &method) {
		d["field"] = "method"
	}
	if errors.As(err, &denied) {
		d["role"] = denied.end.Least
	}
	if errors.As(err, &conflict) {
		d["addresses"] = skipped(conflict.Skipped)
	}
	if errors.As(err, &evidence) {
		d["silent"] = silences(evidence.Silent)
	}
	if errors.As(err, &inUse) {
		d["address"], d["evidence"] = inUse.seen[0].Addr.String(), sightings(inUse.seen)
	}
	if errors.As(err, &against) {
		d["address"], d["evidence"] = against.seen[0].Addr.String(), sightings(against.seen)
	}
	if errors.As(err, &busy) {
		d["limit"], d["most"], d["retry_after"] = busy.Limit, busy.Most, busy.After.String()
	}
	if errors.As(err, &full) && full.released != nil {
		d["released"] = full.released
	}
	if errors.As(err, &exhausted) {
		d["pool"], d["by_state"] = exhausted.Pool, byState(exhausted.ByState)
		if exhausted.Next > 0 {
			d["next_in"] = exhausted.Next.String()
		}
	}
	return d
}
