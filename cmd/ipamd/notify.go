package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sync/errgroup"
)

// statusEvery is the longest time between two looks at what systemd's status
// line says, and between two answers to its watchdog.
const statusEvery = 5 * time.Second

// notify tells systemd something (sd_notify(3)). Without one nothing happens.
func (p *program) notify(lines ...string) {
	if _, err := daemon.SdNotify(false, strings.Join(lines, "\n")); err != nil {
		p.log.Warn("systemd cannot be told", "what", lines[0], "err", err)
	}
}

// supervised tells systemd that ipamd is up, and from then on how it is and
// that it is alive, until ctx ends. It starts after the first pass.
func (p *program) supervised(ctx context.Context) error {
	limit, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return fmt.Errorf("read what systemd's watchdog wants: %w", err)
	}
	// At least four looks fit into the limit, and each has half of it: one that finds
	// ipamd stuck still has time to say where.
	every := statusEvery
	if limit > 0 {
		every = min(every, limit/4)
		p.log.Info("systemd watches", "limit", limit, "every", every)
	}
	status := p.statusLine()
	p.notify(daemon.SdNotifyReady, status)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if limit > 0 {
			p.answer(ctx, limit/2)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if now := p.statusLine(); now != status && !p.stopping.Load() {
			status = now
			p.notify(status)
		}
	}
}

// answer tells systemd's watchdog that ipamd is alive, if it is; else it tells
// the log where ipamd is stuck. systemd then ends and restarts it. Clients
// wait on the socket meanwhile, which beats an ipamd that only reads well.
func (p *program) answer(ctx context.Context, patience time.Duration) {
	began := time.Now()
	err := p.alive(ctx, patience)
	switch {
	case ctx.Err() != nil: // its loops have ended, as they were asked to
	case err != nil:
		p.log.Error("ipamd is stuck, and systemd will end it unless that passes", "err", err, "waited", time.Since(began).Round(time.Millisecond))
	default:
		p.notify(daemon.SdNotifyWatchdog)
	}
}

// alive is a proof and no timer: the book's writer takes an empty transaction,
// and the loops of the reconciler and the watchdog show that they go on, all
// within patience. A book that answers that it cannot be written is alive;
// that mends itself without a restart.
func (p *program) alive(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var g errgroup.Group
	for _, ask := range []func(context.Context) error{p.book.Ping, p.reconciler.Alive, p.watchdog.Alive} {
		g.Go(func() error {
			if err := ask(ctx); errors.Is(err, context.DeadlineExceeded) {
				return err
			}
			return nil
		})
	}
	return g.Wait()
}

// statusLine is what `systemctl status ipamd` shows.
func (p *program) statusLine() string {
	if why := p.server.NotReady(); len(why) > 0 {
		return "STATUS=not ready: " + strings.ReplaceAll(strings.Join(why, "; "), "\n", " ")
	}
	usage, _ := p.book.Usage()
	pools := make([]string, len(usage))
	for i, u := range usage {
		held := 0
		for _, n := range u.ByState {
			held += n
		}
		pools[i] = fmt.Sprintf("%s %d of %d addresses", u.Pool.Prefix, held, u.Size)
	}
	return "STATUS=ready: " + strings.Join(pools, ", ")
}
