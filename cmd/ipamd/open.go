package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ipamd/ipamd/adoption"
	"github.com/ipamd/ipamd/allocation"
	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/binding"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/config/reload"
	"github.com/ipamd/ipamd/doctor"
	"github.com/ipamd/ipamd/internal/changelog"
	"github.com/ipamd/ipamd/internal/supervisor"
	"github.com/ipamd/ipamd/metrics"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/orphans"
	"github.com/ipamd/ipamd/readiness"
	"github.com/ipamd/ipamd/rebuild"
	"github.com/ipamd/ipamd/reconciler"
	"github.com/ipamd/ipamd/server"
	"github.com/ipamd/ipamd/server/admission"
	"github.com/ipamd/ipamd/server/socket"
	"github.com/ipamd/ipamd/watchdog"
	"github.com/ipamd/ipamd/watchdog/ctrd"
	"github.com/ipamd/ipamd/watchdog/owner"
)

func (p *program) socketAccess(context.Context) (err error) {
	c := p.cfg.Socket
	p.socketConfig = socket.Config{Path: c.Path, Given: p.given, Log: p.log}
	if p.socketConfig.Mode, err = c.FileMode(); err != nil {
		return err
	}
	if p.socketConfig.GID, err = c.GID(); err != nil {
		return fmt.Errorf("socket.group: %w", err)
	}
	return nil
}

func (p *program) listenForScrapes(context.Context) error {
	at, err := p.cfg.Metrics.AddrPort()
	if err != nil || !at.IsValid() {
		return err
	}
	if p.scrapes, err = metrics.Listen(at, p.log); err != nil {
		return err
	}
	p.onClose(p.scrapes.Close)
	return nil
}

// openOwnBook opens the book while no rebuild is at work beside it.
func (p *program) openOwnBook(ctx context.Context) error {
	lock, err := rebuild.Guard(p.cfg.Book.Path)
	if err != nil {
		return err
	}
	defer lock.Close()
	return p.openBook(ctx)
}

func (p *program) openBook(ctx context.Context) (err error) {
	p.metrics = metrics.New()
	opts := p.cfg.BookOptions()
	opts.OnCommit = p.metrics.Commit
	if p.book, err = netdb.Open(p.cfg.Book.Path, opts); err != nil {
		return err
	}
	p.onClose(p.book.Close)
	if why := p.book.Info().Restored; why != "" {
		p.log.Warn("the book is not the one that was closed here: it goes on in another epoch", "book", p.cfg.Book.Path, "reason", why, "epoch", p.book.Epoch())
	}
	if who := p.book.Info().Exposed; who != "" {
		p.log.Warn("others may change the book", "book", p.cfg.Book.Path, "who", who)
	}
	if err := p.book.Info().Clock; err != nil {
		p.log.Warn("the clocks say what cannot be: every wait counts from now", "book", p.cfg.Book.Path, "err", err)
	}
	p.changes = changelog.Follow(p.book, p.metrics.Change, p.log)
	p.onClose(func() error { p.changes.CatchUp(context.Background()); return nil })
	p.poolsBefore = p.book.Pools()
	p.configured = reload.New(p.cfg, reload.Config{Book: p.book, Missing: p.missingBridges, Log: p.log, Answers: p.repeats.Unfiltered(p.log)})
	if err := p.configured.Start(ctx); err != nil {
		return err
	}
	for _, u := range p.book.Info().Unreadable {
		p.log.Error("row of the book cannot be read; its address is not given", "row", u.Row, "reason", u.Reason)
	}
	return nil
}

func (p *program) openRuntime(context.Context) (err error) {
	c := p.cfg.Runtime
	if c.Kind == "none" {
		return nil
	}
	p.instance = watchdog.NewInstance(p.book, p.board, p.log)
	p.runtime, err = ctrd.New(ctrd.Config{
		Address: c.Address, Namespaces: c.Namespaces, Timeout: time.Duration(c.Timeout),
		OwnerLabel: c.OwnerLabel, AddressLabel: c.AddressLabel, LeaseLabel: c.LeaseLabel, UIDLabel: c.UIDLabel,
		Board: p.board, Log: p.log, Home: p.homes(), Met: p.instance.Meet, Has: p.instance.Has, Shown: p.instance.Shown,
	})
	if err != nil {
		return err
	}
	p.onClose(p.runtime.Close)
	return nil
}

// homes finds the network namespace of a process.
func (p *program) homes() func(context.Context, uint32) (census.Home, error) {
	if p.home != nil {
		return p.home
	}
	return p.bridge.Home
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

func (p *program) openWatchdog(context.Context) (err error) {
	c := p.cfg.Watchdog
	cfg := watchdog.Config{
		Book: p.cooling(), Board: p.board, Ports: p.bridge, PortsChanged: p.bridge.Changed, Settle: p.bridge.Settle,
		ReleasingMax: time.Duration(c.ReleasingMax), Timeout: time.Duration(c.Timeout), Parallel: c.Parallel,
		Now: p.book.Now, Log: p.log, OnConfirm: p.metrics.Confirmed,
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

func (p *program) openAllocator(context.Context) (err error) {
	c := p.cfg
	p.ready = readiness.New(readiness.Config{Book: p.book, Bridges: p.bridge, Board: p.board, RequireAll: c.Allocation.Require == "all", Also: p.notReady})
	p.allocator, err = allocator.New(allocator.Config{
		Book: p.book, Board: p.board, Prober: p.bridge, Settle: p.bridge.Settle, HasLink: p.bridge.HasLink, Gate: p.ready.Gate,
		Pool: c.Pools[0].Name, Policy: c.Allocation.Policy(), BindWithin: time.Duration(c.Allocation.BindWithin),
		MaxConflicts: c.Allocation.MaxConflicts, RequireAll: c.Allocation.Require == "all",
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
		Book: binding.Plugging{Book: binding.Asleep{Book: book, Seen: p.flights.Seen}, Kernel: p.bridge, Rules: p.rules()}, Board: p.board, Prober: p.bridge, Watchdog: p.watchdog,
		Refresh: p.refresh, Settle: p.bridge.Settle, Runtime: p.runtime != nil, Home: p.bridge.Home, Unplugged: binding.Unplugged(p.bridge), Sleep: p.book.Sleep, Owner: p.owner != nil,
		Misses: c.Misses, Age: time.Duration(c.Age), MaxReleases: c.MaxReleases, LeastReleases: c.LeastReleases,
		Quarantine: time.Duration(p.cfg.Allocation.Quarantine), Every: time.Duration(c.Every),
		Window: time.Duration(p.cfg.Probe.Window), Now: p.book.Now, Log: p.log, OnPass: p.passed,
	}
	if p.instance != nil {
		cfg.Instance = p.instance
	}
	p.reconciler, err = reconciler.New(cfg)
	return err
}

func (p *program) openServer(context.Context) (err error) {
	p.adoption = adoption.New(adoption.Config{Book: p.book, Board: p.board, Pools: p.configured.TakeOver, Log: p.log,
		Plan: func(ctx context.Context) (api.Report, error) { return p.reconcile(ctx, true, false) }})
	c := p.cfg.Socket
	p.prover = &supervisor.Prover{Every: p.proofEvery, Log: p.log, Parts: []supervisor.Part{
		{Name: "the book's writer", Ask: p.book.Ping},
		{Name: "the loop of passes", Ask: p.onceCounted(p.reconciler.Alive)},
		{Name: "the loop that confirms releases", Ask: p.onceCounted(p.watchdog.Alive)},
	}, Explain: func(err error) string {
		if errors.Is(err, netdb.ErrBusy) {
			return "another process holds the book's lock"
		}
		return ""
	}}
	examiner := &doctor.Doctor{Book: p.book, Board: p.board, Bridges: p.bridge, Unready: p.ready.Unready, Watchdog: p.watchdog, Reconciler: p.reconciler,
		Instance: p.instance, Sweeper: p.sweeper, Rules: p.keeper, Unwatched: p.flights.Unwatched, TrafficUnwatched: p.trafficUnwatched, Clock: p.clock, Started: p.started, Refused: p.configured.Refused}
	book := &binding.Book{Book: p.book, Runtime: p.runtime != nil, Kernel: p.bridge, Board: p.board, Watchdog: p.watchdog, Allocator: p.allocator, Rules: p.rules(), Log: p.log}
	cfg := server.Config{
		Book: book, Sleeper: p.flights, Releaser: p.watchdog, Witnesses: p.board, Compare: book.Compare, CheckNetns: book.CheckNetns,
		Desk: new(server.Desk), NetnsInode: p.bridge.Inode, SlotDesk: server.NewSlotDesk(), SlotProfile: p.slotProfile,
		Adoption: p.adoption, LastTraffic: p.idle.LastTraffic,
		NotReady: p.ready.Reasons, Bridges: examiner.BridgeStatus, Follow: p.follower.Follow, Unready: p.ready.Unready, MTU: p.bridge.MTU,
		Rules: p.showRules, Reconcile: p.reconcile, ConfirmOrphans: p.sweeper.Confirm, LastPass: p.lastPass,
		Doctor: examiner.Examine, Findings: examiner.Remembered, Metrics: p.changes.Before(p.metrics.Handler()), Observe: p.metrics.Request,
		Version: p.version, Started: p.started, Require: p.cfg.Allocation.Require, Policy: p.cfg.Allocation.Policy(),
		RuntimeUIDs: c.RuntimeUIDs, RuntimeGIDs: c.RuntimeGIDs,
		Deadline: time.Duration(c.Deadline), MaxConns: c.MaxConnections, Log: p.log,
		Limits: admission.Limits{InFlight: min(c.MaxInFlight, max(c.MaxConnections/2, 1)), Rate: c.MaxRate, ReaderRate: c.MaxReaderRate},
	}
	helper := server.NewSlotHelper(cfg)
	p.openWarm(helper)
	cfg.Slots, cfg.SlotsEnded, cfg.Vacate = p.warm.Shown, p.warm.Ended, p.warm.Vacate
	gives := allocation.New(allocation.Config{Gives: p.allocator, Slots: p.warm, Bridges: p.follower, Book: p.book,
		Pool: p.cfg.Pools[0].Name, Await: p.ready.Await, OnAnswer: p.metrics.Allocated})
	cfg.Allocator = binding.Giver{Allocates: gives, Book: book, Profile: p.slotProfile, Check: helper.Check, OnClaimed: p.metrics.SlotClaimed}
	if p.server, err = server.New(cfg); err != nil {
		return err
	}
	examiner.Exhausted = p.server.Exhausted
	if err := p.metrics.Follow(metrics.Daemon{Book: p.book, Board: p.board, Bridges: p.bridge, Unready: p.ready.Unready, Watchdog: p.watchdog, Reconciler: p.reconciler,
		Server: p.server, Rules: p.keeper, Flights: p.flights, Catcher: p.catcher, Idle: p.idle, Warm: p.warm, Version: p.version}); err != nil {
		return err
	}
	if p.socket, err = socket.Open(p.socketConfig); err != nil {
		return err
	}
	p.onClose(p.socket.Close)
	return nil
}
