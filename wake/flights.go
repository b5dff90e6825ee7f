package wake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ipamd/ipamd/internal/broadcast"
	"github.com/ipamd/ipamd/internal/share"
	"github.com/ipamd/ipamd/ipam"
)

// Book is what is asked of the lease book; *netdb.Book is one.
type Book interface {
	Now() ipam.Stamp
	Lease(id string) (*ipam.Lease, error)
	OpenOf(uid string) []*ipam.Lease
	Sleep(leaseID string) *ipam.Sleep
	Sleeps() []*ipam.Sleep
	Touched(states ...ipam.State) <-chan struct{}

	PauseAs(ctx context.Context, who ipam.Who, id string, ifRev int64, how ipam.Sleep) (*ipam.Lease, error)
	Resume(ctx context.Context, who ipam.Who, id string, ifRev int64) (*ipam.Lease, error)
	Wake(ctx context.Context, who ipam.Who, id string, within time.Duration, cause ipam.Cause, evidence json.RawMessage) (*ipam.Lease, *ipam.Flight, bool, error)
	TakeOn(ctx context.Context, who ipam.Who, id, flight string) (*ipam.Lease, error)
	Announce(ctx context.Context, who ipam.Who, id, flight string) (*ipam.Lease, error)
	Land(ctx context.Context, who ipam.Who, id, flight string, r ipam.FlightResult, detail string) (*ipam.Lease, error)
	Frozen(ctx context.Context, who ipam.Who, id string, since ipam.Stamp) (*ipam.Lease, error)
	TakeBack(ctx context.Context, who ipam.Who, id string, since ipam.Stamp, how ipam.Sleep, was ipam.State, before *ipam.Sleep) (*ipam.Lease, error)
}

// ErrRefused is wrapped by a [Resumer]'s error when another attempt would not help: the
// sandbox is gone, or it is not allowed. Any other error is tried again until the deadline.
var ErrRefused = errors.New("refused")

// A Resumer resumes the sandbox of a lease. It returns nil once the sandbox runs, also where
// it ran already.
type Resumer interface {
	Resume(ctx context.Context, l *ipam.Lease, s *ipam.Sleep) error
}

// A Pauser is a [Resumer] that also pauses. Pause returns nil once the sandbox stands still,
// also where it did already; its errors are those of Resume. After one some of its tasks may
// stand still.
type Pauser interface {
	Pause(ctx context.Context, l *ipam.Lease, s *ipam.Sleep) error
}

// A Teller is a [Pauser] that can say whether a sandbox stands still right now.
type Teller interface {
	Frozen(ctx context.Context, l *ipam.Lease) (bool, error)
}

// A Config has what a [Flights] needs.
type Config struct {
	Book    Book
	Resumer Resumer // nil: requests are announced on the stream of changes, and acknowledged there
	// FreezeOnly says that the Resumer wakes no sandbox that hibernates.
	FreezeOnly bool
	Counts     bool          // sandboxes without traffic are looked for, and calls Repause
	Wait       time.Duration // how long the resumer may take for a wake where the policy does not say
	Log        *slog.Logger
	// OnEnd is called for each flight that ends, with its result and how long it lasted. May be
	// nil.
	OnEnd func(f *ipam.Flight, r ipam.FlightResult, took time.Duration)
}

// Flights has sandboxes woken. All methods are safe for concurrent use.
type Flights struct {
	cfg  Config
	kick broadcast.Signal

	began ipam.Stamp                      // of Run
	life  atomic.Pointer[context.Context] // of Run; nil before it

	catcher Catcher // nil: traffic is not watched,
	blind   error   // because of this

	tasks share.Keyed[string] // locked by the uids of sandboxes whose tasks are paused or resumed right now

	mu        sync.Mutex
	announced map[string]announcement // flights that wait for an acknowledgement
	flying    map[string]time.Time    // flights that the resumer is at work on, and since when
	again     bool                    // there is a new subscriber: announce all
	seen      map[string]underWay     // open flights that are not known to have ended
}

// underWay is a flight and its lease.
type underWay struct {
	lease  string
	flight *ipam.Flight
}

// An announcement is when a flight was announced last, and how often.
type announcement struct {
	at    time.Time
	times int
}

// New returns flights that [Flights.Run] drives.
func New(cfg Config) (*Flights, error) {
	if cfg.Book == nil || cfg.Log == nil || cfg.Wait <= 0 {
		return nil, errors.New("wake: Book, Log and a Wait above 0 are needed")
	}
	return &Flights{cfg: cfg, announced: make(map[string]announcement), flying: make(map[string]time.Time),
		seen: make(map[string]underWay)}, nil
}

// The reasons of the changes that a wake makes.
const (
	reasonRequested = "wake_requested"
	reasonWaking    = "waking"
	reasonWoken     = "woken"
	reasonTimeout   = "wake_timeout"
	reasonRefused   = "wake_refused"
)

func itself(reason string) ipam.Who { return ipam.Who{Actor: ipam.ByReconciler, Reason: reason} }

// Wake begins the flight of a lease, or joins the one that is under way. The flight is nil
// for a lease that is bound.
func (f *Flights) Wake(ctx context.Context, who ipam.Who, id string, cause ipam.Cause, evidence json.RawMessage) (*ipam.Lease, *ipam.Flight, error) {
	who.Reason = reasonRequested
	l, flight, _, err := f.cfg.Book.Wake(ctx, who, id, f.cfg.Wait, cause, evidence)
	if err == nil && flight.Open() {
		f.mu.Lock()
		f.seen[flight.ID] = underWay{id, flight}
		f.mu.Unlock()
	}
	return l, flight, err
}

// Await waits until a flight has ended, or ctx has, and returns the lease as it is then: an
// error unless it is bound, or the flight woke it. That ctx ends is [ipam.ErrWakeTimeout], and the flight goes on.
func (f *Flights) Await(ctx context.Context, id, flight string) (*ipam.Lease, error) {
	for {
		changed := f.cfg.Book.Touched(ipam.Paused)
		l, err := f.cfg.Book.Lease(id)
		if err != nil {
			return nil, err // the lease is gone, and its flight with it
		}
		s := f.cfg.Book.Sleep(id)
		switch {
		case l.State == ipam.Bound:
			return l, nil
		case l.State != ipam.Paused:
			return nil, fmt.Errorf("wake %s: %w: it is %s", l.Addr, ipam.ErrGone, l.State)
		case s == nil || s.Flight == nil || s.Flight.ID != flight:
			return nil, fmt.Errorf("wake %s: %w: it was paused again", l.Addr, ipam.ErrWakeTimeout)
		case !s.Flight.Open() && s.Flight.Result == ipam.Woken:
			return l, nil // and it was paused again since
		case !s.Flight.Open():
			return nil, fmt.Errorf("wake %s: %w", l.Addr, failure(s.Flight))
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if s.Flight.Phase == ipam.Requested && f.cfg.Resumer == nil {
				return nil, fmt.Errorf("wake %s: %w: the runtime has not acknowledged flight %s", l.Addr, ipam.ErrWakeTimeout, flight)
			}
			return nil, fmt.Errorf("wake %s: %w: flight %s goes on", l.Addr, ipam.ErrWakeTimeout, flight)
		}
	}
}

func failure(f *ipam.Flight) error {
	why := ipam.ErrWakeTimeout
	if f.Result == ipam.Refused {
		why = ipam.ErrWakeRefused
	}
	if f.Detail == "" {
		return why
	}
	return fmt.Errorf("%w: %s", why, f.Detail)
}

// Acknowledge takes in what the runtime says of a flight that was announced to it: that it is at
// work on it ([ipam.Waking]), or how it ended. A flight that is unknown or has ended is an
// error, and nothing is changed.
func (f *Flights) Acknowledge(ctx context.Context, who ipam.Who, id, flight string, working bool, r ipam.FlightResult, detail string) (*ipam.Lease, error) {
	if working {
		who.Reason = reasonWaking
		return f.cfg.Book.TakeOn(ctx, who, id, flight)
	}
	who.Reason = map[ipam.FlightResult]string{ipam.Woken: reasonWoken, ipam.Refused: reasonRefused}[r]
	open := f.open(id)
	l, err := f.cfg.Book.Land(ctx, who, id, flight, r, detail)
	if err == nil {
		f.ended(open, r)
	}
	return l, err
}

// open is the flight of a lease that is under way, nil for none.
func (f *Flights) open(id string) *ipam.Flight {
	if s := f.cfg.Book.Sleep(id); s != nil && s.Flight.Open() {
		return s.Flight
	}
	return nil
}

func (f *Flights) ended(open *ipam.Flight, r ipam.FlightResult) {
	if open != nil && f.cfg.OnEnd != nil {
		f.cfg.OnEnd(open, r, f.cfg.Book.Now().Since(open.Begun))
	}
}

// resumed records by record that a sandbox runs, which ends its flight.
func (f *Flights) resumed(ctx context.Context, who ipam.Who, id string, rev int64, record func(context.Context, ipam.Who, string, int64) (*ipam.Lease, error)) (*ipam.Lease, error) {
	open := f.open(id)
	l, err := record(ctx, who, id, rev)
	if err == nil && l.State == ipam.Bound && l.Reason == who.Reason { // else it was bound already
		f.ended(open, ipam.Woken)
	}
	return l, err
}

// Subscribed has every flight that is not acknowledged announced again: a subscriber follows the
// changes who may not have seen it.
func (f *Flights) Subscribed() {
	if f.cfg.Resumer != nil {
		return
	}
	f.mu.Lock()
	f.again = true
	f.mu.Unlock()
	f.kick.Send()
}

// Unacknowledged is how many flights wait for the runtime's word.
func (f *Flights) Unacknowledged() (n int) {
	if f.cfg.Resumer != nil {
		return 0
	}
	for _, s := range f.cfg.Book.Sleeps() {
		if s.Flight.Open() && s.Flight.Phase == ipam.Requested {
			n++
		}
	}
	return n
}

// Run drives flights until ctx ends. Those that are under way then are gone on with at the
// next start.
func (f *Flights) Run(ctx context.Context) error {
	work, flying := errgroup.WithContext(ctx) // one slow resume must not hold up the others
	f.began = f.cfg.Book.Now()
	f.life.Store(&ctx)
	for {
		changed, kicked := f.cfg.Book.Touched(ipam.Paused), f.kick.Next()
		next := f.look(flying, work)
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
			timer.Stop()
			return work.Wait()
		case <-changed:
		case <-kicked:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// lookEvery is how long nothing is looked at when nothing changes.
const lookEvery = time.Minute

// look does what is due, and returns how long until something else is.
func (f *Flights) look(ctx context.Context, work *errgroup.Group) time.Duration {
	next := lookEvery
	room, turn := f.room()
	now := f.cfg.Book.Now()
	f.mu.Lock()
	again := f.again
	f.again = false
	f.mu.Unlock()
	waits, open := make(map[string]bool), make(map[string]underWay)
	for _, s := range f.cfg.Book.Sleeps() {
		if !s.Flight.Open() {
			continue
		}
		waits[s.Flight.ID], open[s.Flight.ID] = true, underWay{s.LeaseID, s.Flight}
		switch {
		case f.cfg.Resumer != nil:
			if !f.fly(ctx, work, s, &room) {
				next = min(next, turn)
			}
		case s.Flight.Phase == ipam.Requested:
			next = min(next, f.announce(ctx, s, again))
		default:
			// While no daemon ran the runtime could not say how it ended.
			left := s.Flight.Within - min(now.Since(s.Flight.Working), now.Since(f.began))
			if left <= 0 {
				f.land(ctx, s, ipam.TimedOut, fmt.Sprintf("the runtime took it on, and did not finish within %v", s.Flight.Within))
			} else {
				next = min(next, left)
			}
		}
	}
	f.released(open)
	f.mu.Lock()
	defer f.mu.Unlock()
	for id := range f.announced {
		if !waits[id] {
			delete(f.announced, id)
		}
	}
	return max(next, time.Millisecond)
}

// released counts the flights that were open and are gone with their leases, or with a pause that
// ended what was recorded.
func (f *Flights) released(open map[string]underWay) {
	f.mu.Lock()
	before := f.seen
	f.seen = maps.Clone(open) // a call may begin a flight from now on
	f.mu.Unlock()
	for id, one := range before {
		if _, still := open[id]; still {
			continue
		}
		result := ipam.Released
		if l, err := f.cfg.Book.Lease(one.lease); errors.Is(err, ipam.ErrClosed) || err == nil && l.State.Open() {
			if err != nil || f.cfg.Book.Sleep(one.lease) != nil {
				continue // it ended in another way, which is counted there
			}
			result = ipam.CalledOff
		}
		f.ended(one.flight, result)
	}
}

// The pause before a flight is announced again that is not acknowledged: it doubles.
const (
	firstAnnounced = time.Second
	lastAnnounced  = 10 * time.Minute
)

// announce announces a flight again when that is due, and returns how long until it is.
func (f *Flights) announce(ctx context.Context, s *ipam.Sleep, again bool) time.Duration {
	f.mu.Lock()
	t, known := f.announced[s.Flight.ID]
	f.mu.Unlock()
	pause := min(firstAnnounced<<min(t.times, 20), lastAnnounced)
	if !known {
		t, pause = announcement{at: time.Now()}, firstAnnounced // Wake announced it, or a daemon before this one
	} else if rest := pause - time.Since(t.at); rest <= 0 || again {
		if _, err := f.cfg.Book.Announce(ctx, itself(reasonRequested), s.LeaseID, s.Flight.ID); err != nil {
			f.complain(ctx, "announce again", s, err)
		}
		t.at, t.times = time.Now(), t.times+1
		pause = min(firstAnnounced<<min(t.times, 20), lastAnnounced)
	} else {
		return rest
	}
	f.mu.Lock()
	f.announced[s.Flight.ID] = t
	f.mu.Unlock()
	return pause
}

// complain logs an error of the book, and reports whether it is none: the flight ended in between.
func (f *Flights) complain(ctx context.Context, step string, s *ipam.Sleep, err error) (over bool) {
	for _, over := range []error{ipam.ErrGone, ipam.ErrFlightEnded, ipam.ErrFlightUnknown, ipam.ErrClosed} {
		if errors.Is(err, over) {
			return true
		}
	}
	if ctx.Err() == nil {
		f.cfg.Log.Warn("a step of a wake could not be recorded", "step", step, "lease", s.LeaseID, "flight", s.Flight.ID, "err", err)
	}
	return false
}

// land ends a flight, and reports whether the book has that.
func (f *Flights) land(ctx context.Context, s *ipam.Sleep, r ipam.FlightResult, detail string) bool {
	reason := map[ipam.FlightResult]string{ipam.Woken: reasonWoken, ipam.Refused: reasonRefused, ipam.TimedOut: reasonTimeout}[r]
	if _, err := f.cfg.Book.Land(ctx, itself(reason), s.LeaseID, s.Flight.ID, r, detail); err != nil {
		return f.complain(ctx, "end", s, err)
	}
	f.ended(s.Flight, r)
	return true
}
