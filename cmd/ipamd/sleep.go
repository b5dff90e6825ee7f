package main

import (
	"context"
	"time"

	"github.com/ipamd/ipamd/wake"
	"github.com/ipamd/ipamd/wake/catch"
)

// openFlights opens what has paused sandboxes woken.
func (p *program) openFlights(context.Context) (err error) {
	p.flights, err = wake.New(wake.Config{Book: p.book, Wait: time.Duration(p.cfg.Wake.Wait), Log: p.log})
	if err != nil {
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
