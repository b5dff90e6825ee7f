package main

import (
	"context"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/orphans"
	"github.com/ipamd/ipamd/watchdog"
	"github.com/ipamd/ipamd/watchdog/ctrd"
	"github.com/ipamd/ipamd/watchdog/owner"
)

// The runtimes are those that know of containers and sandboxes.
type runtimes struct {
	home     func(context.Context, uint32) (census.Home, error) // of a process; nil: the bridge knows. Tests set it.
	runtime  *ctrd.Witness                                      // nil when there is none
	instance *watchdog.Instance                                 // nil without a runtime
	owner    *owner.Client                                      // nil when there is none
	sweeper  *orphans.Sweeper                                   // nil without an owner
}

func (p *program) openRuntime(context.Context) (err error) {
	c := p.cfg.Runtime
	if c.Kind == "none" {
		return nil
	}
	home := p.bridge.Home
	if p.home != nil {
		home = p.home
	}
	p.instance = watchdog.NewInstance(p.book, p.board, p.log)
	p.runtime, err = ctrd.New(ctrd.Config{
		Address: c.Address, Namespaces: c.Namespaces, Timeout: time.Duration(c.Timeout),
		OwnerLabel: c.OwnerLabel, AddressLabel: c.AddressLabel, LeaseLabel: c.LeaseLabel, UIDLabel: c.UIDLabel,
		Board: p.board, Log: p.log, Home: home, Met: p.instance.Meet, Has: p.instance.CheckNamespaces, Shown: p.instance.CheckContainers,
	})
	if err != nil {
		return err
	}
	p.onClose(p.runtime.Close)
	return nil
}

// openOwner asks for nothing yet: the runtime that answers may not be up.
func (p *program) openOwner(context.Context) (err error) {
	c := p.cfg.Owner
	if c.Socket == "" {
		return nil
	}
	if p.owner, err = owner.New(owner.Config{Socket: c.Socket, UIDs: c.UIDs, Timeout: time.Duration(c.Timeout), OnLookup: p.metrics.Lookup}); err != nil {
		return err
	}
	p.onClose(p.owner.Close)
	w := p.cfg.Watchdog
	p.sweeper, err = orphans.New(orphans.Config{
		Owner: p.owner, Runtime: p.runtime, Book: p.book, Board: p.board,
		Awaited: func(lease string) bool { return p.watchdog.Awaited(lease) }, // it is opened after this
		Every:   time.Duration(c.Every), Grace: time.Duration(c.Grace), Parallel: w.Parallel,
		Remove: w.RemoveOrphans, KillWait: time.Duration(w.KillWait), Timeout: time.Duration(w.Timeout), Now: p.book.Now, Log: p.log,
	})
	return err
}
