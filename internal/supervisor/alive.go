package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sync/errgroup"
)

// ProveEvery is the longest time between two proofs that ipamd is alive, and how long a
// part may be silent before readiness reports it.
const ProveEvery = 10 * time.Second

// A Part is one without which ipamd only reads well.
type Part struct {
	Name string                      // in a sentence
	Ask  func(context.Context) error // returns an error that wraps ctx's when nothing came
}

// A Prover asks parts for a sign of life, for readiness and for systemd's watchdog. All
// methods are safe for concurrent use.
type Prover struct {
	Parts   []Part
	Every   time.Duration      // between two proofs
	Explain func(error) string // why a part did not answer; "" when unknown
	Log     *slog.Logger

	mu     sync.Mutex
	silent map[string]silence // by the part's name: asked, and no answer yet
}

// A silence began with the first question that was not answered.
type silence struct {
	since time.Time
	why   string // "" when unknown
}

// Silent names each part that was asked for a sign of life and gives none: a writer
// that another process keeps from its book answers no allocate, and nothing else shows
// it.
func (p *Prover) Silent() (why []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, part := range p.Parts {
		one, waits := p.silent[part.Name]
		if !waits || time.Since(one.since) <= p.Every {
			continue
		}
		reason := fmt.Sprintf("%s has not answered for %s", part.Name, time.Since(one.since).Round(time.Second))
		if one.why != "" {
			reason += ": " + one.why
		}
		why = append(why, reason)
	}
	return why
}

// note records that a part is asked, why it did not answer, or, with over, that it did.
func (p *Prover) note(part, why string, over bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if over {
		delete(p.silent, part)
		return
	}
	if p.silent == nil {
		p.silent = make(map[string]silence)
	}
	one := p.silent[part]
	if one.since.IsZero() {
		one.since = time.Now()
	}
	one.why = cmp.Or(why, one.why)
	p.silent[part] = one
}

// Prove is a proof and no timer: each part answers within timeout, or the error names
// one that did not. A book that answers that it cannot be written is alive; that ends
// without a restart.
func (p *Prover) Prove(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var g errgroup.Group
	for _, part := range p.Parts {
		g.Go(func() error {
			p.note(part.Name, "", false)
			err := part.Ask(ctx)
			if !errors.Is(err, context.DeadlineExceeded) {
				p.note(part.Name, "", true)
				return nil
			}
			p.note(part.Name, p.Explain(err), false)
			return err
		})
	}
	return g.Wait()
}

// Run proves again and again that ipamd is alive, until ctx ends, for readiness and for
// systemd's watchdog, if that watches. It returns nil then.
func (p *Prover) Run(ctx context.Context) error {
	limit, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return fmt.Errorf("read what systemd's watchdog wants: %w", err)
	}
	// At least four proofs fit into the limit, and each has half of it: one that finds
	// ipamd stuck still has time to say where.
	every, timeout := p.Every, p.Every
	if limit > 0 {
		every, timeout = min(every, limit/4), limit/2
		p.Log.Info("systemd watches", "limit", limit, "every", every)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		p.report(ctx, timeout, limit > 0)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// report notifies systemd's watchdog that ipamd is alive, if it is; else the log says
// where ipamd is stuck. systemd then ends and restarts it. Clients wait on the socket
// meanwhile, which beats an ipamd that only reads well.
func (p *Prover) report(ctx context.Context, timeout time.Duration, watched bool) {
	began := time.Now()
	err := p.Prove(ctx, timeout)
	switch {
	case ctx.Err() != nil: // its loops have ended, as they were asked to
	case err != nil:
		p.Log.Error("ipamd is stuck", "err", err, "waited", time.Since(began).Round(time.Millisecond), "systemd_ends_it", watched)
	case watched:
		Notify(p.Log, daemon.SdNotifyWatchdog)
	}
}
