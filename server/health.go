package server

import (
	"context"
	"net/http"
	"time"

	"github.com/ipamd/ipamd/api"
)

func (s *Server) doctor(c *call) (int, any, error) { return s.read(c, s.doctors) }

func (s *Server) diagnose(ctx context.Context) (any, error) {
	found := s.cfg.Doctor(ctx)
	if err := ctx.Err(); err != nil {
		return nil, err // half a diagnosis reads as health
	}
	if found == nil {
		found = []api.Finding{}
	}
	return &api.DoctorReply{Findings: found, Revision: s.cfg.Book.Rev(), Epoch: s.cfg.Book.Epoch()}, nil
}

func (s *Server) version(c *call) (int, any, error) {
	return http.StatusOK, &s.cfg.Version, nil
}

// health answers that the daemon answers.
func (s *Server) health(c *call) (int, any, error) {
	return http.StatusOK, &api.Health{Status: "ok"}, nil
}

// ready answers 503 with every reason why an allocation cannot succeed.
func (s *Server) ready(c *call) (int, any, error) {
	if why := s.NotReady(); len(why) > 0 {
		return http.StatusServiceUnavailable, &api.Health{Status: "unavailable", Reasons: why}, nil
	}
	return http.StatusOK, &api.Health{Status: "ok"}, nil
}

// NotReady lists every reason why an allocation cannot succeed now, a sentence
// each; none means ready. It is what /readyz and the status say, and safe for
// concurrent use.
func (s *Server) NotReady() []string {
	why := s.cfg.NotReady()
	usage, _ := s.cfg.Book.Usage()
	full, gives := 0, false
	for _, u := range usage {
		if exhausted, _ := s.Exhausted(u.Pool.UID); exhausted {
			full++
		} else {
			gives = gives || s.cfg.Unready(&u.Pool) == nil
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
// given, and none that has rested for long enough. next is how long until one has
// rested, 0 when none rests.
func (s *Server) Exhausted(poolUID string) (is bool, next time.Duration) {
	n, next := s.available(poolUID)
	return n == 0, next
}

func (s *Server) metrics(c *call) (int, any, error) {
	leave, err := s.heavy(c.ctx, c.peer.Holder)
	if err != nil {
		return 0, nil, err
	}
	defer leave()
	s.setWriteDeadline(c, writeTime)
	s.cfg.Metrics.ServeHTTP(c.w, c.r)
	return 0, nil, nil
}
