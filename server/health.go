package server

import (
	"context"
	"net/http"
	"time"

	"github.com/ipamd/ipamd/api"
)

func (h *daemon) doctor(c *call) (int, any, error) { return c.read(h.doctors) }

func (h *daemon) diagnose(ctx context.Context) (any, error) {
	found := h.examine(ctx)
	if err := ctx.Err(); err != nil {
		return nil, err // half a diagnosis reads as health
	}
	if found == nil {
		found = []api.Finding{}
	}
	return &api.DoctorReply{Findings: found, Revision: h.book.Rev(), Epoch: h.book.Epoch()}, nil
}

func (h *daemon) version(c *call) (int, any, error) {
	return http.StatusOK, &h.build, nil
}

// health answers that the daemon answers.
func (h *daemon) health(c *call) (int, any, error) {
	return http.StatusOK, &api.Health{Status: "ok"}, nil
}

// ready answers 503 with every reason why an allocation cannot succeed.
func (h *daemon) ready(c *call) (int, any, error) {
	if why := h.notReady(); len(why) > 0 {
		return http.StatusServiceUnavailable, &api.Health{Status: "unavailable", Reasons: why}, nil
	}
	return http.StatusOK, &api.Health{Status: "ok"}, nil
}

// NotReady lists every reason why an allocation cannot succeed now, a sentence
// each; none means ready. It is what /readyz and the status say, and safe for
// concurrent use.
func (s *Server) NotReady() []string { return s.daemon.notReady() }

func (h *daemon) notReady() []string {
	why := h.lacking()
	usage, _ := h.book.Usage()
	full, gives := 0, false
	for _, u := range usage {
		if exhausted, _ := h.exhausted(u.Pool.UID); exhausted {
			full++
		} else {
			gives = gives || h.unready(&u.Pool) == nil
		}
	}
	switch {
	case full == 0 || gives:
		return why
	case full == len(usage):
		return append(why[:len(why):len(why)], "every pool is exhausted")
	default:
		return append(why[:len(why):len(why)], "every pool is exhausted, or its bridge is not ready")
	}
}

// Exhausted reports that a pool has no address to give now: none that was never
// given, and none that has cooled for long enough. next is how long until one has
// cooled, 0 when none cools.
func (s *Server) Exhausted(poolUID string) (is bool, next time.Duration) {
	return s.daemon.exhausted(poolUID)
}

func (h *view) exhausted(poolUID string) (is bool, next time.Duration) {
	n, next := h.available(poolUID)
	return n == 0, next
}

func (h *daemon) metrics(c *call) (int, any, error) {
	leave, err := c.heavy(c.ctx)
	if err != nil {
		return 0, nil, err
	}
	defer leave()
	c.setWriteDeadline(writeTime)
	h.scrape.ServeHTTP(c.w, c.r)
	return 0, nil, nil
}
