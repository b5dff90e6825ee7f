package enforce

import (
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Status is what a person should know of the rules.
type Status struct {
	Policy   Policy
	Held     bool  // the kernel has them, as far as is known
	Err      error // why not; nil while they are being made
	Since    time.Time
	Foreign  uint64
	Repairs  uint64
	Elements int
	Mark     string // the book that the kernel's table is made from
}

// Status reads memory.
func (k *Keeper) Status() Status {
	k.mu.Lock()
	s := Status{Policy: k.cfg.Policy, Held: k.held && !k.unverified.Load(), Elements: len(k.want), Mark: k.mark.Comment}
	k.mu.Unlock()
	k.status.mu.Lock()
	defer k.status.mu.Unlock()
	s.Err, s.Since, s.Foreign, s.Repairs = k.status.err, k.status.since, k.status.foreign, k.status.repairs
	return s
}

// trouble is why the rules do not hold, and what others did to them. It is safe for concurrent
// use.
type trouble struct {
	log *slog.Logger

	mu      sync.Mutex
	foreign uint64
	repairs uint64
	err     error
	since   time.Time // of err
}

// count adds changes by other programs, and repairs of them.
func (c *trouble) count(foreign, repairs uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.foreign += foreign
	c.repairs += repairs
}

// note keeps why the rules do not hold, and logs it once.
func (c *trouble) note(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && (c.err == nil || c.err.Error() != err.Error()) {
		c.log.Error("the rules of nftables cannot be made", "err", err, "next", "ipamctl doctor")
	}
	if err != nil && c.err == nil {
		c.since = time.Now()
	}
	c.err = err
}

// noted wraps err in [ErrNotHeld] and notes it. A nil does not clear an earlier error.
func (c *trouble) noted(err error) error {
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrNotHeld, err)
		c.note(err)
	}
	return err
}
