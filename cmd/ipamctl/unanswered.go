package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ipamd/ipamd/client"
)

// firstAnswer is how long a verb waits for the daemon's first sign of life.
// systemd keeps the socket open while no ipamd can start behind it, so that a call
// is taken and not answered.
const firstAnswer = 3 * time.Second

// An unanswered is a daemon that gives no sign of life. The verb was not sent: a
// daemon that starts later does not carry it out.
type unanswered struct {
	socket string
	after  time.Duration
}

func (u unanswered) Error() string {
	return fmt.Sprintf("ipamd does not answer: its socket %s is there, and for %s no daemon answered behind it", u.socket, u.after)
}

// answers returns an unanswered when the daemon gives no sign of life in time, and
// nil else: what else is wrong with it, the verb meets too.
func (c *ctl) answers(ctx context.Context, ipamd *client.Client) error {
	ask, after := ctx, c.timeout
	if c.first > 0 {
		var cancel context.CancelFunc
		ask, cancel = context.WithTimeout(ctx, c.first)
		defer cancel()
		after = min(after, c.first)
	}
	if _, err := ipamd.Healthy(ask); errors.Is(err, context.DeadlineExceeded) && !errors.Is(ctx.Err(), context.Canceled) {
		return unanswered{c.socket, after}
	}
	return nil
}
