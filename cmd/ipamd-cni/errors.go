package main

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client/answer"
)

// Codes of our own, as the protocol has them from 100 on.
const (
	codeRefused uint = 100 // the daemon refuses it: an address that is another's, a peer that may not
	codeLost    uint = 101 // CHECK: the book does not have what the runtime remembers
)

// soon are refusals that end with the daemon's start, or a moment later. A pool that is
// exhausted is none of them: an address comes back in minutes, and the runtime asks again.
var soon = []error{answer.NotRunning, answer.Class(api.NotReady), answer.Class(api.BridgeNotReady), answer.Class(api.EvidenceUnavailable),
	answer.Class(api.BookBusy), answer.Class(api.TooManyRequests)}

func anyOf(err error, classes []error) bool {
	for _, c := range classes {
		if errors.Is(err, c) {
			return true
		}
	}
	return false
}

// passes reports whether the same call may succeed later without a change of it.
func passes(err error) bool {
	if e := new(api.Error); errors.As(err, &e) {
		return e.Retryable
	}
	return anyOf(err, soon) || errors.Is(err, context.DeadlineExceeded) || broken(err)
}

// broken reports a reply that was lost: there was a connection, and no answer of the daemon's.
func broken(err error) bool {
	e := new(api.Error)
	return err != nil && !errors.As(err, &e) && !anyOf(err, []error{answer.Class(api.PermissionDenied), answer.Class(api.Internal)})
}

// patiently tries until it succeeds, until waiting does not help, or until the wait is over.
func patiently(ctx context.Context, wait time.Duration, try func(context.Context) error) error {
	end := time.Now().Add(wait)
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := try(ctx)
		left := time.Until(end)
		if err == nil || left <= 0 || ctx.Err() != nil || !anyOf(err, soon) && !broken(err) {
			return err
		}
		time.Sleep(min(pause, left))
	}
}

// refused is an error of the daemon as the protocol has it; nil for none.
func refused(c *config, err error) error {
	if err == nil {
		return nil
	}
	code := uint(types.ErrInternal)
	e := new(api.Error)
	switch {
	case passes(err):
		code = types.ErrTryAgainLater
	case errors.Is(err, answer.Class(api.InvalidArgument)) && errors.As(err, &e):
		return invalid(c, e)
	case errors.As(err, &e) && e.Code != api.Internal, errors.Is(err, answer.Class(api.PermissionDenied)):
		code = codeRefused
	}
	return types.NewError(code, err.Error(), "")
}

// invalid names the key, or the variable, that the daemon's field came from.
func invalid(c *config, e *api.Error) error {
	field, _ := e.Details["field"].(string)
	why, _ := e.Details["reason"].(string)
	switch field = strings.TrimPrefix(field, "bind."); field {
	case "pool", "family":
		return types.NewError(types.ErrInvalidNetworkConfig, c.key(field)+": "+cmp.Or(why, e.Message), "")
	case "address":
		return types.NewError(codeRefused, "the address that is wanted: "+e.Message, "")
	case "netns":
		return types.NewError(types.ErrInvalidNetNS, "CNI_NETNS: "+e.Message, "")
	case "sandbox", "uid":
		return types.NewError(types.ErrInvalidEnvironmentVariables, "CNI_CONTAINERID: "+e.Message, "")
	case "interface":
		return types.NewError(types.ErrInvalidEnvironmentVariables, "CNI_IFNAME: "+e.Message, "")
	}
	return types.NewError(types.ErrInvalidNetworkConfig, e.Message, "")
}
