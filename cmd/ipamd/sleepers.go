package main

import (
	"context"
	"fmt"
	"time"

	"github.com/ipamd/ipamd/wake"
	"github.com/ipamd/ipamd/wake/catch"
	"github.com/ipamd/ipamd/wake/hook"
	"github.com/ipamd/ipamd/wake/idle"
	"github.com/ipamd/ipamd/wake/tasks"
)

// The sleepers are what pauses sandboxes and wakes them.
type sleepers struct {
	flights          *wake.Flights
	catcher          *catch.Catcher // nil where the kernel lacks what it takes
	trafficUnwatched func() error   // why traffic wakes no sandbox just now
	idle             *idle.Watcher  // nil while idle.after is 0
}

// openFlights opens what has paused sandboxes woken.
func (p *program) openFlights(ctx context.Context) (err error) {
	cfg := wake.Config{Book: p.book, Wait: time.Duration(p.cfg.Wake.Wait), Counts: p.cfg.Idle.After > 0, Log: p.log, OnEnd: p.metrics.Woken}
	switch p.cfg.Wake.Resumer {
	case "containerd":
		cfg.Resumer, cfg.FreezeOnly = &tasks.Tasks{Runtime: p.runtime, Leases: p.book.Leases}, true
	case "exec":
		run := hook.Command(p.cfg.Wake.Command)
		if err := run.Check(); err != nil {
			return fmt.Errorf("wake.command: %w", err)
		}
		cfg.Resumer = run
	}
	if p.flights, err = wake.New(cfg); err != nil {
		return err
	}
	ignore, err := p.cfg.Idle.Prefixes()
	if err != nil {
		return err
	}
	// A kernel without what it takes refuses policies of traffic, and nothing else.
	p.catcher, err = catch.Open(ctx, catch.Config{Book: p.book, Waker: p.flights, Ports: p.bridge, Ignore: ignore, Log: p.log})
	if err != nil {
		p.log.Warn("traffic wakes no sandbox", "err", err)
		p.flights.CatchBy(nil, err)
		p.trafficUnwatched = func() error { return err }
		return nil
	}
	p.trafficUnwatched = p.catcher.Unbound
	p.onClose(p.catcher.Close)
	p.flights.CatchBy(p.catcher, nil)
	return nil
}

// openIdle opens what looks at traffic. A kernel that cannot is an error: a configuration asks
// for it.
func (p *program) openIdle(ctx context.Context) (err error) {
	c := p.cfg.Idle
	if c.After == 0 {
		if err := p.bridge.Inside(func() error { _, err := idle.Remove(ctx); return err }); err != nil {
			p.log.Warn("the traffic table of an earlier daemon could not be removed", "err", err)
		}
		return nil
	}
	ignore, err := c.Prefixes()
	if err != nil {
		return err
	}
	p.idle, err = idle.Open(ctx, idle.Config{Book: p.book, Pauser: p.flights, Inside: p.bridge.Inside, After: time.Duration(c.After), Ignore: ignore, Log: p.log})
	if err != nil {
		return fmt.Errorf("idle.after: %w", err)
	}
	p.onClose(p.idle.Close)
	return nil
}
