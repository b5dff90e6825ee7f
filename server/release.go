package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/watchdog"
)

// longestWait is how long a call may wait: for a confirmation, for a flight or for work.
const longestWait = 60 * time.Second

// patience is how long a caller waits for an answer.
func patience(text api.Duration) (time.Duration, error) {
	wait, err := duration("wait", text)
	if err == nil && wait > longestWait {
		err = field("wait", "%q is longer than %v", text, longestWait)
	}
	return wait, err
}

// release answers 200 when the address cools or is free, and 202 with the
// blockers while the removal is not confirmed.
func (h *leases) release(c *call) (int, any, error) {
	id, err := c.id()
	if err != nil {
		return 0, nil, err
	}
	var ask api.ReleaseRequest
	if err := c.body(&ask); err != nil {
		return 0, nil, err
	}
	wait, err := patience(ask.Wait)
	if err != nil {
		return 0, nil, err
	}
	ifRev, err := c.seenAt(ask.IfRevision)
	if err != nil {
		return 0, nil, err
	}
	if l, err := h.book.Lease(id); err == nil && l.State.Open() { // one that ends already is a success
		if err := h.ofSandbox(id); err != nil {
			return 0, nil, err
		}
	}
	l, blockers, err := h.beginRelease(c, id, ask.UID, ifRev)
	if err != nil {
		return 0, nil, err
	}
	if wait > 0 && l.State == ipam.Releasing {
		if l, blockers, err = h.waitConfirmed(c, l, ask.UID, wait); err != nil {
			return 0, nil, err
		}
	}
	c.address = l.Addr.String()
	if l.State == ipam.Releasing {
		return http.StatusAccepted, h.leaseReply(c, l, blockers), nil
	}
	return http.StatusOK, h.leaseReply(c, l, nil), nil
}

func (h *leases) beginRelease(c *call, id, uid string, ifRev int64) (*ipam.Lease, []watchdog.Blocker, error) {
	return h.releaser.Release(c.ctx, c.who(ipam.ByClient, "released"), id, uid, ifRev)
}

// waitConfirmed looks again when the lease is no longer releasing, or the wait is
// over, or the daemon stops.
func (h *leases) waitConfirmed(c *call, l *ipam.Lease, uid string, wait time.Duration) (*ipam.Lease, []watchdog.Blocker, error) {
	c.endSlot()
	err := h.confirmed(c, l.ID, wait)
	if err == nil {
		err = c.takeSlot()
	}
	var now *ipam.Lease
	var blockers []watchdog.Blocker
	if err == nil {
		now, blockers, err = h.beginRelease(c, l.ID, uid, l.Rev)
	}
	if errors.Is(err, ipam.ErrGone) {
		// Confirmed, and the address has its next owner already.
		over := *l
		over.State = ipam.Free
		return &over, nil, nil
	}
	return now, blockers, err
}

// confirmed waits. It is an error when the lease has ended and when the peer
// hangs up.
func (h *leases) confirmed(c *call, id string, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(c.r.Context(), wait)
	defer cancel()
	for {
		changed := h.book.Touched(ipam.Releasing)
		if l, err := h.book.Lease(id); err != nil || l.State != ipam.Releasing {
			return err
		}
		select {
		case <-changed:
		case <-c.draining():
			return nil
		case <-ctx.Done():
			return c.r.Context().Err()
		}
	}
}
