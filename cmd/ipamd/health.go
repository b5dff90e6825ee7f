package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/bridge"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/supervisor"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/orphans"
	"github.com/ipamd/ipamd/reconciler"
)

// gate is why the allocator may not give addresses; nil: it may.
func (p *program) gate() error {
	if err := p.book.Identity(); err != nil {
		return err
	}
	if !p.counted.Load() {
		return fmt.Errorf("%w: the first census is not done", allocator.ErrNotReady)
	}
	if err := p.bridge.Ready(); err != nil {
		return fmt.Errorf("%w: %s", allocator.ErrBridge, p.bridge.Status().Reason)
	}
	return nil
}

// notReady lists every reason why addresses cannot be given now, but that the
// pools are full: the server adds that, and [server.Server.NotReady] is whole.
func (p *program) notReady() []string {
	var why []string
	if err := p.gate(); err != nil {
		why = append(why, err.Error())
	}
	bridged := p.counted.Load() && p.bridge.Ready() == nil // else the kernel's witnesses have not looked, and the gate says why
	for _, s := range p.board.Silent() {
		if s.Witness.Kernel() && bridged || p.cfg.Allocation.Require == "all" {
			why = append(why, fmt.Sprintf("the %s witness cannot answer: %s", s.Witness, s.Reason))
		}
	}
	if err := p.book.Info().ReadOnly; err != nil {
		why = append(why, err.Error())
	}
	if err := p.socket.Err(); err != nil {
		why = append(why, err.Error())
	}
	return append(why, p.prover.Silent()...)
}

func (p *program) bridgeStatus() api.BridgeStatus {
	s := p.bridge.Status()
	out := api.BridgeStatus{Name: s.Name, Ready: s.Ready, Reason: s.Reason, Managed: s.Managed, Ports: s.Ports, MAC: s.MAC, MTU: s.MTU}
	for _, g := range s.Gaps[:min(len(s.Gaps), api.MostGaps)] {
		out.Gaps = append(out.Gaps, g.Detail)
	}
	return out
}

// doctor lists every finding, after the latest news of the kernel.
func (p *program) doctor(ctx context.Context) []api.Finding {
	// A failing Settle shows as silent witnesses in the census.
	return p.findings(func() { _ = p.bridge.Settle(ctx) })
}

// remembered lists every finding by what is in memory: a status does not wait
// for the kernel.
func (p *program) remembered() []api.Finding { return p.findings(func() {}) }

func (p *program) findings(settle func()) []api.Finding {
	info := p.book.Info()
	leases, _ := p.book.Leases() // book first, census second
	usage, _ := p.book.Usage()
	settle()
	now := p.book.Now()
	step, stepped := p.clock.Look(netdb.Now(), p.book.Leases)
	w := reconciler.World{
		Leases: leases, Usage: usage, Unreadable: info.Unreadable, Identity: p.book.Identity(), Clock: reconciler.Trouble{Err: info.Clock, Since: info.ClockSince}, Started: p.started,
		ReadOnly: reconciler.Trouble{Err: info.ReadOnly, Since: info.ReadOnlySince}, Unready: p.unready(), Gaps: p.bridge.Status().Gaps,
		Growing: reconciler.Trouble{Err: info.Growing, Since: info.GrowingSince}, Exposed: info.Exposed,
		Census: p.board.Census(), Runtime: p.runtime != nil, Place: p.book.Place,
		Blockers: p.blockers, ClockStep: step, ClockStepped: stepped,
		Exhausted: p.server.Exhausted, Now: now,
	}
	w.Orphans, w.HeldSet, w.OwnerUnclear = p.orphans()
	if p.instance != nil {
		if o := p.instance.Other(); o != nil {
			w.OtherRuntime = &reconciler.OtherRuntime{Known: o.Known, Met: o.Met, Since: o.Since}
		}
	}
	if last := p.reconciler.Last(); last != nil {
		w.Told, w.Held, w.Unseen, w.Passed = last.Findings, last.Held, last.AbsentSince, last.Started
	}
	out := findingsOf(reconciler.Diagnose(w))
	for _, pool := range p.unnamed {
		out = append(out, api.Finding{Kind: "pool_not_configured", Since: p.started, Mend: config.RepairUnnamed,
			Detail: fmt.Sprintf("pool %s, %s, is in the book and not in the configuration; it is kept as it was", pool.Name, pool.Prefix)})
	}
	return out
}

func (p *program) blockers(l *netdb.Lease) []string {
	var out []string
	for _, b := range p.watchdog.Blockers(l) {
		out = append(out, b.Detail)
	}
	return out
}

func (p *program) unready() reconciler.Trouble {
	var not *bridge.NotReadyError
	if err := p.bridge.Ready(); errors.As(err, &not) {
		return reconciler.Trouble{Err: err, Since: not.Since}
	}
	return reconciler.Trouble{}
}

func (p *program) confirmOrphans(set string) error {
	if p.sweeper == nil {
		return errors.New("no owner is configured, so there are no orphans")
	}
	return p.sweeper.Confirm(set)
}

// orphans returns them, the name of the set of those that are held, and why there may
// be others.
func (p *program) orphans() ([]reconciler.Orphan, string, reconciler.Trouble) {
	if p.sweeper == nil {
		return nil, "", reconciler.Trouble{}
	}
	var why reconciler.Trouble
	var unclear *orphans.UnclearError
	found, err := p.sweeper.Orphans()
	out := make([]reconciler.Orphan, len(found))
	for i, o := range found {
		out[i] = reconciler.Orphan{Sandbox: o.Sandbox, Detail: o.Detail(), Since: o.Since, Held: o.Held}
	}
	if errors.As(err, &unclear) {
		why = reconciler.Trouble{Err: err, Since: unclear.Since}
	}
	return out, orphans.HeldSet(found), why
}

// status keeps systemd's status line current. It starts after the first pass.
func (p *program) status(ctx context.Context) error {
	return supervisor.Status(ctx, p.log, p.statusLine, p.stopping.Load)
}

// statusLine is what `systemctl status ipamd` shows.
func (p *program) statusLine() string {
	if why := p.server.NotReady(); len(why) > 0 {
		return "STATUS=not ready: " + strings.ReplaceAll(strings.Join(why, "; "), "\n", " ")
	}
	usage, _ := p.book.Usage()
	pools := make([]string, len(usage))
	for i, u := range usage {
		held := 0
		for _, n := range u.ByState {
			held += n
		}
		pools[i] = fmt.Sprintf("%s %d of %d addresses", u.Pool.Prefix, held, u.Size)
	}
	return "STATUS=ready: " + strings.Join(pools, ", ")
}
