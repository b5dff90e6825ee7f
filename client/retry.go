package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client/answer"
)

// The pauses between two tries: the first one, and the longest.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = 5 * time.Second
)

// Retry calls try until it succeeds, until waiting does not help, or until ctx
// ends: then its error wraps both ctx's and that of the last try. ctx should
// have a deadline, because a pool can be exhausted for hours.
//
// It waits for refusals that say so ([api.Error.Retryable]), for a daemon that
// is not running, and for a reply that was lost: every verb may be repeated.
// The pause begins at 50 ms, doubles up to 5 s, and is drawn from its upper half,
// so that the callers of a runner do not come all at once; a Retry-After of the
// daemon is waited for in full.
//
//	err := client.Retry(ctx, func(ctx context.Context) (err error) {
//		given, err = ipamd.Allocate(ctx, ask)
//		return err
//	})
func Retry(ctx context.Context, try func(context.Context) error) error {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := try(ctx)
		if err == nil || !retryable(err) {
			return err
		}
		wait := pause/2 + rand.N(pause/2)
		if f := new(answer.Failure); errors.As(err, &f) {
			wait = max(wait, f.After)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w, after: %w", context.Cause(ctx), err)
		case <-time.After(wait):
		}
	}
}

// retryable reports whether the same request may succeed later.
func retryable(err error) bool {
	if refused := new(api.Error); errors.As(err, &refused) {
		return refused.Retryable
	}
	for _, passes := range []error{ErrNotRunning, ErrNotReady, io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, passes) {
			return true
		}
	}
	return false
}
