package main

import (
	"context"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sync/errgroup"

	"github.com/ipamd/ipamd/internal/supervisor"
	"github.com/ipamd/ipamd/internal/upkeep"
	"github.com/ipamd/ipamd/reconciler"
)

// run serves, takes the first census, makes the first pass, and runs the loops
// until ctx ends or one of them cannot go on. The loops outlive the server:
// calls that are finished at the end need what the loops know.
func (p *program) run(ctx context.Context) error {
	apart, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	g, running := errgroup.WithContext(apart)
	serving, cut := context.WithCancel(apart)
	defer cut()
	context.AfterFunc(running, cut)
	g.Go(func() error {
		select {
		case <-ctx.Done():
		case <-serving.Done():
		}
		p.stopping.Store(true)
		supervisor.Notify(p.log, daemon.SdNotifyStopping, "STATUS=finishing what is under way")
		p.socket.Drain(serving)
		cut()
		return nil
	})
	g.Go(func() error {
		defer stop()
		return p.server.Serve(serving, p.socket)
	})
	loops := []func(context.Context) error{
		p.bridge.Run,
		p.follower.Run,
		p.repeats.Run,
		p.changes.Run,
		func(ctx context.Context) error { return upkeep.Retry(ctx, p.book, p.cfg.Book.Path, p.log) },
		func(ctx context.Context) error { return upkeep.Tidy(ctx, p.book, p.cfg.Book.Path, p.log) },
		p.socket.Run,
		func(ctx context.Context) error {
			later := []func(context.Context) error{p.allocator.Run, p.allocator.FreeCooled, p.watchdog.Run, p.flights.Run, p.warm.Run}
			shown := []func(context.Context) error{p.prover.Run, // to systemd, which waits for them
				func(ctx context.Context) error { return supervisor.Status(ctx, p.log, p.statusLine, p.stopping.Load) }}
			if err := p.book.CheckIdentity(); err != nil {
				for _, loop := range shown {
					g.Go(func() error { return loop(ctx) })
				}
				shown = nil
				p.log.Error("the book is another runner's: it is read, and nothing is done until it is adopted", "err", err, "next", "ipamctl book adopt")
				if p.adoption.Await(ctx) != nil {
					return nil
				}
			}
			if !p.count(ctx) {
				return nil
			}
			later = append(later, shown...)
			if p.catcher != nil {
				later = append(later, p.catcher.Run)
			}
			if p.idle != nil {
				later = append(later, p.idle.Run)
			}
			if p.sweeper != nil {
				later = append(later, p.sweeper.Run)
			}
			if p.reload != nil {
				later = append(later, func(ctx context.Context) error { return p.configured.Run(ctx, *p.reload) })
			}
			for _, loop := range later {
				g.Go(func() error { return loop(ctx) })
			}
			return p.reconciler.Run(ctx)
		},
	}
	if p.runtime != nil {
		loops = append(loops, p.runtime.Run)
	}
	if p.keeper != nil {
		loops = append(loops, p.keeper.Run, p.keeper.Listen)
	}
	if p.scrapes != nil {
		loops = append(loops, func(ctx context.Context) error {
			return p.scrapes.Serve(ctx, p.changes.Before(p.metrics.Handler()))
		})
	}
	for _, loop := range loops {
		g.Go(func() error { return loop(running) })
	}
	return g.Wait()
}

// count takes the first census and makes the first pass on it, before the
// first address is given: every witness is asked once, and what lives without
// a lease gets its lease back. A witness that cannot answer is silent from
// then on, which refuses what needs it; it does not keep the daemon from
// starting. It reports whether ctx lasted so long.
func (p *program) count(ctx context.Context) bool {
	if err := p.refresh(ctx); err != nil && ctx.Err() == nil {
		p.log.Warn("first census", "err", err)
	}
	p.startRules(ctx, p.log)
	report, err := p.reconciler.Pass(ctx, reconciler.Mode{})
	if ctx.Err() != nil {
		return false
	}
	if err != nil {
		p.log.Error("first pass", "err", err)
	}
	p.ready.SetCounted()
	seen, actions := 0, 0
	if report != nil {
		seen, actions = report.Seen, len(report.Actions)
	}
	took := time.Since(p.started).Round(time.Millisecond)
	if why := p.server.NotReady(); len(why) > 0 {
		p.log.Warn("started, and cannot allocate yet", "bridge", p.cfg.Bridge.Name, "seen", seen, "repairs", actions,
			"took", took, "reason", strings.Join(why, "; "), "next", "ipamctl doctor")
	} else {
		p.log.Info("ready to allocate", "socket", p.cfg.Socket.Path, "bridge", p.cfg.Bridge.Name, "seen", seen, "repairs", actions, "took", took)
	}
	return true
}
