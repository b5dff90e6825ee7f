package server

import (
	"context"
	"os"
	"slices"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/netdb"
)

// statusLeases bounds each list of leases in a status, so that it stays one
// small answer on the worst day; the whole lists are a verb of their own.
const statusLeases = 16

func (s *Server) status(c *call) (int, any, error) { return s.read(c, s.statuses) }

func (s *Server) summarize(ctx context.Context) (any, error) {
	conflict, stands := s.lastConflict(ctx)
	info, why := s.cfg.Book.Info(), s.NotReady()
	leases, _ := s.cfg.Book.Leases()
	stuck, total := s.stuck(leases)
	all, rev := s.poolList()
	bridges := s.cfg.Bridges()
	reply := &api.Status{
		Ready: len(why) == 0, NotReady: why,
		Version: s.cfg.Version.Version, Commit: s.cfg.Version.Commit,
		Started: s.cfg.Started.UTC(), PID: os.Getpid(),
		Book: api.BookStatus{Path: info.Path, Bytes: info.Bytes, WALBytes: info.WALBytes,
			Synchronous: info.Synchronous, RunnerUID: info.RunnerUID},
		Bridge: bridges[0], Bridges: bridges, Pools: all, Silent: silences(s.cfg.Witnesses.Silent()),
		LastConflict: conflict, LastConflictStands: stands, LastPass: s.lastPass(),
		Stuck: stuck, StuckTotal: total, Quarantined: s.quarantinedLeases(leases), Findings: make(map[string]int),
		Allocation: "require " + s.cfg.Require, UnreadableRows: len(info.Unreadable), CommitP50: info.CommitP50, CommitP99: info.CommitP99,
		Plumb:    s.plumbStatus(),
		Revision: rev, Epoch: s.cfg.Book.Epoch(),
	}
	for _, f := range s.cfg.Findings() {
		reply.Findings[f.Kind] += max(f.Count, 1)
		if f.Conflict() && len(reply.Conflicts) < statusLeases {
			reply.Conflicts = append(reply.Conflicts, f)
		}
	}
	if info.ReadOnly != nil {
		reply.Book.ReadOnly = info.ReadOnly.Error()
	}
	if info.Growing != nil {
		reply.Book.Growing = info.Growing.Error()
	}
	reply.Book.Exposed = info.Exposed
	return reply, nil
}

// lastConflict is the newest quarantine that a conflict made, or the newest
// conflict on a held address, and whether it stands; what an operator or a rebuild
// quarantined is none. A history that cannot be read costs nothing else of a status.
func (s *Server) lastConflict(ctx context.Context) (last *api.Change, stands bool) {
	found, err := s.cfg.Book.LastConflict(ctx)
	if err != nil {
		s.cfg.Log.Warn("status without the last conflict", "err", err)
	}
	if found == nil {
		return nil, false
	}
	row, is := s.cfg.Book.At(found.Addr)
	stands = is && row.ID == found.LeaseID && (row.State == netdb.Quarantined || row.Conflict != nil)
	return &changes([]netdb.Change{*found})[0], stands
}

// stuck lists, longest wait first, the leases that ought to have moved on: a
// release that is not confirmed, with what keeps it, and a reservation that
// no client bound in time. total counts those that the list has no room for, too.
func (s *Server) stuck(all []*netdb.Lease) (list []api.Stuck, total int) {
	now := s.cfg.Book.Now()
	var waiting []*netdb.Lease
	for _, l := range all {
		if l.Stuck(now) {
			waiting = append(waiting, l)
		}
	}
	// The revision of a lease's last move orders the moves across reboots.
	slices.SortFunc(waiting, func(a, b *netdb.Lease) int { return int(a.Rev - b.Rev) })
	for _, l := range waiting[:min(len(waiting), statusLeases)] {
		one := api.Stuck{Lease: s.shown(l)}
		if l.State == netdb.Releasing {
			one.Blockers = blockersOf(s.cfg.Releaser.Blockers(l))
		}
		list = append(list, one)
	}
	return list, len(waiting)
}

// quarantinedLeases lists the addresses that are quarantined, the newest first.
func (s *Server) quarantinedLeases(all []*netdb.Lease) (list []api.Lease) {
	var found []*netdb.Lease
	for _, l := range all {
		if l.State == netdb.Quarantined {
			found = append(found, l)
		}
	}
	slices.SortFunc(found, func(a, b *netdb.Lease) int { return int(b.Rev - a.Rev) })
	for _, l := range found[:min(len(found), statusLeases)] {
		list = append(list, s.shown(l))
	}
	return list
}
