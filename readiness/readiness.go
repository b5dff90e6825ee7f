// Package readiness says whether addresses may be given, and what keeps them from it:
// a book that is another runner's, a census that is not taken, a bridge or a witness
// that cannot answer. That the pools are full is for package server to say, which
// knows the policy.
package readiness

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/bridge"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
)

// The first census is there within a tenth of a second, and later when containerd does not answer, or
// where others keep the kernel's lock of links.
const (
	startTimeout = 8 * time.Second // how long an allocate waits for it at the most
	stopTimeout  = 4 * time.Second // how long one waits on once the daemon was asked to stop: the server cuts it after five
)

// Config says what is asked. Every field is needed.
type Config struct {
	Book interface {
		CheckIdentity() error
		Info() netdb.Info
		Pools() []*ipam.Pool
	}
	Bridges interface {
		Ready(bridge string, gateway netip.Addr) error
	}
	Board      *census.Board
	RequireAll bool            // every witness has to answer, the runtime too
	Also       func() []string // further reasons, a sentence each
	Stopping   context.Context // ends when the daemon is asked to stop
}

// A Readiness is safe for concurrent use.
type Readiness struct {
	Config
	counted atomic.Bool
	first   chan struct{} // closed when the first census is done
}

// New returns one that waits for the first census.
func New(c Config) *Readiness { return &Readiness{Config: c, first: make(chan struct{})} }

// SetCounted notes that the first census is done, and the pass on it. It is called once.
func (r *Readiness) SetCounted() {
	r.counted.Store(true)
	close(r.first)
}

// Counted reports whether the first census is done.
func (r *Readiness) Counted() bool { return r.counted.Load() }

// OnceCounted asks a part whose loop begins behind the first census; before that there is nothing to
// ask.
func (r *Readiness) OnceCounted(ask func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if !r.Counted() {
			return nil
		}
		return ask(ctx)
	}
}

// Await waits for the first census, for four fifths of the time that ctx has at the most, and on for four
// seconds once the daemon is asked to stop: a caller that waited on the socket while ipamd restarted is not
// refused for coming first. After that the gate's error names what is not ready, while there is time to answer.
//
// Another runner's book is not waited for: a person adopts it.
func (r *Readiness) Await(ctx context.Context) {
	if r.Book.CheckIdentity() != nil {
		return
	}
	wait := startTimeout
	if end, has := ctx.Deadline(); has {
		wait = min(wait, time.Until(end)*4/5)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	defer context.AfterFunc(r.Stopping, func() { time.AfterFunc(stopTimeout, cancel) })()
	select {
	case <-r.first:
	case <-ctx.Done():
	}
}

// Gate is why the allocator may not give addresses of some pools; nil: it may.
func (r *Readiness) Gate(pools ...*ipam.Pool) error {
	if err := r.begun(); err != nil {
		return err
	}
	for _, p := range pools {
		if err := r.bridge(p); err != nil {
			return err
		}
	}
	return nil
}

func (r *Readiness) begun() error {
	if err := r.Book.CheckIdentity(); err != nil {
		return err
	}
	if !r.Counted() {
		return fmt.Errorf("%w: the first census is not done", allocator.ErrNotReady)
	}
	return nil
}

// bridge is why a pool's bridge is not as the pool needs it.
func (r *Readiness) bridge(p *ipam.Pool) error {
	err := r.Bridges.Ready(p.Bridge, p.Gateway)
	if err == nil {
		return nil
	}
	out := &allocator.BridgeError{Pool: p.Name, Bridge: p.Bridge, Reason: err.Error()}
	var not *bridge.NotReadyError
	if errors.As(err, &not) {
		out.Reason, out.Repair, out.Since = not.Reason, not.Repair, not.Since
	}
	return out
}

// Unready is why the addresses of a pool cannot be given, as far as its bridge goes and those
// who look at it: an [allocator.BridgeError] or an [allocator.EvidenceError]; nil: they can.
func (r *Readiness) Unready(p *ipam.Pool) error {
	if err := r.bridge(p); err != nil {
		return err
	}
	var missing []census.Silence
	for _, s := range r.Board.About(p.Prefix.Addr()).Silent {
		if s.Witness.Kernel() || r.RequireAll {
			missing = append(missing, s)
		}
	}
	if len(missing) > 0 {
		return &allocator.EvidenceError{Silent: missing}
	}
	return nil
}

// Reasons lists every reason why addresses of no pool can be given now, but that the pools
// are full; none: those of a pool can be.
func (r *Readiness) Reasons() []string {
	var why []string
	add := func(reason string) {
		if !slices.Contains(why, reason) {
			why = append(why, reason)
		}
	}
	if err := r.begun(); err != nil {
		add(err.Error())
	} else {
		for _, p := range r.Book.Pools() {
			err := r.Unready(p)
			if err == nil {
				why = nil
				break
			}
			var evidence *allocator.EvidenceError
			if !errors.As(err, &evidence) {
				add(err.Error())
				continue
			}
			for _, s := range evidence.Silent {
				add(fmt.Sprintf("the %s witness cannot answer: %s", s.Witness, s.Reason))
			}
		}
	}
	if err := r.Book.Info().ReadOnly; err != nil {
		add(err.Error())
	}
	return append(why, r.Also()...)
}

// Line is what `systemctl status ipamd` shows: why addresses cannot be given, or how
// many each pool has given.
func Line(reasons []string, usage []ipam.Usage) string {
	if len(reasons) > 0 {
		return "STATUS=not ready: " + strings.ReplaceAll(strings.Join(reasons, "; "), "\n", " ")
	}
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
