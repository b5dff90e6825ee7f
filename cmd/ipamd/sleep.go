package main

import (
	"context"
	"fmt"
	"time"

	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/wake"
	"github.com/ipamd/ipamd/wake/catch"
	"github.com/ipamd/ipamd/wake/hook"
	"github.com/ipamd/ipamd/wake/tasks"
)

// openFlights opens what has paused sandboxes woken.
func (p *program) openFlights(context.Context) (err error) {
	cfg := wake.Config{Book: p.book, Wait: time.Duration(p.cfg.Wake.Wait), Log: p.log}
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
	// A kernel without what it takes refuses policies of traffic, and nothing else.
	p.catcher, err = catch.Open(catch.Config{Book: p.book, Waker: p.flights, Ports: p.bridge, Log: p.log})
	if err != nil {
		p.log.Warn("traffic wakes no sandbox", "err", err)
		p.flights.CatchBy(nil, err)
		return nil
	}
	p.onClose(p.catcher.Close)
	p.flights.CatchBy(p.catcher, nil)
	return nil
}

// frozen says that a lease is recorded to be frozen.
func (p *program) frozen(id string) bool {
	s := p.book.Sleep(id)
	return s != nil && s.Mode == netdb.Freeze
}
