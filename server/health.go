package server

import (
	"context"
	"net/http"
	"os"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/netdb"
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

func (s *Server) status(c *call) (int, any, error) {
	if err := c.plain(); err != nil {
		return 0, nil, err
	}
	ctx, cancel := c.context(s)
	defer cancel()
	conflict, err := s.lastConflict(ctx)
	if err != nil {
		return 0, nil, err
	}
	info, why := s.cfg.Book.Info(), s.notReady()
	all, rev := s.poolList()
	reply := &api.Status{
		Ready: len(why) == 0, NotReady: why,
		Version: s.cfg.Version.Version, Commit: s.cfg.Version.Commit,
		Started: s.cfg.Started.UTC(), PID: os.Getpid(),
		Book: api.BookStatus{Path: info.Path, Bytes: info.Bytes, WALBytes: info.WALBytes,
			Synchronous: info.Synchronous, RunnerUID: info.RunnerUID},
		Bridge: s.cfg.Bridge(), Pools: all, Silent: silences(s.cfg.Witnesses.Silent()), LastConflict: conflict, LastPass: s.lastPass(),
		Allocation: "require " + s.cfg.Require, UnreadableRows: len(info.Unreadable), CommitP50: info.CommitP50,
		Revision: rev, Epoch: s.cfg.Book.Epoch(),
	}
	if info.ReadOnly != nil {
		reply.Book.ReadOnly = info.ReadOnly.Error()
	}
	return http.StatusOK, reply, nil
}

// lastConflict is the newest quarantine that still stands.
func (s *Server) lastConflict(ctx context.Context) (*api.Change, error) {
	all, _ := s.cfg.Book.Leases()
	var newest *netdb.Lease
	for _, l := range all {
		if l.State == netdb.Quarantined && (newest == nil || l.Rev > newest.Rev) {
			newest = l
		}
	}
	if newest == nil {
		return nil, nil
	}
	past, err := s.cfg.Book.History(ctx, netdb.Query{LeaseID: newest.ID, Limit: whoisHistory})
	if err != nil {
		return nil, err
	}
	for _, c := range changes(past) {
		if c.To == api.Quarantined {
			return &c, nil
		}
	}
	return nil, nil
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
