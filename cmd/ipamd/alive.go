package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sync/errgroup"

	"github.com/ipamd/ipamd/netdb"
)

// proofEvery is the longest time between two proofs that ipamd is alive, and how
// long a part may be silent before readiness tells.
const proofEvery = 10 * time.Second

// A vital is a part without which ipamd only reads well.
type vital struct {
	name string                      // in a sentence
	ask  func(context.Context) error // returns an error that wraps ctx's when nothing came
}

func (p *program) vitals() []vital {
	return []vital{
		{"the book's writer", p.book.Ping},
		{"the loop of passes", p.reconciler.Alive},
		{"the loop that confirms releases", p.watchdog.Alive},
	}
}

// silences remembers which parts were asked for a sign of life and have not
// given it. The zero value is ready; all methods are safe for concurrent use.
type silences struct {
	mu    sync.Mutex
	parts map[string]silence
}

// A silence began with the first question that was not answered.
type silence struct {
	since time.Time
	why   string // "" when unknown
}

func (s *silences) asked(part string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, waits := s.parts[part]; waits {
		return
	}
	if s.parts == nil {
		s.parts = make(map[string]silence)
	}
	s.parts[part] = silence{since: time.Now()}
}

func (s *silences) explain(part, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parts[part] = silence{s.parts[part].since, why}
}

func (s *silences) answered(part string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.parts, part)
}

// of is for how long a part has been silent, 0 when it is not, and why.
func (s *silences) of(part string) (time.Duration, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one, waits := s.parts[part]; waits {
		return time.Since(one.since), one.why
	}
	return 0, ""
}

// still tells each part that was asked for a sign of life and gives none: a
// writer that another process keeps from its book answers no allocate, and
// nothing else shows it.
func (p *program) still() (why []string) {
	for _, part := range p.vitals() {
		silent, cause := p.silent.of(part.name)
		if silent <= p.proofEvery {
			continue
		}
		reason := fmt.Sprintf("%s has not answered for %s", part.name, silent.Round(time.Second))
		if cause != "" {
			reason += ": " + cause
		}
		why = append(why, reason)
	}
	return why
}

// alive is a proof and no timer: the book's writer takes an empty transaction,
// and the loops of the reconciler and the watchdog show that they go on, all
// within patience. A book that answers that it cannot be written is alive;
// that mends itself without a restart.
func (p *program) alive(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var g errgroup.Group
	for _, part := range p.vitals() {
		g.Go(func() error {
			p.silent.asked(part.name)
			err := part.ask(ctx)
			if !errors.Is(err, context.DeadlineExceeded) {
				p.silent.answered(part.name)
				return nil
			}
			if errors.Is(err, netdb.ErrBusy) {
				p.silent.explain(part.name, "another process holds the book's lock")
			}
			return err
		})
	}
	return g.Wait()
}

// prove looks again and again whether ipamd is alive, until ctx ends, for whoever
// asks if it is ready and for systemd's watchdog, if that watches.
func (p *program) prove(ctx context.Context) error {
	limit, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return fmt.Errorf("read what systemd's watchdog wants: %w", err)
	}
	// At least four proofs fit into the limit, and each has half of it: one that finds
	// ipamd stuck still has time to say where.
	every, patience := p.proofEvery, p.proofEvery
	if limit > 0 {
		every, patience = min(every, limit/4), limit/2
		p.log.Info("systemd watches", "limit", limit, "every", every)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		p.answer(ctx, patience, limit > 0)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// answer tells systemd's watchdog that ipamd is alive, if it is; else it tells
// the log where ipamd is stuck. systemd then ends and restarts it. Clients
// wait on the socket meanwhile, which beats an ipamd that only reads well.
func (p *program) answer(ctx context.Context, patience time.Duration, watched bool) {
	began := time.Now()
	err := p.alive(ctx, patience)
	switch {
	case ctx.Err() != nil: // its loops have ended, as they were asked to
	case err != nil:
		p.log.Error("ipamd is stuck", "err", err, "waited", time.Since(began).Round(time.Millisecond), "systemd_ends_it", watched)
	case watched:
		p.notify(daemon.SdNotifyWatchdog)
	}
}
