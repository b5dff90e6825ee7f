package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/ipamd/ipamd/adoption"
	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/config/reload"
	"github.com/ipamd/ipamd/doctor"
	"github.com/ipamd/ipamd/internal/changelog"
	"github.com/ipamd/ipamd/internal/logging"
	"github.com/ipamd/ipamd/internal/supervisor"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/metrics"
	"github.com/ipamd/ipamd/migrations"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/warm"
)

// A program is a daemon that is not running yet: its parts are opened in
// order by open, their loops run under run, and close closes them in reverse.
// Two of them in one process do not touch. It has a method for each part that is opened or run.
type program struct {
	cfg     config.Config
	log     *slog.Logger
	repeats *logging.Repeats // what log holds back
	reload  *reload.Source   // nil when the configuration stays as it is
	version api.VersionReply
	started time.Time
	clock   *doctor.WallClock
	closers []func() error

	configured *reload.Configuration
	metrics    *metrics.Metrics
	book       *netdb.Book
	changes    *changelog.Follower
	board      *census.Board
	adoption   *adoption.Adoption
	warm       *warm.Keeper

	kernel
	runtimes
	deciders
	sleepers
	front
}

func newProgram(cfg config.Config, log *slog.Logger, version api.VersionReply) *program {
	version.Schema = migrations.Latest()
	quiet := new(logging.Repeats)
	return &program{cfg: cfg, log: slog.New(quiet.Handler(log.Handler())), repeats: quiet, version: version, started: time.Now(), clock: doctor.NewWallClock(ipam.Now()),
		front: front{proofEvery: supervisor.ProveEvery}}
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
