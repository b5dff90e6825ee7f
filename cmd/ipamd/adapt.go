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

func (m measured) Ready(ctx context.Context, r *allocator.Request) (pools []*netdb.Pool, err error) {
	err = m.follow(ctx, func() (err error) { pools, err = m.Allocator.Ready(ctx, r); return err })
	return pools, err
}

// follow calls do when the first census is over and the bridges follow the pools, and again where
// do met a bridge that did not follow a pool which was changed meanwhile.
func (m measured) follow(ctx context.Context, do func() error) error {
	m.ready.Await(ctx)
	for {
		changed := m.pools.Book.PoolsChanged()
		if !m.pools.Current() { // a pool that was just changed gives once its bridge follows
			_ = m.pools.Follow(ctx) // an error is what the gate says
		}
		err := do()
		if !errors.Is(err, allocator.ErrBridge) || ctx.Err() != nil {
			return err
		}
		select {
		case <-changed:
		default:
			return err
		}
	}
}

// allocate is Allocate of the allocator, on bridges that follow.
func (m measured) allocate(ctx context.Context, r allocator.Request) (result *allocator.Result, err error) {
	err = m.follow(ctx, func() (err error) { result, err = m.Allocator.Allocate(ctx, r); return err })
	return result, err
}

func (m measured) Allocate(ctx context.Context, r allocator.Request) (*allocator.Result, error) {
	began := time.Now()
	result, err := m.allocate(ctx, r)
	for tries := 0; errors.Is(err, netdb.ErrExhausted); tries++ {
		if err = m.giveWay(ctx, r, tries, err); err == nil {
			result, err = m.allocate(ctx, r)
		} else {
			break
		}
	}
	if r.Address.IsValid() && errors.Is(err, netdb.ErrTaken) {
		switch given, failed := m.giveAddress(ctx, r.Address); {
		case given:
			result, err = m.allocate(ctx, r)
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

// lastPass is nil before the first one.
func (p *program) lastPass() *api.Report {
	if last := p.reconciler.Last(); last != nil && p.ready.Counted() {
		r := doctor.Report(last)
		return &r
	}
	return nil
}

// notReady is what socket and parts add to the reasons why addresses cannot be given.
func (p *program) notReady() (why []string) {
	if err := p.socket.Err(); err != nil {
		why = append(why, err.Error())
	}
	return append(why, p.prover.Silent()...)
}

// status keeps systemd's status line current. It starts after the first pass.
func (p *program) status(ctx context.Context) error {
	return supervisor.Status(ctx, p.log, p.statusLine, p.stopping.Load)
}

func (p *program) statusLine() string {
	usage, _ := p.book.Usage()
	return readiness.Line(p.server.NotReady(), usage)
}
