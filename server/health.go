package server

import (
	"net/http"

	"github.com/ipamd/ipamd/api"
)

func (s *Server) pools(c *call) (int, any, error) {
	if err := c.plain(); err != nil {
		return 0, nil, err
	}
	all, rev := s.poolList()
	return http.StatusOK, &api.PoolList{Pools: all, Revision: rev, Epoch: s.cfg.Book.Epoch()}, nil
}

func (s *Server) poolList() ([]api.Pool, int64) {
	usage, rev := s.cfg.Book.Usage()
	out := make([]api.Pool, len(usage))
	for i, u := range usage {
		out[i] = pool(u)
	}
	return out, rev
}

func (s *Server) doctor(c *call) (int, any, error) {
	if err := c.plain(); err != nil {
		return 0, nil, err
	}
	ctx, cancel := c.context(s)
	defer cancel()
	found := s.cfg.Doctor(ctx)
	if err := ctx.Err(); err != nil {
		return 0, nil, err // half a diagnosis reads as health
	}
	if found == nil {
		found = []api.Finding{}
	}
	return http.StatusOK, &api.DoctorReply{Findings: found,
		Revision: s.cfg.Book.Rev(), Epoch: s.cfg.Book.Epoch()}, nil
}

func (s *Server) version(c *call) (int, any, error) {
	if err := c.plain(); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, &s.cfg.Version, nil
}

// health answers that the daemon answers.
func (s *Server) health(c *call) (int, any, error) {
	if err := c.plain(); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, &api.Health{Status: "ok"}, nil
}

// ready answers 503 with every reason why an allocation cannot succeed.
func (s *Server) ready(c *call) (int, any, error) {
	if err := c.plain(); err != nil {
		return 0, nil, err
	}
	if why := s.notReady(); len(why) > 0 {
		return http.StatusServiceUnavailable, &api.Health{Status: "unavailable", Reasons: why}, nil
	}
	return http.StatusOK, &api.Health{Status: "ok"}, nil
}

func (s *Server) notReady() []string {
	why := s.cfg.NotReady()
	if s.exhausted() {
		why = append(why[:len(why):len(why)], "every pool is exhausted")
	}
	return why
}

// exhausted reports that no pool has an address to give now.
func (s *Server) exhausted() bool {
	policy := s.cfg.Policy
	if policy.Strict {
		policy.CooldownMin = policy.Cooldown // Upcoming looks ahead of strictness
	}
	usage, _ := s.cfg.Book.Usage()
	for _, u := range usage {
		if len(s.cfg.Book.Upcoming(u.Pool.UID, 1, policy)) > 0 {
			return false
		}
	}
	return len(usage) > 0
}

func (s *Server) metrics(c *call) (int, any, error) {
	if err := c.plain(); err != nil {
		return 0, nil, err
	}
	s.bound(c)
	s.cfg.Metrics.ServeHTTP(c.w, c.r)
	return 0, nil, nil
}
