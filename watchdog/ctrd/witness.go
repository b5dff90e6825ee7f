// Package ctrd is the only room that imports the containerd client. It reads
// the labels of containers and posts the addresses that they claim on a
// [census.Board], as the witness [census.Runtime].
//
// What it guarantees:
//   - A container's claim counts whatever its task state: a stopped container,
//     and one without a task, still owns its address.
//   - An event is never believed. It only says at which container to look
//     again; what counts is what containerd answers then.
//   - Old news never undoes newer news: readings and look-ups follow one
//     another, each posted before the next begins.
//   - "Not there" is the word of the containerd that the containers are in, or it
//     is an error: see [Config.Met].
//   - Could not ask is not "not there": while containerd is down, hangs, or its
//     events are lost, the witness is silent and what it saw before stands. The
//     silence ends with a whole reading, by nothing less.
//
// By itself it never changes a container: it signals and deletes one only when
// the sweep of orphans, which is off by default, asks for that one by its id.
// Beside that it writes a mark on the event stream, by which it knows that the
// stream is alive.
//
// It speaks to containerd 1.6 and 2.x alike.
package ctrd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/pkg/identifiers"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/broadcast"
)

// AllNamespaces, alone in [Config.Namespaces], stands for every namespace that
// containerd has, listed again at each whole reading.
const AllNamespaces = "*"

// Config says what to read. Only UIDLabel and the last six fields may be
// left out.
type Config struct {
	Address    string   // path of containerd's socket
	Namespaces []string // containerd namespaces to read, or AllNamespaces

	OwnerLabel   string // its value is the sandbox
	AddressLabel string // this label, and this with digits behind it, hold addresses
	LeaseLabel   string // its value is the lease id
	UIDLabel     string // its value is the sandbox's incarnation; "" is none

	Timeout time.Duration // of each call to containerd
	Board   *census.Board

	Every time.Duration // between whole readings without a reason, against lost events; 0 is a minute
	Log   *slog.Logger  // nil discards

	// Home says in which network namespace a process is; an error means that
	// it is not known. nil: it is never known. It is asked about tasks of containers of which a
	// label cannot be read.
	Home func(ctx context.Context, pid uint32) (census.Home, error)

	// Met is given which containerd answers, by the id that it keeps on its
	// disk: at each whole reading, and after each answer that a container is
	// not there. An error means that such an answer is not to be believed, and
	// a look-up returns it. nil: every containerd is believed.
	Met func(ctx context.Context, id string) error
	// Has is given, ahead of Met and of what a whole reading shows, a list of every
	// namespace that the containerd has, which is read when it is called. An error
	// makes the witness silent. nil: it is not called.
	Has func(ctx context.Context, id string, list func(context.Context) ([]string, error)) error
	// Shown is called when the board has what a whole reading shows. Its error is
	// logged. nil: it is not called.
	Shown func(ctx context.Context, id string) error
}

// A Witness follows one containerd. Its methods are safe for concurrent use.
type Witness struct {
	records
	runs sync.WaitGroup

	news broadcast.Signal

	again   chan struct{} // one slot: Run shall read everything now
	posting chan struct{} // one slot, taken by what reads and posts

	// Guarded by posting.
	unread     []string        // what the last whole reading could not read
	incomplete map[string]bool // the scopes of those
	taskless   taskless
	following  bool  // Run's stream is alive and a whole reading was posted
	logged     state // what the log says so far
}

type state int

const (
	unknown state = iota
	connected
	lost
)

// New checks cfg. It asks containerd for nothing, which may be down.
func New(cfg Config) (*Witness, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("configure the runtime witness: %w", err)
	}
	if cfg.Every == 0 {
		cfg.Every = time.Minute
	}
	if cfg.Met == nil {
		cfg.Met = func(context.Context, string) error { return nil }
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Namespaces = slices.Compact(slices.Sorted(slices.Values(cfg.Namespaces)))
	w := &Witness{records: records{calls: calls{cfg: cfg}, large: make(large)}, again: make(chan struct{}, 1), posting: make(chan struct{}, 1), taskless: make(taskless)}
	w.life, w.end = context.WithCancel(context.Background())
	return w, nil
}

func (c Config) check() error {
	switch {
	case c.Address == "":
		return errors.New("no socket is named")
	case len(c.Namespaces) == 0:
		return fmt.Errorf("no namespace is named; %q reads all", AllNamespaces)
	case slices.Contains(c.Namespaces, AllNamespaces) && len(c.Namespaces) > 1:
		return fmt.Errorf("namespace %q stands alone", AllNamespaces)
	case c.OwnerLabel == "" || c.AddressLabel == "" || c.LeaseLabel == "":
		return errors.New("the names of the owner, address and lease labels are needed")
	case c.Timeout <= 0:
		return errors.New("a call needs a timeout")
	case c.Every < 0:
		return errors.New("the time between readings is negative")
	case c.Board == nil:
		return errors.New("there is no board to post on")
	}
	if c.all() {
		return nil
	}
	for _, ns := range c.Namespaces {
		if err := identifiers.Validate(ns); err != nil {
			return fmt.Errorf("namespace %q: %w", ns, err)
		}
	}
	return nil
}

func (c Config) all() bool { return c.Namespaces[0] == AllNamespaces }

// Close ends a running [Witness.Run] and waits for it. The witness is of no
// use afterwards. It may be called twice.
func (w *Witness) Close() error {
	w.end()
	w.runs.Wait()
	return w.hangUp()
}

// Refresh posts one whole reading now. It needs no Run, but only Run keeps
// what was read current. When containerd does not answer, the witness falls
// silent and the error says why; when ctx ends first, the board stays as it
// was.
func (w *Witness) Refresh(ctx context.Context) error {
	ctx, cancel := w.until(ctx)
	defer cancel()
	if err := w.take(ctx); err != nil {
		return fmt.Errorf("read containerd: %w", err)
	}
	defer w.give()
	c, err := w.open()
	if err == nil {
		defer c.Close()
		err = w.read(ctx, c)
	}
	if ctx.Err() == nil && (err != nil || !w.following) {
		// Without a stream behind it the reading ages, and a silence must not
		// wait for the next minute: let Run look at once.
		broadcast.Wake(w.again)
	}
	if err != nil {
		if ctx.Err() == nil {
			w.silence(err)
		}
		return fmt.Errorf("read containerd: %w", w.inWords(err))
	}
	return nil
}

// take waits until the caller may read and post.
func (w *Witness) take(ctx context.Context) error {
	select {
	case w.posting <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *Witness) give() { <-w.posting }
