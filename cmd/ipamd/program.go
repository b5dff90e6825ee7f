package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/ipamd/ipamd/adoption"
	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/bridge"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/config/reload"
	"github.com/ipamd/ipamd/doctor"
	"github.com/ipamd/ipamd/enforce"
	"github.com/ipamd/ipamd/gateways"
	"github.com/ipamd/ipamd/internal/changelog"
	"github.com/ipamd/ipamd/internal/logging"
	"github.com/ipamd/ipamd/internal/supervisor"
	"github.com/ipamd/ipamd/metrics"
	"github.com/ipamd/ipamd/migrations"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/orphans"
	"github.com/ipamd/ipamd/readiness"
	"github.com/ipamd/ipamd/reconciler"
	"github.com/ipamd/ipamd/server"
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
// Two of them in one process do not touch. It has a method for each part that is opened or run.
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

	configured *reload.Configuration

	board            *census.Board
	metrics          *metrics.Metrics
	book             *netdb.Book
	adoption         *adoption.Adoption
	changes          *changelog.Follower
	bridge           *bridge.Group
	keeper           *enforce.Keeper    // nil while enforce.mode is off
	follower         *gateways.Follower // of the pools, by the bridges
	poolsBefore      []*netdb.Pool      // as the book had them when it was opened
	runtime          *ctrd.Witness      // nil when there is none
	instance         *watchdog.Instance // nil without a runtime
	allocator        *allocator.Allocator
	owner            *owner.Client    // nil when there is none
	sweeper          *orphans.Sweeper // nil without an owner
	watchdog         *watchdog.Watchdog
	flights          *wake.Flights
	catcher          *catch.Catcher // nil where the kernel lacks what it takes
	trafficUnwatched func() error   // why traffic wakes no sandbox just now
	idle             *idle.Watcher  // nil while idle.after is 0
	reconciler       *reconciler.Reconciler
	warm             *warm.Keeper
	server           *server.Server
	socket           *socket.Socket
	scrapes          *metrics.Listener // nil without metrics.listen

	given        []*os.File // by systemd: the socket, or nothing
	socketConfig socket.Config
	reload       *reload.Source // nil when the configuration stays as it is

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
		p.openAllocator, p.openFlights, p.openIdle, p.openReconciler, p.openServer)
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
