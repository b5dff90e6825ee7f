package enforce

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Status is what a person should know of the rules.
type Status struct {
	Policy   Policy
	Held     bool      // the kernel has them, as far as is known
	Err      error     // all that is in the way; nil while they are being made
	Since    time.Time // of what has been in the way longest
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
	s.Since, s.Err = k.status.standing()
	s.Foreign, s.Repairs = k.status.foreign, k.status.repairs
	return s
}

// A cause is one part of the work that may fail by itself, and lasts until it succeeds.
type cause int

const (
	noPlace     cause = iota // the kernel does not say which ports lead into a lease's namespace
	noTable                  // the table cannot be made
	bridgeLearn              // a bridge learns the senders of group frames
	portGroups               // a port's group frames take the wrong way
	portLearned              // a bridge has not forgotten what it learned at a port
	causes
)

// trouble is why the rules do not hold, and what others did to them. It is safe for concurrent
// use.
type trouble struct {
	log *slog.Logger

	mu      sync.Mutex
	foreign uint64
	repairs uint64
	errs    [causes]error
	since   [causes]time.Time // of errs
}

// count adds changes by other programs, and repairs of them.
func (c *trouble) count(foreign, repairs uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.foreign += foreign
	c.repairs += repairs
}

// note keeps why a part of the work fails, and logs it once; nil: it succeeded. It returns err in [ErrNotHeld].
func (c *trouble) note(of cause, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	had := c.errs[of]
	if c.errs[of] = err; err == nil {
		return nil
	}
	if had == nil {
		c.since[of] = time.Now()
	}
	notHeld := fmt.Errorf("%w: %w", ErrNotHeld, err)
	if had == nil || had.Error() != err.Error() {
		c.log.Error("the rules of nftables cannot be made", "err", notHeld, "next", "ipamctl doctor")
	}
	return notHeld
}

// standing is all that is in the way, and since when the oldest of it has been. c.mu is held.
func (c *trouble) standing() (since time.Time, err error) {
	for of, one := range c.errs {
		if one != nil && (err == nil || c.since[of].Before(since)) {
			since = c.since[of]
		}
		err = errors.Join(err, one)
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrNotHeld, err)
	}
	return since, err
}

// some is the first of errs, and how many there are beside it.
func some(errs []error) error {
	if len(errs) > 1 {
		return fmt.Errorf("%w, and %d more", errs[0], len(errs)-1)
	}
	return errors.Join(errs...)
}
