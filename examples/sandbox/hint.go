package main

import (
	"context"
	"errors"

	"github.com/ipamd/ipamd/client"
)

// hint is what to do next after an error, or "". A refusal of ipamd is known
// by its class, never by its text.
func hint(err error) string {
	for _, h := range []struct {
		class error
		next  string
	}{
		{client.ErrNotRunning, "start ipamd (systemctl start ipamd), or name its socket: --socket"},
		{client.ErrPermissionDenied, "be root, or a user whom ipamd's configuration lists as a runtime"},
		{client.ErrPoolExhausted, "make room: sandbox ps, sandbox rm NAME; what fills the pool: ipamctl map"},
		{client.ErrConflictLimit, "strangers are on these addresses: ipamctl quarantine ls"},
		{client.ErrEvidenceUnavailable, "try again; which witness is silent, and why: ipamctl status"},
		{client.ErrBridgeNotReady, "try again; what is wrong with the bridge: ipamctl status"},
		{client.ErrNotReady, "try again; what ipamd is waiting for: ipamctl status"},
		{client.ErrIdentityMismatch, "the book is another machine's: ipamctl status"},
		{client.ErrBookReadonly, "ipamd cannot write its book: ipamctl status"},
		{client.ErrBookBusy, "try again; another process holds the lock of ipamd's book"},
		{client.ErrLeaseGone, "the lease was released meanwhile: ipamctl history; run it again"},
		{errExists, "remove it: sandbox rm NAME; what there is: sandbox ps"},
		{errUnknown, "what there is: sandbox ps"},
		{errHalf, "a run died half-way, or another is at it: sandbox rm NAME"},
		{context.DeadlineExceeded, "try again; a run or rm that was cut short goes on with: sandbox rm NAME"},
	} {
		if errors.Is(err, h.class) {
			return h.next
		}
	}
	return ""
}
