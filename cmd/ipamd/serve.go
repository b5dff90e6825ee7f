package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/ipamd/ipamd/adoption"
	"github.com/ipamd/ipamd/allocation"
	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/binding"
	"github.com/ipamd/ipamd/doctor"
	"github.com/ipamd/ipamd/internal/supervisor"
	"github.com/ipamd/ipamd/metrics"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/readiness"
	"github.com/ipamd/ipamd/server"
	"github.com/ipamd/ipamd/server/admission"
	"github.com/ipamd/ipamd/server/socket"
)

// The front is what callers reach, and what systemd is notified of.
type front struct {
	given        []*os.File // by systemd: the socket, or nothing
	socketConfig socket.Config
	socket       *socket.Socket
	server       *server.Server
	scrapes      *metrics.Listener // nil without metrics.listen
	proofEvery   time.Duration     // between proofs that it is alive; tests shorten it
	prover       *supervisor.Prover
	stopping     atomic.Bool // systemd knows
}

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

func (p *program) openServer(context.Context) (err error) {
	p.adoption = adoption.New(adoption.Config{Book: p.book, Board: p.board, Pools: p.configured.TakeOver, Log: p.log,
		Plan: func(ctx context.Context) (api.Report, error) { return p.reconcile(ctx, true, false) }})
	c := p.cfg.Socket
	p.prover = &supervisor.Prover{Every: p.proofEvery, Log: p.log, Parts: []supervisor.Part{
		{Name: "the book's writer", Ask: p.book.Ping},
		{Name: "the loop of passes", Ask: p.ready.OnceCounted(p.reconciler.Alive)},
		{Name: "the loop that confirms releases", Ask: p.ready.OnceCounted(p.watchdog.Alive)},
	}, Explain: func(err error) string {
		if errors.Is(err, netdb.ErrBusy) {
			return "another process holds the book's lock"
		}
		return ""
	}}
	examiner := &doctor.Doctor{Book: p.book, Board: p.board, Bridges: p.bridge, Unready: p.ready.Unready, Watchdog: p.watchdog, Reconciler: p.reconciler,
		Instance: p.instance, Sweeper: p.sweeper, Rules: p.keeper, Unwatched: p.flights.Unwatched, TrafficUnwatched: p.trafficUnwatched, Clock: p.clock, Started: p.started, Refused: p.configured.Refused}
	book := &binding.Book{Book: p.book, Runtime: p.runtime != nil, Kernel: p.bridge, Board: p.board, Watchdog: p.watchdog, Reclaimer: p.allocator, Rules: p.rules, Log: p.log}
	cfg := server.Config{
		Book: book, Sleeper: p.flights, Releaser: p.watchdog, Witnesses: p.board, Compare: book.Compare, CheckNetns: book.CheckNetns,
		Desk: p.desk, NetnsInode: p.bridge.Inode, SlotDesk: p.slotDesk, SlotProfile: p.slotProfile, SlotOwner: p.slotOwner,
		Adoption: p.adoption, LastTraffic: p.idle.LastTraffic,
		NotReady: p.ready.Reasons, Bridges: examiner.BridgeStatus, Follow: p.follower.Follow, Unready: p.ready.Unready, MTU: p.bridge.MTU,
		Rules: p.showRules, Reconcile: p.reconcile, ConfirmOrphans: p.sweeper.Confirm, LastPass: p.lastPass,
		Doctor: examiner.Examine, Findings: examiner.Remembered, Metrics: p.changes.Before(p.metrics.Handler()), Observe: p.metrics.Request,
		Version: p.version, Started: p.started, Require: p.cfg.Allocation.Require, Policy: p.cfg.Allocation.Policy(),
		RuntimeUIDs: c.RuntimeUIDs, RuntimeGIDs: c.RuntimeGIDs,
		Deadline: time.Duration(c.Deadline), MaxConns: c.MaxConnections, Log: p.log,
		Limits: admission.Limits{InFlight: c.InFlight(), Rate: c.MaxRate, ReaderRate: c.MaxReaderRate},
	}
	helper := server.NewSlotHelper(cfg)
	p.openWarm(helper)
	cfg.Slots, cfg.SlotsEnded, cfg.Vacate = p.warm.Shown, p.warm.Ended, p.warm.Vacate
	gives := allocation.New(allocation.Config{Gives: p.allocator, Slots: p.warm, Bridges: p.follower, Book: p.book,
		Pool: p.cfg.Pools[0].Name, Await: p.ready.Await, OnAnswer: p.metrics.Allocated})
	cfg.Allocator = binding.OneCallAllocator{Allocator: gives, Book: book, Profile: p.slotProfile, Check: helper.Check, OnClaimed: p.metrics.SlotClaimed}
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

// notReady is what socket and parts add to the reasons why addresses cannot be given.
func (f *front) notReady() (why []string) {
	if err := f.socket.Err(); err != nil {
		why = append(why, err.Error())
	}
	return append(why, f.prover.Silent()...)
}

// statusLine is what systemd shows of the daemon.
func (p *program) statusLine() string {
	usage, _ := p.book.Usage()
	return readiness.Line(p.server.NotReady(), usage)
}
