package reconciler

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/broadcast"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/workload"
)

// Book is what the reconciler needs of the lease book.
type Book interface {
	Leases() ([]*ipam.Lease, int64)
	Lease(id string) (*ipam.Lease, error)
	Place(netip.Addr) ipam.Place
	Changed() <-chan struct{}

	Adopt(context.Context, ipam.Who, ipam.Adoption) (*ipam.Lease, error)
	Bind(ctx context.Context, who ipam.Who, id string, ifRev int64, b ipam.Binding) (*ipam.Lease, error)
	Pause(ctx context.Context, who ipam.Who, id string, ifRev int64) (*ipam.Lease, error)
	Still(ctx context.Context, who ipam.Who, id string, ifRev int64) (*ipam.Lease, error)
	Resume(ctx context.Context, who ipam.Who, id string, ifRev int64) (*ipam.Lease, error)
	QuarantineAt(ctx context.Context, who ipam.Who, a netip.Addr, rev int64, evidence json.RawMessage) (*ipam.Lease, error)
	ClearAt(ctx context.Context, who ipam.Who, id string, rev int64, unseen func() error) (*ipam.Lease, error)
	ConflictAt(ctx context.Context, who ipam.Who, id string, rev int64, evidence json.RawMessage) (*ipam.Lease, error)
	// Given reports whether the history knows a lease as the last of an address.
	Given(ctx context.Context, id string, a netip.Addr, sandbox, uid string) (bool, error)
	ConflictOverAt(ctx context.Context, who ipam.Who, id string, rev int64, evidence json.RawMessage) (*ipam.Lease, error)
}

// A Prober asks the wire for one address again. The answer comes to the board
// by itself, and so does its end, when later questions stay without one.
type Prober interface {
	Probe(ctx context.Context, addr netip.Addr) error
}

// A Watchdog looks closely at one lease and releases it if nothing speaks
// against it; *watchdog.Watchdog is one. Its calls have deadlines of their
// own and may be made concurrently.
type Watchdog interface {
	// Gone reports whether every container that the lease records answers a
	// look-up by its id not to be there, or the kernel says that of what it alone shows.
	Gone(ctx context.Context, l *ipam.Lease, all *workload.Leases) (bool, error)
	// Left says in a sentence what is left, where no witness looks, of a row's sandbox, or has its
	// address; "" when nothing is.
	Left(ctx context.Context, l *ipam.Lease) (string, error)
	// Reap looks everything up anew. What is there yet is why, and done is
	// false; else the lease is releasing if it is still at l.Rev.
	Reap(ctx context.Context, l *ipam.Lease, reason string) (done bool, why string, err error)
	// Expire does so with a reservation, which ends at once.
	Expire(ctx context.Context, l *ipam.Lease, reason string) (done bool, why string, err error)
}

// An Instance judges the runtime that answered last; *watchdog.Instance is one.
type Instance interface {
	// Err returns why its word that something is gone proves nothing; nil
	// when it does.
	Err() error
	// Accept believes it from now on.
	Accept(ctx context.Context) error
}

// Config makes a Reconciler. Every field is needed unless it says otherwise.
type Config struct {
	Book     Book
	Board    *census.Board
	Prober   Prober
	Watchdog Watchdog
	// Refresh reads kernel and runtime anew, whole. An error leaves a silence
	// on the board and does not end a pass.
	Refresh func(context.Context) error
	// Settle reads what the kernel has reported by now; it is cheap.
	Settle  func(ctx context.Context, about ...netip.Addr) error
	Runtime bool // a runtime witness is expected
	// Home says in which network namespace a process is, and which ports lead
	// there. nil: no claim is backed by a task.
	Home func(ctx context.Context, pid uint32) (census.Home, error)
	// UnrecordedPlumbing returns the names of a lease's plumbing that exist now, and whose link or
	// namespace the lease does not record; the zero Binding where there are none. It asks nothing of the
	// kernel. nil: no plumbing is recorded by a pass.
	UnrecordedPlumbing func(*ipam.Lease) ipam.Binding
	// Beside says in a sentence where each address is that is sought, in a namespace that no witness
	// reads. nil: none is looked for.
	Beside func(context.Context, census.Sought) (map[netip.Addr]string, error)
	// Sleep returns how the sandbox of the lease with an id is paused, or nil where nothing is recorded. The
	// function may be nil: then nothing is recorded of any lease.
	Sleep func(id string) *ipam.Sleep
	// Instance says whether the runtime that answers is the one that the
	// book's containers are in. nil: it always is.
	Instance Instance

	// A bound lease, or one that was frozen before the machine booted, is reaped when it is absent from Misses whole and complete
	// passes in a row and for Age.
	Misses int
	Age    time.Duration
	// A pass releases at most MaxReleases of the open leases, 0 < share <= 1,
	// or LeastReleases if that is more.
	MaxReleases   float64
	LeastReleases int

	Quarantine time.Duration // how long a quarantined address must be unseen
	Every      time.Duration // between two whole passes, at most
	Window     time.Duration // silence after a probe that counts as an answer

	Now    func() ipam.Stamp
	Log    *slog.Logger
	OnPass func(*Report) // called with each pass but previews. May be nil.
}

// A Reconciler runs passes, one at a time. It is safe for concurrent use.
type Reconciler struct {
	Config
	passing     chan struct{} // one slot, full while a pass is made, which alone touches what follows
	known       memory
	tried       map[stepKey]bool      // what the last pass planned
	quarantined map[netip.Addr]bool   // whether each is seen, at the last pass
	notes       *rate.Limiter         // of conflicts that begin
	beside      map[netip.Addr]string // where addresses are that no lease has and no witness sees, at the last reading
	asked       netip.Addr            // the last one probed; the next pass goes on behind it

	kick     chan struct{} // one slot: look
	pulse    broadcast.Pulse
	life     atomic.Pointer[context.Context]
	last     atomic.Pointer[Report]
	standing atomic.Int64
}

// New returns a Reconciler, or says what is missing.
func New(cfg Config) (*Reconciler, error) {
	switch {
	case cfg.Book == nil || cfg.Board == nil || cfg.Prober == nil || cfg.Watchdog == nil || cfg.Refresh == nil ||
		cfg.Settle == nil || cfg.Now == nil || cfg.Log == nil:
		return nil, errors.New("reconciler: a part is missing")
	case cfg.Misses <= 0 || cfg.Age <= 0 || cfg.LeastReleases <= 0 || cfg.Quarantine <= 0 || cfg.Every <= 0 || cfg.Window <= 0:
		return nil, errors.New("reconciler: a bound is zero")
	case !(cfg.MaxReleases > 0 && cfg.MaxReleases <= 1):
		return nil, errors.New("reconciler: MaxReleases is no share above 0 and up to 1")
	}
	return &Reconciler{Config: cfg, notes: rate.NewLimiter(rate.Every(noteEvery), notesMost), passing: make(chan struct{}, 1), kick: make(chan struct{}, 1), pulse: make(broadcast.Pulse)}, nil
}

// Last returns the report of the last pass that was no preview; nil before
// the first.
func (r *Reconciler) Last() *Report { return r.last.Load() }

// Conflicts is on how many held addresses a conflict stands, by the last look:
// another is seen there, or was and its end is not certain yet.
func (r *Reconciler) Conflicts() int { return int(r.standing.Load()) }

// Kick asks for a look soon. Kicks coalesce.
func (r *Reconciler) Kick() {
	broadcast.Wake(r.kick)
}

func (r *Reconciler) policy() policy {
	return policy{
		place: r.Book.Place, unrecordedPlumbing: r.UnrecordedPlumbing, sleep: r.Sleep, runtime: r.Runtime, misses: r.Misses, age: r.Age,
		quarantine: r.Quarantine, maxReleases: r.MaxReleases, leastReleases: r.LeastReleases,
	}
}
