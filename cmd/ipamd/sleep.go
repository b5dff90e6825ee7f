package main

import (
	"context"
	"time"

	"github.com/ipamd/ipamd/wake"
)

// openFlights opens what has paused sandboxes woken.
func (p *program) openFlights(context.Context) (err error) {
	p.flights, err = wake.New(wake.Config{Book: p.book, Wait: time.Duration(p.cfg.Wake.Wait), Log: p.log})
	return err
}
