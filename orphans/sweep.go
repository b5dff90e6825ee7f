package orphans

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/broadcast"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/watchdog"
)

// reasonOrphaned is that of the releases of orphans' leases.
const reasonOrphaned = "orphaned"

// ErrEmptyList means that the owner lists no sandbox at all, while there are
// containers labelled as sandboxes'. That is an owner that lost its memory,
// and no orphan.
var ErrEmptyList = errors.New("the owner's list is empty")

// An UnclearError says why the last sweep could not judge.
type UnclearError struct {
	Since time.Time // the first of the sweeps in a row that could not, whatever kept them
	Cause error
}

func (e *UnclearError) Error() string { return e.Cause.Error() }

func (e *UnclearError) Unwrap() error { return e.Cause }

// Book is what a [Sweeper] needs of the lease book.
type Book interface {
	Leases() ([]*ipam.Lease, int64)
	Lease(id string) (*ipam.Lease, error)
	ReleaseAt(ctx context.Context, who ipam.Who, id string, rev int64, unseen func() error) (*ipam.Lease, error)
	History(ctx context.Context, q ipam.Query) ([]ipam.Change, error)
}

// Config says what to ask and what to do. Only Remove and Log may be left
// out.
type Config struct {
	Owner   watchdog.Owner
	Runtime watchdog.Runtime
	Book    Book
	Board   *census.Board // shows when a task has ended
	// Awaited reports that a lease was answered to its owner, which has yet to
	// bind it; [watchdog.Watchdog.Awaited] is one. Such a lease is not released, and its
	// containers are left as they are.
	Awaited func(lease string) bool

	Every    time.Duration // between two sweeps
	Grace    time.Duration // how old a sandbox must be, and how long missed, before it is asked for
	Parallel int           // questions to the owner at once, and removals

	// Remove ends and deletes the containers of orphans; without it they are
	// only reported.
	Remove   bool
	KillWait time.Duration // between SIGQUIT and SIGKILL, and after that
	Timeout  time.Duration // of each other step of a removal

	Now func() ipam.Stamp
	Log *slog.Logger // nil discards
}

func (c Config) check() error {
	switch {
	case c.Owner == nil || c.Runtime == nil || c.Book == nil || c.Board == nil || c.Awaited == nil || c.Now == nil:
		return errors.New("an owner, a runtime, a book, a board, the word about answers and a clock are needed")
	case c.Every <= 0 || c.Grace <= 0 || c.KillWait <= 0 || c.Timeout <= 0:
		return errors.New("the time between sweeps, the grace, the wait before a kill and the timeout are above 0")
	case c.Parallel <= 0:
		return errors.New("at least one thing is done at once")
	}
	return nil
}

// An Orphan is a sandbox of which there are containers, and which its owner
// says is gone.
type Orphan struct {
	Sandbox    string
	Containers []watchdog.Container
	Leases     []string  // ids of its leases that are not released yet
	Listed     bool      // the owner's list says so; else the answer to a look-up
	Since      time.Time // when the list was first seen not to vouch for it
	Removed    bool      // its containers are gone, and its leases released
	Held       bool      // it is one too many for an hour, and waits for room or for [Sweeper.Confirm]
	Err        error     // why it is not, when it should be
}

// Detail describes it in one sentence without the sandbox's name.
func (o Orphan) Detail() string {
	names := make([]string, 0, 4)
	for _, c := range o.Containers[:min(len(o.Containers), 3)] {
		names = append(names, c.String())
	}
	if more := len(o.Containers) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	text := "its owner says that it is gone, and it has the containers " + strings.Join(names, ", ")
	switch {
	case o.Held:
		text += "; " + o.Err.Error()
	case o.Err != nil:
		text += "; their removal failed: " + o.Err.Error()
	}
	return text
}

// Swept is what one sweep found.
type Swept struct {
	Sandboxes int      // that containers are labelled as
	Listed    int      // rows of the owner's list
	Asked     int      // sandboxes that were looked up one by one
	Kept      int      // suspects that the owner did not call gone: valid ones, and unknown ones
	Orphans   []Orphan // in the order of their names
}

// A Sweeper finds orphans and, if it is configured to, removes them. The owner's word is asked
// for again while a removal goes on.
//
// Its methods are safe for concurrent use.
type Sweeper struct {
	cfg      Config
	ownerAsk watchdog.OwnerBackoff

	sweeping sync.Mutex // one sweep at a time; guards what follows
	missed   map[string]ipam.Stamp
	warned   map[string]string // by sandbox, "" for the sweep itself: the last trouble in the log
	brake    brake
	begun    bool // the brake knows what was ended before this process began

	again chan struct{} // one slot: sweep now

	mu        sync.Mutex // guards what follows
	orphans   []Orphan
	unclear   *UnclearError
	confirmed []string // sandboxes, by a person, since the last sweep
}

// New checks cfg. It makes no call.
func New(cfg Config) (*Sweeper, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("configure the sweep for orphans: %w", err)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Sweeper{cfg: cfg, warned: make(map[string]string), again: make(chan struct{}, 1)}, nil
}

// Run sweeps until ctx ends, and then returns nil. A removal that is under way
// ends after its present step.
func (s *Sweeper) Run(ctx context.Context) error {
	tick := time.NewTicker(s.cfg.Every)
	defer tick.Stop()
	for {
		_, _ = s.Sweep(ctx) // it has logged it
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-s.again:
		}
	}
}

// ErrOtherOrphans means that those who are held are not the ones that were confirmed.
var ErrOtherOrphans = errors.New("the orphans that are held are not those any more")

// Confirm lets the orphans be ended that a person has looked at: set is what [HeldSet]
// says of those that [Sweeper.Orphans] returned. It is [ErrOtherOrphans] when the last
// sweep holds others, more or fewer. Run sweeps at once. A nil s, without an owner, holds none.
func (s *Sweeper) Confirm(set string) error {
	if s == nil {
		return errors.New("no owner is configured, so there are no orphans")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := HeldSet(s.orphans); now == "" || set != now {
		return ErrOtherOrphans
	}
	for _, o := range s.orphans {
		if o.Held {
			s.confirmed = append(s.confirmed, o.Sandbox)
		}
	}
	broadcast.Wake(s.again)
	return nil
}

// recall takes from the book's history what was ended within the last hour before this
// process began, so that a restart gives no room. What had no lease is not in it.
func (s *Sweeper) recall(ctx context.Context) error {
	if s.begun || !s.cfg.Remove {
		return nil
	}
	past, err := s.cfg.Book.History(ctx, ipam.Query{Reason: reasonOrphaned, Since: s.cfg.Now().Wall.Add(-brakeWindow)})
	if err != nil {
		return err
	}
	last := make(map[string]ipam.Stamp) // of a sandbox's leases
	for _, c := range slices.Backward(past) {
		last[c.Sandbox] = c.At
	}
	s.brake.ended = slices.Collect(maps.Values(last))
	s.begun = true
	return nil
}

// Orphans returns those of the last sweep that could judge and that are not
// removed, and an [UnclearError] when the very last one could not judge.
func (s *Sweeper) Orphans() ([]Orphan, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unclear != nil {
		return slices.Clone(s.orphans), s.unclear
	}
	return slices.Clone(s.orphans), nil
}

// Sweep looks for orphans once and, with Remove, removes them. An error means
// that nothing could be judged: the runtime or the owner could not be asked,
// or [ErrEmptyList]. What fails for one sandbox is that orphan's.
func (s *Sweeper) Sweep(ctx context.Context) (*Swept, error) {
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	found, swept, err := s.judge(ctx)
	if err == nil {
		err = s.recall(ctx)
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("look for orphans: %w", ctx.Err())
	}
	if err != nil {
		err = fmt.Errorf("look for orphans: %w", err)
		s.warn("", err.Error(), func() { s.cfg.Log.Warn("orphans are not looked for", "err", err) })
		s.mu.Lock()
		unclear := &UnclearError{Since: s.cfg.Now().Wall, Cause: err}
		if s.unclear != nil {
			unclear.Since = s.unclear.Since
		}
		s.unclear = unclear
		s.mu.Unlock()
		return nil, err
	}
	s.warn("", "", nil)
	swept.Orphans = s.handle(ctx, found, swept.Sandboxes)
	left := slices.DeleteFunc(slices.Clone(swept.Orphans), func(o Orphan) bool { return o.Removed })
	s.mu.Lock()
	s.orphans, s.unclear = left, nil
	s.mu.Unlock()
	return swept, nil
}

// judge finds the orphans. The owner is asked last, so that it knows of every
// sandbox whose container was seen.
func (s *Sweeper) judge(ctx context.Context) ([]suspect, *Swept, error) {
	all, err := s.look(ctx)
	if err != nil {
		return nil, nil, err
	}
	list, err := s.cfg.Owner.List(ctx)
	if err != nil {
		return nil, nil, err
	}
	swept := &Swept{Sandboxes: len(all), Listed: len(list)}
	if len(list) == 0 && len(all) > 0 {
		return nil, nil, fmt.Errorf("%w, and %d sandboxes have containers", ErrEmptyList, len(all))
	}
	found, since := suspects(all, list, s.missed, s.cfg.Grace, s.cfg.Now())
	s.missed = since
	maps.DeleteFunc(s.warned, func(name, _ string) bool { _, still := since[name]; return name != "" && name != sweepHeld && !still })

	verdicts, errs := s.ask(ctx, found)
	var orphans []suspect
	for i, one := range found {
		if !one.listed {
			swept.Asked++
		}
		switch verdicts[i] {
		case watchdog.Gone:
			orphans = append(orphans, one)
			continue
		case watchdog.Valid:
			delete(s.missed, one.sandbox) // it is vouched for
			delete(s.warned, one.sandbox)
		}
		swept.Kept++
		if errs[i] != nil && ctx.Err() == nil {
			s.warn(one.sandbox, errs[i].Error(), func() {
				s.cfg.Log.Warn("sandbox is kept: its owner has no clear word about it", "sandbox", one.sandbox, "err", errs[i])
			})
		}
	}
	return orphans, swept, nil
}

// look reads what is there.
func (s *Sweeper) look(ctx context.Context) ([]*group, error) {
	leases, _ := s.cfg.Book.Leases()
	list, err := s.cfg.Runtime.List(ctx)
	if err != nil {
		return nil, err
	}
	return groups(leases, list), nil
}

// ask looks up each suspect that the list lacks, by its name. Those that the
// list itself calls gone cost no question, nor do those that come after one
// that the owner left unanswered.
func (s *Sweeper) ask(ctx context.Context, about []suspect) ([]watchdog.Verdict, []error) {
	verdicts, errs := make([]watchdog.Verdict, len(about)), make([]error, len(about))
	var questions errgroup.Group
	questions.SetLimit(s.cfg.Parallel)
	for i, one := range about {
		if one.listed {
			verdicts[i] = watchdog.Gone
			continue
		}
		questions.Go(func() error {
			if verdicts[i], errs[i] = s.ownerAsk.Look(ctx, s.cfg.Owner, one.sandbox); errs[i] != nil {
				verdicts[i] = watchdog.Unknown
			}
			return nil
		})
	}
	_ = questions.Wait()
	return verdicts, errs
}

// sweepHeld stands for the brake among the troubles in the log; no label has a zero byte.
const sweepHeld = "\x00held"

// handle removes orphans, or logs them.
func (s *Sweeper) handle(ctx context.Context, found []suspect, sandboxes int) []Orphan {
	may := make(map[string]bool)
	if s.cfg.Remove {
		s.mu.Lock()
		s.brake.confirm(s.confirmed)
		s.confirmed = nil
		s.mu.Unlock()
		may = s.brake.pass(found, sandboxes, s.cfg.Now())
	}
	out := make([]Orphan, len(found))
	var removals errgroup.Group
	removals.SetLimit(s.cfg.Parallel)
	for i, one := range found {
		out[i] = one.orphan()
		switch {
		case s.cfg.Remove && !may[one.sandbox]:
			out[i].Held, out[i].Err = true, s.brake.held[one.sandbox]
		case s.cfg.Remove:
			removals.Go(func() error {
				out[i].Err = s.remove(ctx, one)
				out[i].Removed = out[i].Err == nil
				return nil
			})
		}
	}
	_ = removals.Wait()
	for _, o := range out {
		if o.Removed {
			s.brake.over(o.Sandbox)
		}
	}
	if n, why := len(s.brake.held), s.brake.why(); why != nil {
		s.warn(sweepHeld, why.Error(), func() {
			s.cfg.Log.Warn("orphans are held", "held", n, "of", sandboxes, "most", s.brake.most, "reason", why, "next", "ipamctl doctor")
		})
	} else {
		s.warn(sweepHeld, "", nil)
	}
	for _, o := range out {
		switch {
		case !s.cfg.Remove:
			s.warn(o.Sandbox, "orphan", func() {
				s.cfg.Log.Warn("orphan found; it stays, watchdog.remove_orphans is off", "sandbox", o.Sandbox, "containers", len(o.Containers))
			})
		case o.Held:
		case o.Removed:
			s.warn(o.Sandbox, "", nil)
			s.cfg.Log.Info("orphan removed", "sandbox", o.Sandbox, "containers", len(o.Containers), "leases", len(o.Leases))
		case ctx.Err() == nil:
			s.warn(o.Sandbox, "stuck", func() { // not by its words: a deadline has many
				s.cfg.Log.Warn("orphan could not be removed", "sandbox", o.Sandbox, "err", o.Err)
			})
		}
	}
	return out
}

func (o suspect) orphan() Orphan {
	out := Orphan{Sandbox: o.sandbox, Listed: o.listed, Since: o.since.Wall}
	for _, w := range o.containers {
		out.Containers = append(out.Containers, w.Container)
	}
	for _, l := range o.leases {
		if l.State.Open() {
			out.Leases = append(out.Leases, l.ID)
		}
	}
	return out
}

// warn logs a trouble when it is another one than last time; "" ends it.
func (s *Sweeper) warn(about, trouble string, log func()) {
	if trouble == "" {
		delete(s.warned, about)
		return
	}
	if s.warned[about] != trouble {
		s.warned[about] = trouble
		log()
	}
}
