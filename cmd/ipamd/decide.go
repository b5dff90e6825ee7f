package main

import (
	"context"
	"errors"
	"time"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/binding"
	"github.com/ipamd/ipamd/doctor"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/readiness"
	"github.com/ipamd/ipamd/reconciler"
	"github.com/ipamd/ipamd/server"
	"github.com/ipamd/ipamd/watchdog"
)

// The deciders give addresses, confirm that they are free, and compare the book with what is seen.
type deciders struct {
	writeThrough func(*netdb.Book) reconciler.Book // what the reconciler writes through; nil: the book itself. Tests set it.
	ready        *readiness.Readiness
	desk         *server.Desk // where helpers get ports to make
	slotDesk     *server.Desk // and warm slots
	allocator    *allocator.Allocator
	watchdog     *watchdog.Watchdog
	reconciler   *reconciler.Reconciler
}

func (p *program) openWatchdog(context.Context) (err error) {
	c := p.cfg.Watchdog
	p.desk, p.slotDesk = new(server.Desk), server.NewSlotDesk()
	cfg := watchdog.Config{
		Book: p.book, Board: p.board, Kernel: p.bridge, PortsChanged: p.bridge.Changed, Settle: p.bridge.Settle,
		ReleasingMax: time.Duration(c.ReleasingMax), Timeout: time.Duration(c.Timeout), Parallel: c.Parallel,
		Now: p.book.Now, Log: p.log, OnConfirm: p.metrics.Confirmed,
		Making: server.Making(p.desk, p.slotDesk),
	}
	if p.keeper != nil {
		cfg.Book = binding.ConfirmingBook{Book: p.book, Rules: p.keeper} // an address cools once no rule allows it
	}
	if p.runtime != nil {
		cfg.Runtime = p.runtime
	}
	if p.owner != nil {
		cfg.Owner = p.owner
	}
	p.watchdog, err = watchdog.New(cfg)
	return err
}

func (p *program) openAllocator(ctx context.Context) (err error) {
	c := p.cfg
	p.ready = readiness.New(readiness.Config{Book: p.book, Bridges: p.bridge, Board: p.board, RequireAll: c.Allocation.RequireAll(), Also: p.notReady, Stopping: ctx})
	p.allocator, err = allocator.New(allocator.Config{
		Book: p.book, Board: p.board, Prober: p.bridge, Settle: p.bridge.Settle, HasLink: p.bridge.HasLink, Gate: p.ready.Gate,
		Pool: c.Pools[0].Name, Policy: c.Allocation.Policy(), BindWithin: time.Duration(c.Allocation.BindWithin),
		MaxConflicts: c.Allocation.MaxConflicts, RequireAll: c.Allocation.RequireAll(),
		ProbeWindow: time.Duration(c.Probe.Window), ProbeAhead: c.Probe.Ahead,
		Log: p.log, OnConflict: p.metrics.Conflict,
		OnAnswer: p.watchdog.Answered,
	})
	return err
}

func (p *program) openReconciler(context.Context) error {
	if p.writeThrough != nil {
		return p.reconcileBy(p.writeThrough(p.book))
	}
	return p.reconcileBy(p.book)
}

// reconcileBy makes the reconciler, which writes through book.
func (p *program) reconcileBy(book reconciler.Book) (err error) {
	c := p.cfg.Reconcile
	cfg := reconciler.Config{
		Book: binding.ResolvingBook{Book: binding.PausingBook{Book: book, RecordSeen: p.flights.Seen}, Kernel: p.bridge, Rules: p.rules}, Board: p.board, Prober: p.bridge, Watchdog: p.watchdog,
		Refresh: p.refresh, Settle: p.bridge.Settle, Runtime: p.runtime != nil, Home: p.bridge.Home, UnrecordedPlumbing: binding.UnrecordedPlumbing(p.bridge), Beside: p.bridge.Beside, Sleep: p.book.Sleep,
		Misses: c.Misses, Age: time.Duration(c.Age), MaxReleases: c.MaxReleases, LeastReleases: c.LeastReleases,
		Quarantine: time.Duration(p.cfg.Allocation.Quarantine), Every: time.Duration(c.Every),
		Window: time.Duration(p.cfg.Probe.Window), Now: p.book.Now, Log: p.log,
		OnPass: func(r *reconciler.Report) { p.metrics.Pass(r); p.clock.Look(ipam.Now(), p.book.Leases) },
	}
	if p.instance != nil {
		cfg.Instance = p.instance
	}
	p.reconciler, err = reconciler.New(cfg)
	return err
}

// refresh reads kernel and runtime anew, both whatever becomes of the other.
func (p *program) refresh(ctx context.Context) error {
	err := p.bridge.Refresh(ctx)
	if p.runtime != nil {
		err = errors.Join(err, p.runtime.Refresh(ctx))
	}
	return err
}

// reconcile makes a pass and reports it as the socket spells it.
func (d *deciders) reconcile(ctx context.Context, preview, confirm bool) (api.Report, error) {
	r, err := d.reconciler.Pass(ctx, reconciler.Mode{Preview: preview, Confirm: confirm})
	if err != nil {
		return api.Report{}, err
	}
	return doctor.Report(r), nil
}

// lastPass is nil before the first one.
func (d *deciders) lastPass() *api.Report {
	if last := d.reconciler.Last(); last != nil && d.ready.Counted() {
		r := doctor.Report(last)
		return &r
	}
	return nil
}
