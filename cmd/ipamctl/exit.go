package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/term"
)

// What ipamctl exits with. Scripts branch on these: a number never changes
// its meaning.
const (
	exitOK          = 0
	exitOther       = 1
	exitUsage       = 2
	exitGone        = 3
	exitConflict    = 4
	exitUnavailable = 5
	exitPermission  = 6
	exitNotRunning  = 7
	exitHeld        = 8
	exitInterrupted = 130
)

func exitCodesTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "What ipamctl's exit codes mean",
		Long: `ipamctl ends with a code that says what kind of answer it got:

    0  done
    1  doctor found something, or an error of no other class
    2  the command line, or an argument that the daemon refused
    3  not found, or the lease or the wanted history is gone
    4  the state does not allow it: taken, quarantined, stale, cancelled, or the
       book of another runner
    5  not now, a retry may help: exhausted, no evidence, not ready, read-only,
       busy, too many requests, out of time; a pass of reconcile that could not
       ask every witness; status of an ipamd that is not ready
    6  permission denied
    7  ipamd is not running
    8  reconcile held something back for a person, or a step of it failed
  130  interrupted

An error is one line on stderr and a hint; with -o json or yaml it is the
daemon's error object, on stderr too.`,
	}
}

// exitOf is the exit code of an error of the daemon. A code that this program
// does not know yet is classed by what the daemon says of a retry.
func exitOf(e *api.Error) int {
	switch {
	case e.Retryable || e.Code.Retryable():
		return exitUnavailable
	case e.Code == api.IdentityMismatch: // no retry helps: an operator must act
		return exitConflict
	}
	switch e.Code.Status() {
	case http.StatusBadRequest:
		return exitUsage
	case http.StatusForbidden:
		return exitPermission
	case http.StatusNotFound, http.StatusGone:
		return exitGone
	case http.StatusConflict:
		return exitConflict
	default:
		return exitOther
	}
}

// A usageError is a command line that makes no sense.
type usageError struct {
	message, hint string
	field         string // the argument that is wrong, as the socket calls it; may be empty
}

func (e usageError) Error() string { return e.message }

// An unconfirmed is a release that was recorded but is not confirmed yet.
type unconfirmed struct{ message, hint string }

func (e unconfirmed) Error() string { return e.message }

// An exitWith is an exit code whose reason the answer has already; there is
// nothing to add to it.
type exitWith int

func (e exitWith) Error() string { return fmt.Sprintf("the answer ends with %d", int(e)) }

// report ends the journey of an error: it writes it for the person, or the program,
// and returns the exit code.
func (c *ctl) report(ctx context.Context, err error) int {
	if err == nil {
		return exitOK
	}
	var (
		said exitWith
		code int
		hint string
		of   *api.Error
		use  usageError
		wait unconfirmed
	)
	if errors.As(err, &said) {
		return int(said)
	}
	if c.silent != nil && ctx.Err() == nil {
		err = c.silent
	}
	body := &api.Error{Code: api.Internal, Message: err.Error()}
	switch {
	case c.silent != nil && ctx.Err() == nil:
		body.Code, body.Retryable = api.DeadlineExceeded, true
		code, hint = exitOf(body), hintUnanswered
	case errors.As(err, &use):
		code, hint, body.Code = exitUsage, use.hint, api.InvalidArgument
		if use.field != "" {
			body.Details = map[string]any{"field": use.field}
		}
	case errors.As(err, &wait):
		code, hint, body.Code, body.Retryable = exitUnavailable, wait.hint, api.DeadlineExceeded, true
	case ctx.Err() != nil:
		code, hint, body.Code = exitInterrupted, "what was asked may have happened: ipamctl history", "interrupted"
	case errors.Is(err, client.ErrNotRunning):
		code, body.Code, body.Retryable = exitNotRunning, "not_running", true
		hint = "to start it: systemctl start ipamd.socket ipamd.service; what became of it: systemctl status ipamd; another socket: --socket or IPAMD_SOCKET"
	case errors.As(err, &of):
		body = of
		code, hint = exitOf(of), hintFor(of, c.about)
	case errors.Is(err, context.DeadlineExceeded):
		body.Code, body.Retryable = api.DeadlineExceeded, true
		code, hint = exitOf(body), hintSlow
	case errors.Is(err, fs.ErrPermission):
		body.Code = api.PermissionDenied
		code, hint = exitPermission, "try it with sudo; to let a user read: usermod -aG ipamd USER"
	default:
		code = exitOther
	}
	if !c.forPeople() {
		if term.Encode(c.err, c.format.value, body) == nil {
			return code
		}
	}
	fmt.Fprintf(c.err, "ipamctl: %s\n", term.Sentence(err.Error()))
	if hint != "" {
		fmt.Fprintf(c.err, "hint: %s\n", term.Sentence(hint))
	}
	return code
}
