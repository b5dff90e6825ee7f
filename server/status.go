package server

import (
	"context"
	"os"
	"slices"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/ipam"
)

// statusLeases bounds each list of leases in a status, so that it stays one
// small answer on the worst day; the whole lists are a verb of their own.
const statusLeases = 16

func (h *daemon) status(c *call) (int, any, error) { return c.read(h.statuses) }

func (h *daemon) summarize(ctx context.Context) (any, error) {
	conflict, stands := h.lastConflict(ctx)
	info, why := h.book.Info(), h.notReady()
	leases, _ := h.book.Leases()
	stuck, total := h.stuck(leases)
	all, rev := h.poolList()
	bridges := h.bridges()
	reply := &api.Status{
		Ready: len(why) == 0, NotReady: why,
		Version: h.build.Version, Commit: h.build.Commit,
		Started: h.started.UTC(), PID: os.Getpid(),
		Book: api.BookStatus{Path: info.Path, Bytes: info.Bytes, WALBytes: info.WALBytes,
			Synchronous: info.Synchronous, RunnerUID: info.RunnerUID},
		Bridge: bridges[0], Bridges: bridges, Pools: all, Silent: silences(h.witnesses.Silent()),
		LastConflict: conflict, LastConflictStands: stands, LastPass: h.lastPass(),
		Stuck: stuck, StuckTotal: total, Quarantined: h.quarantinedLeases(leases), Findings: make(map[string]int),
		Allocation: "require " + h.require, UnreadableRows: len(info.Unreadable), CommitP50: info.CommitP50, CommitP99: info.CommitP99,
		Plumb:    h.ports.plumbStatus(),
		Revision: rev, Epoch: h.book.Epoch(),
	}
	for _, f := range h.findings() {
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
func (h *daemon) lastConflict(ctx context.Context) (last *api.Change, stands bool) {
	found, err := h.book.LastConflict(ctx)
	if err != nil && ctx.Err() == nil { // a client that hung up gets no status at all
		h.log.Warn("status without the last conflict", "err", err)
	}
	if found == nil {
		return nil, false
	}
	row, is := h.book.At(found.Addr)
	stands = is && row.ID == found.LeaseID && (row.State == ipam.Quarantined || row.Conflict != nil)
	return &changes([]ipam.Change{*found})[0], stands
}

// stuck lists, longest wait first, the leases that ought to have moved on: a
// release that is not confirmed, with what keeps it, and a reservation that
// no client bound in time. total counts those that the list has no room for, too.
func (h *daemon) stuck(all []*ipam.Lease) (list []api.Stuck, total int) {
	now := h.book.Now()
	var waiting []*ipam.Lease
	for _, l := range all {
		if l.Stuck(now) {
			waiting = append(waiting, l)
		}
	}
	// The revision of a lease's last move orders the moves across reboots.
	slices.SortFunc(waiting, func(a, b *ipam.Lease) int { return int(a.Rev - b.Rev) })
	for _, l := range waiting[:min(len(waiting), statusLeases)] {
		one := api.Stuck{Lease: h.shown(l)}
		if l.State == ipam.Releasing {
			one.Blockers = blockersOf(h.releaser.Blockers(l))
		}
		list = append(list, one)
	}
	return list, len(waiting)
}

// quarantinedLeases lists the addresses that are quarantined, the newest first.
func (h *daemon) quarantinedLeases(all []*ipam.Lease) (list []api.Lease) {
	var found []*ipam.Lease
	for _, l := range all {
		if l.State == ipam.Quarantined {
			found = append(found, l)
		}
	}
	slices.SortFunc(found, func(a, b *ipam.Lease) int { return int(b.Rev - a.Rev) })
	for _, l := range found[:min(len(found), statusLeases)] {
		list = append(list, h.shown(l))
	}
	return list
}
