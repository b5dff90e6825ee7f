package reconciler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/netdb"
)

// Book is what the reconciler needs of the lease book.
type Book interface {
	InState(netdb.State) []*netdb.Lease
	ClearAt(ctx context.Context, who netdb.Who, id string, rev int64) (*netdb.Lease, error)
}

// A Prober asks the wire for one address again. The answer comes to the board
// by itself, and so does its end, when later questions stay without one.
type Prober interface {
	Probe(addr netip.Addr) error
}

// Config makes a Reconciler. Every field is needed.
type Config struct {
	Book       Book
	Board      *census.Board
	Prober     Prober
	Settle     func(context.Context) error // reads what the kernel has told by now
	Quarantine time.Duration               // how long a quarantined address must be dark
	Every      time.Duration               // between two passes, at most
	Window     time.Duration               // silence after a probe that counts as an answer
	Now        func() netdb.Stamp
	Log        *slog.Logger
}

// A Reconciler runs passes, one at a time.
type Reconciler struct {
	Config
	dark map[string]darkness
	last netip.Addr // that was probed; the next pass goes on behind it
}

// New returns a Reconciler, or says what is missing.
func New(cfg Config) (*Reconciler, error) {
	if cfg.Book == nil || cfg.Board == nil || cfg.Prober == nil || cfg.Settle == nil || cfg.Now == nil || cfg.Log == nil {
		return nil, errors.New("reconciler: a part is missing")
	}
	if cfg.Quarantine <= 0 || cfg.Every <= 0 || cfg.Window <= 0 {
		return nil, errors.New("reconciler: a bound is zero")
	}
	return &Reconciler{Config: cfg, dark: make(map[string]darkness)}, nil
}

// breath is the least time between two passes that news ask for.
const breath = 100 * time.Millisecond

// Run makes a pass at once, when the board has news about a quarantined
// address, and at least every Config.Every, until ctx ends.
func (r *Reconciler) Run(ctx context.Context) error {
	// Three censuses must fit into the time that a quarantine lasts.
	every := min(r.Every, r.Quarantine/leastCensuses)
	due := time.NewTimer(0)
	defer due.Stop()
	var seen map[netip.Addr]bool
	for {
		changed := r.Board.Changed()
		if now := r.seen(); !maps.Equal(now, seen) {
			seen = now
			due.Reset(0)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-due.C:
			if err := r.Pass(ctx); err != nil && ctx.Err() == nil {
				r.Log.Error("reconcile", "err", err)
			}
			due.Reset(every)
		case <-changed:
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(breath):
			}
		}
	}
}

// seen tells which quarantined addresses are seen.
func (r *Reconciler) seen() map[netip.Addr]bool {
	out := make(map[netip.Addr]bool)
	for _, l := range r.Book.InState(netdb.Quarantined) {
		out[l.Addr] = len(r.Board.About(l.Addr).Seen) > 0
	}
	return out
}

// Pass compares once and lets quarantined addresses cool that have been dark
// long enough.
func (r *Reconciler) Pass(ctx context.Context) error {
	book := r.Book.InState(netdb.Quarantined)
	unasked, err := r.probe(ctx, book)
	if err != nil {
		return err
	}
	if err := r.Settle(ctx); err != nil {
		return fmt.Errorf("read the kernel: %w", err)
	}
	actions, dark := quarantined(book, r.Board.Census(), unasked, r.dark, r.Quarantine, r.Now())
	r.dark = dark
	var errs []error
	for _, a := range actions {
		_, err := r.Book.ClearAt(ctx, netdb.Who{Actor: netdb.ByReconciler, Reason: "dark"}, a.lease.ID, a.lease.Rev)
		switch {
		case errors.Is(err, netdb.ErrStale), errors.Is(err, netdb.ErrGone):
			// It changed since the pass began; the next one looks again.
		case err != nil:
			errs = append(errs, err)
		default:
			r.Log.Info("quarantine is over", "addr", a.lease.Addr, "lease", a.lease.ID)
		}
	}
	return errors.Join(errs...)
}

// probe asks the wire again for every quarantined address that a probe has
// told about, and waits out the window. They are quarantined, so nobody is
// given one in between. It returns those that could not be asked about: of
// them this pass knows nothing.
func (r *Reconciler) probe(ctx context.Context, book []*netdb.Lease) (unasked map[netip.Addr]bool, err error) {
	ask, wait := toProbe(book, r.Board.About, r.last)
	unasked = make(map[netip.Addr]bool)
	for _, a := range wait {
		unasked[a] = true
	}
	var unsent error
	for _, a := range ask {
		r.last = a
		if err := r.Prober.Probe(a); err != nil {
			unasked[a], unsent = true, err
		}
	}
	if unsent != nil {
		r.Log.Warn("quarantined addresses could not be asked about", "err", unsent)
	}
	if len(ask) == 0 {
		return unasked, nil
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(r.Window):
		return unasked, nil
	}
}
