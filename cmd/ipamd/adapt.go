package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/doctor"
	"github.com/ipamd/ipamd/gateways"
	"github.com/ipamd/ipamd/internal/supervisor"
	"github.com/ipamd/ipamd/metrics"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/readiness"
	"github.com/ipamd/ipamd/reconciler"
)

// measured counts what the allocator answers, from the first census on.
type measured struct {
	*allocator.Allocator
	metrics *metrics.Metrics
	ready   *readiness.Readiness
	pools   *gateways.Follower
	giveWay func(ctx context.Context, r allocator.Request, tries int, refusal error) error // nil: an address may have come free since
	// giveAddress has a warm slot that no sandbox has give up its address; false: none has it.
	giveAddress func(ctx context.Context, addr netip.Addr) (bool, error)
}

func (m measured) Ready(ctx context.Context, r *allocator.Request) ([]*netdb.Pool, error) {
	m.await(ctx)
	return m.Allocator.Ready(ctx, r)
}

// await returns when the first census is over and the bridges follow the pools.
func (m measured) await(ctx context.Context) {
	m.ready.Await(ctx)
	if !m.pools.Current() { // a pool that was just changed gives once its bridge follows
		_ = m.pools.Follow(ctx) // an error is what the gate says
	}
}

func (m measured) Allocate(ctx context.Context, r allocator.Request) (*allocator.Result, error) {
	began := time.Now()
	m.await(ctx)
	result, err := m.Allocator.Allocate(ctx, r)
	for tries := 0; errors.Is(err, netdb.ErrExhausted); tries++ {
		if err = m.giveWay(ctx, r, tries, err); err == nil {
			result, err = m.Allocator.Allocate(ctx, r)
		} else {
			break
		}
	}
	if r.Address.IsValid() && errors.Is(err, netdb.ErrTaken) {
		switch given, failed := m.giveAddress(ctx, r.Address); {
		case given:
			result, err = m.Allocator.Allocate(ctx, r)
		case failed != nil:
			err = fmt.Errorf("%w; %w", err, failed)
		}
	}
	if !errors.Is(err, context.Canceled) { // one that its caller gave up is neither given nor refused
		m.metrics.Allocated(result, err, time.Since(began))
	}
	return result, err
}

// reconcile makes a pass and reports it as the socket spells it.
func (p *program) reconcile(ctx context.Context, preview, confirm bool) (api.Report, error) {
	r, err := p.reconciler.Pass(ctx, reconciler.Mode{Preview: preview, Confirm: confirm})
	if err != nil {
		return api.Report{}, err
	}
	return doctor.Report(r), nil
}

func (p *program) lastPass() *api.Report {
	if !p.ready.Counted() {
		return nil
	}
	last := p.reconciler.Last()
	if last == nil {
		return nil
	}
	r := doctor.Report(last)
	return &r
}

// notReady is what socket and parts add to the reasons why addresses cannot be given.
func (p *program) notReady() (why []string) {
	if err := p.socket.Err(); err != nil {
		why = append(why, err.Error())
	}
	return append(why, p.prover.Silent()...)
}

// bridgeStatus describes the bridges, the daemon's own first.
func (p *program) bridgeStatus() (out []api.BridgeStatus) {
	for _, s := range p.bridge.Statuses() {
		b := api.BridgeStatus{Name: s.Name, Ready: s.Ready, Reason: s.Reason, Managed: s.Managed, Ports: s.Ports, MAC: s.MAC, MTU: s.MTU}
		for _, g := range s.Gaps[:min(len(s.Gaps), api.MostGaps)] {
			b.Gaps = append(b.Gaps, g.Detail)
		}
		out = append(out, b)
	}
	return out
}

func (p *program) confirmOrphans(set string) error {
	if p.sweeper == nil {
		return errors.New("no owner is configured, so there are no orphans")
	}
	return p.sweeper.Confirm(set)
}

// status keeps systemd's status line current. It starts after the first pass.
func (p *program) status(ctx context.Context) error {
	return supervisor.Status(ctx, p.log, p.statusLine, p.stopping.Load)
}

func (p *program) statusLine() string {
	usage, _ := p.book.Usage()
	return readiness.Line(p.server.NotReady(), usage)
}
