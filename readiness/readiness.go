// Package readiness says whether addresses may be given, and what keeps them from it:
// a book that is another runner's, a census that is not taken, a bridge or a witness
// that cannot answer. That the pools are full is for package server to say, which
// knows the policy.
package readiness

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/bridge"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/netdb"
)

// startTimeout is how long an allocate waits for the first census. That is
// there within a tenth of a second, and later when containerd does not answer.
const startTimeout = 5 * time.Second

// Config says what is asked. Every field is needed.
type Config struct {
	Book interface {
		Identity() error
		Info() netdb.Info
	}
	Bridge interface {
		Ready() error
		Status() bridge.Status
	}
	Board      *census.Board
	RequireAll bool            // every witness has to answer, the runtime too
	Also       func() []string // further reasons, a sentence each
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

// Await waits for the first census for a short time: a caller that waited on the
// socket while ipamd restarted is not refused for coming first. After that the gate's
// error names what is not ready.
//
// Another runner's book is not waited for: a person adopts it.
func (r *Readiness) Await(ctx context.Context) {
	if r.Book.Identity() != nil {
		return
	}
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	select {
	case <-r.first:
	case <-timeout.C:
	case <-ctx.Done():
	}
}

// Gate is why the allocator may not give addresses; nil: it may.
func (r *Readiness) Gate() error {
	if err := r.Book.Identity(); err != nil {
		return err
	}
	if !r.Counted() {
		return fmt.Errorf("%w: the first census is not done", allocator.ErrNotReady)
	}
	if err := r.Bridge.Ready(); err != nil {
		return fmt.Errorf("%w: %s", allocator.ErrBridge, r.Bridge.Status().Reason)
	}
	return nil
}

// Reasons lists every reason why addresses cannot be given now, but that the pools
// are full; none: they can be.
func (r *Readiness) Reasons() []string {
	var why []string
	if err := r.Gate(); err != nil {
		why = append(why, err.Error())
	}
	bridged := r.Counted() && r.Bridge.Ready() == nil // else the kernel's witnesses have not looked, and the gate says why
	for _, s := range r.Board.Silent() {
		if s.Witness.Kernel() && bridged || r.RequireAll {
			why = append(why, fmt.Sprintf("the %s witness cannot answer: %s", s.Witness, s.Reason))
		}
	}
	if err := r.Book.Info().ReadOnly; err != nil {
		why = append(why, err.Error())
	}
	return append(why, r.Also()...)
}

// Line is what `systemctl status ipamd` shows: why addresses cannot be given, or how
// many each pool has given.
func Line(reasons []string, usage []netdb.Usage) string {
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
