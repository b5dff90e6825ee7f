package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sync/errgroup"

	"github.com/ipamd/ipamd/adoption"
	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/binding"
	"github.com/ipamd/ipamd/bridge"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/doctor"
	"github.com/ipamd/ipamd/enforce"
	"github.com/ipamd/ipamd/gateways"
	"github.com/ipamd/ipamd/internal/changelog"
	"github.com/ipamd/ipamd/internal/logging"
	"github.com/ipamd/ipamd/internal/supervisor"
	"github.com/ipamd/ipamd/internal/upkeep"
	"github.com/ipamd/ipamd/metrics"
	"github.com/ipamd/ipamd/migrations"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/orphans"
	"github.com/ipamd/ipamd/readiness"
	"github.com/ipamd/ipamd/rebuild"
	"github.com/ipamd/ipamd/reconciler"
	"github.com/ipamd/ipamd/server"
	"github.com/ipamd/ipamd/server/admission"
	"github.com/ipamd/ipamd/server/socket"
	"github.com/ipamd/ipamd/wake"
	"github.com/ipamd/ipamd/wake/catch"
	"github.com/ipamd/ipamd/wake/idle"
	"github.com/ipamd/ipamd/warm"
	"github.com/ipamd/ipamd/watchdog"
	"github.com/ipamd/ipamd/watchdog/ctrd"
	"github.com/ipamd/ipamd/watchdog/owner"
)

// A program is a daemon that is not running yet: its parts are opened in
// order by open, their loops run under run, and close closes them in reverse.
// Two of them in one process do not touch.
type program struct {
	cfg     config.Config
	log     *slog.Logger
	repeats *logging.Repeats // what log holds back

	version      api.VersionReply
	started      time.Time
	clock        *doctor.WallClock
	netns        string                                             // of the bridge; "" is the process's own. Tests set it.
	writeThrough func(*netdb.Book) reconciler.Book                  // what the reconciler writes through; nil: the book itself. Tests set it.
	home         func(context.Context, uint32) (census.Home, error) // of a process; nil: the bridge knows. Tests set it.

	configured atomic.Pointer[config.Config]        // whose pools the book has taken over last
	refused    atomic.Pointer[doctor.RefusedReload] // by the last reload; nil: it was taken over

	board      *census.Board
	metrics    *metrics.Metrics
	book       *netdb.Book
	adoption   *adoption.Adoption
	changes    *changelog.Follower
	bridge     *bridge.Group
	keeper     *enforce.Keeper    // nil while enforce.mode is off
	follower   *gateways.Follower // of the pools, by the bridges
	runtime    *ctrd.Witness      // nil when there is none
	instance   *watchdog.Instance // nil without a runtime
	allocator  *allocator.Allocator
	owner      *owner.Client    // nil when there is none
	sweeper    *orphans.Sweeper // nil without an owner
	watchdog   *watchdog.Watchdog
	flights    *wake.Flights
	catcher    *catch.Catcher // nil where the kernel lacks what it takes
	idle       *idle.Watcher  // nil while idle.after is 0
	reconciler *reconciler.Reconciler
	warm       *warm.Keeper
	server     *server.Server
	socket     *socket.Socket
	scrapes    *metrics.Listener // nil without metrics.listen

	given        []*os.File // by systemd: the socket, or nothing
	socketConfig socket.Config
	reload       *reload // nil when the configuration stays as it is

	ready    *readiness.Readiness
	stopping atomic.Bool // systemd knows
	closers  []func() error

	proofEvery time.Duration // between proofs that it is alive; tests shorten it
	prover     *supervisor.Prover
}

func newProgram(cfg config.Config, log *slog.Logger, version api.VersionReply) *program {
	version.Schema = migrations.Latest()
	quiet := new(logging.Repeats)
	return &program{cfg: cfg, log: slog.New(quiet.Handler(log.Handler())), repeats: quiet, version: version, started: time.Now(), clock: doctor.NewWallClock(netdb.Now()),
		proofEvery: supervisor.ProveEvery}
}

// open opens every part, the book first: nothing is touched on the bridge by
// a daemon that does not have its book. What this machine lacks for the
// socket is found before there is a book, and so is a rebuild that was cut.
func (p *program) open(ctx context.Context) error {
	return p.inOrder(ctx, p.socketAccess, p.listenForScrapes, p.openOwnBook, p.openBridge, p.openEnforce, p.openRuntime, p.openOwner, p.openWatchdog,
		p.openAllocator, p.openReconciler, p.openFlights, p.openIdle, p.openServer)
}

// inOrder takes steps one after the other. What was opened before an error is
// closed again.
func (p *program) inOrder(ctx context.Context, steps ...func(context.Context) error) error {
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return errors.Join(err, p.close())
		}
	}
	return nil
}

// close closes what is open, in reverse. rt0, its rules and the sandboxes
// stay.
func (p *program) close() error {
	var errs []error
	for i := len(p.closers) - 1; i >= 0; i-- {
		errs = append(errs, p.closers[i]())
	}
	p.closers = nil
	p.repeats.Flush()
	return errors.Join(errs...)
}

func (p *program) onClose(fn func() error) { p.closers = append(p.closers, fn) }

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
	cfg := p.cfg
	p.configured.Store(&cfg)
	// Another runner's book is read as it is: what is in the way says so to who adopts it.
	if err := p.ensurePools(ctx); err != nil && p.book.Identity() == nil {
		return err
	}
	p.reportPools(p.book.Unconfigured())
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
		Book: binding.Plugging{Book: turnedBook{book, p}, Kernel: p.bridge, Rules: p.rules()}, Board: p.board, Prober: p.bridge, Watchdog: p.watchdog,
		Refresh: p.refresh, Settle: p.bridge.Settle, Runtime: p.runtime != nil, Home: p.bridge.Home, Unplugged: binding.Unplugged(p.bridge), Frozen: p.frozen,
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

// passed takes note of a pass.
func (p *program) passed(r *reconciler.Report) {
	p.metrics.Pass(r)
	p.clock.Look(netdb.Now(), p.book.Leases)
}

// refresh reads kernel and runtime anew, both whatever becomes of the other.
func (p *program) refresh(ctx context.Context) error {
	err := p.bridge.Refresh(ctx)
	if p.runtime != nil {
		err = errors.Join(err, p.runtime.Refresh(ctx))
	}
	return err
}

// onceCounted asks a part whose loop begins behind the first pass.
func (p *program) onceCounted(ask func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if !p.ready.Counted() {
			return nil
		}
		return ask(ctx)
	}
}

func (p *program) openServer(context.Context) (err error) {
	p.adoption = adoption.New(adoption.Config{Book: p.book, Board: p.board, Pools: p.ensurePools, Log: p.log,
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
		Instance: p.instance, Sweeper: p.sweeper, Rules: p.keeper, Clock: p.clock, Started: p.started, Refused: p.refused.Load,
		Exhausted: func(pool string) (bool, time.Duration) { return p.server.Exhausted(pool) }} // it is made just below
	book := &binding.Book{Book: p.book, Runtime: p.runtime != nil, Kernel: p.bridge, Board: p.board, Watchdog: p.watchdog, Allocator: p.allocator, Rules: p.rules(), Log: p.log}
	p.server, err = server.New(server.Config{
		Book: book, Sleeper: p.flights, Releaser: p.watchdog, Witnesses: p.board, Compare: book.Compare, CheckNetns: book.CheckNetns,
		Allocator: binding.Giver{Allocates: measured{p.allocator, p.metrics, p.ready, p.follower, p.giveWay}, Book: book, Profile: p.cfg.SlotProfile(), OnClaimed: p.metrics.SlotClaimed},
		Desk:      new(server.Desk), NetnsInode: p.netnsInode, SlotDesk: server.NewSlotDesk(), Slots: p.slots, SlotProfile: p.cfg.SlotProfile(),
		SlotsEnded: func() func(string, *netdb.Pool) int { return p.warm.Ended() },
		Adoption:   p.adoption, LastTraffic: p.idle.LastTraffic,
		NotReady: p.ready.Reasons, Bridges: p.bridgeStatus, Follow: p.follower.Follow, Unready: p.ready.Unready, MTU: p.bridge.MTU,
		Rules: p.showRules, Reconcile: p.reconcile, ConfirmOrphans: p.confirmOrphans, LastPass: p.lastPass,
		Doctor: examiner.Examine, Findings: examiner.Remembered, Metrics: p.changes.Before(p.metrics.Handler()), Observe: p.metrics.Request,
		Version: p.version, Started: p.started, Require: p.cfg.Allocation.Require, Policy: p.cfg.Allocation.Policy(),
		RuntimeUIDs: c.RuntimeUIDs, RuntimeGIDs: c.RuntimeGIDs,
		Deadline: time.Duration(c.Deadline), MaxConns: c.MaxConnections, Log: p.log,
		Limits: admission.Limits{InFlight: min(c.MaxInFlight, max(c.MaxConnections/2, 1)), Rate: c.MaxRate, ReaderRate: c.MaxReaderRate},
	})
	if err != nil {
		return err
	}
	p.openWarm()
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
			later := []func(context.Context) error{p.allocator.Run, p.allocator.FreeRested, p.watchdog.Run, p.flights.Run, p.warm.Run}
			shown := []func(context.Context) error{p.prover.Run, p.status} // to systemd, which waits for them
			if err := p.book.Identity(); err != nil {
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
				later = append(later, p.reloads)
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
	p.startRules(ctx)
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
