package client

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ipamd/ipamd/api"
)

// A class is a sentinel for [errors.Is]: one for each [api.Code].
type class api.Code

func (c class) Error() string { return string(c) }

// The classes of refusals. See [api.Code] for what each means.
const (
	ErrInvalidArgument     = class(api.InvalidArgument)
	ErrPermissionDenied    = class(api.PermissionDenied) // also when the socket cannot be opened
	ErrNotFound            = class(api.NotFound)
	ErrLeaseGone           = class(api.LeaseGone)
	ErrStaleRevision       = class(api.StaleRevision)
	ErrAttemptCancelled    = class(api.AttemptCancelled)
	ErrAddressTaken        = class(api.AddressTaken)
	ErrAddressQuarantined  = class(api.AddressQuarantined)
	ErrNameTaken           = class(api.NameTaken)
	ErrNotInPool           = class(api.NotInPool)
	ErrPoolOverlap         = class(api.PoolOverlap)
	ErrPoolNotEmpty        = class(api.PoolNotEmpty)
	ErrStaleGeneration     = class(api.StaleGeneration)
	ErrStateNotAllowed     = class(api.StateNotAllowed)
	ErrPoolExhausted       = class(api.PoolExhausted)
	ErrConflictLimit       = class(api.ConflictLimit)
	ErrEvidenceUnavailable = class(api.EvidenceUnavailable)
	ErrBridgeNotReady      = class(api.BridgeNotReady)
	ErrNotReady            = class(api.NotReady)
	ErrIdentityMismatch    = class(api.IdentityMismatch)
	ErrBookReadonly        = class(api.BookReadonly)
	ErrBookBusy            = class(api.BookBusy)
	ErrWakeTimeout         = class(api.WakeTimeout) // ask again
	ErrWakeRefused         = class(api.WakeRefused)
	ErrNoWarmSlot          = class(api.NoWarmSlot)
	ErrTooManyRequests     = class(api.TooManyRequests)
	ErrCompacted           = class(api.Compacted)
	ErrDeadlineExceeded    = class(api.DeadlineExceeded) // the daemon's; the caller's own is context.DeadlineExceeded
	ErrInternal            = class(api.Internal)
)

// ErrNotRunning means that nothing listens on the socket.
const ErrNotRunning = class("not_running")

// A failure is a call that was not a success: what was asked, in words, the
// class, and what is below it.
type failure struct {
	doing string
	class class
	below error         // *api.Error, or what the transport says
	text  string        // what is below, in words; "" where that says it well
	after time.Duration // the daemon's Retry-After; 0 without one
}

func (f *failure) Error() string {
	return f.doing + ": " + cmp.Or(f.text, f.said())
}

// said is the text below without the words that doing has: the daemon names
// the verb, and often the noun, as well.
func (f *failure) said() string {
	e := new(api.Error)
	if !errors.As(f.below, &e) {
		return f.below.Error()
	}
	verb, _, _ := strings.Cut(f.doing, " ")
	rest := strings.TrimPrefix(strings.TrimPrefix(e.Message, f.doing+": "), verb+" ")
	return (&api.Error{Code: e.Code, Message: rest}).Error()
}

func (f *failure) Unwrap() []error { return []error{f.class, f.below} }

// refusal reads the daemon's own error.
func refusal(doing string, resp *http.Response) error {
	said := new(api.Error)
	if err := read(doing, resp, said); err != nil || said.Code == "" {
		return &failure{doing: doing, class: ErrInternal,
			below: fmt.Errorf("the answer is %q without an error of ipamd's", resp.Status)}
	}
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // absent: 0
	return &failure{doing: doing, class: class(said.Code), below: said, after: time.Duration(seconds) * time.Second}
}

// explain says what a call that never reached a daemon means.
func (c *Client) explain(doing string, err error) error {
	if wrapped := new(url.Error); errors.As(err, &wrapped) {
		err = wrapped.Err // its own text names a URL that was not dialled
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return &failure{doing: doing, class: ErrNotRunning, below: err,
			text: "nothing listens on " + c.socket() + "; is ipamd running?"}
	case errors.Is(err, fs.ErrPermission):
		return &failure{doing: doing, class: ErrPermissionDenied, below: err,
			text: "permission denied on " + c.socket() + "; root may open it, and its group, by default ipamd"}
	}
	return fmt.Errorf("%s: %w", doing, err)
}
