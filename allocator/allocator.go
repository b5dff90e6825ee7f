package allocator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
)

// A Prober asks the wire for one address. The answer, if there is one, comes
// to the board.
type Prober interface {
	Probe(ctx context.Context, addr netip.Addr) error // does not wait for the answer
	// MissedSince reports whether an answer may have been lost since t.
	MissedSince(t time.Time) bool
}

// Config makes an Allocator. Every field is needed unless it says otherwise.
type Config struct {
	Book   *netdb.Book
	Board  *census.Board
	Prober Prober
	// Settle reads the kernel's news so far, so that the board is
	// current about some addresses. It is called at each allocation and must be cheap.
	Settle func(ctx context.Context, about ...netip.Addr) error
	// HasLink reports whether the host has a link of a name. It is called for requests
	// that want one.
	HasLink func(ctx context.Context, name string) (bool, error)
	// Gate returns nil when addresses of these pools may be given: an error is [ErrNotReady],
	// [ErrBridge] or [netdb.ErrIdentity].
	Gate func(pools ...*ipam.Pool) error

	Pool         string // the default pool's name
	Policy       ipam.Policy
	BindWithin   time.Duration // default of a request
	MaxConflicts int           // addresses in use that one request may meet
	RequireAll   bool          // the runtime must answer too, not only the kernel

	ProbeWindow time.Duration // after a probe: an address that has not answered by then is not in use
	ProbeAhead  int           // candidates of each pool that are probed ahead without demand

	Log        *slog.Logger
	OnConflict func(Skipped) // called once for each address. May be nil.
	// OnAnswer gets a lease before it is answered, and within which time
	// it will be bound. May be nil.
	OnAnswer func(l *ipam.Lease, within time.Duration)
}

// An Allocator hands out addresses. It is safe for concurrent use.
type Allocator struct {
	Config
	vet      *vetter
	reported reported              // addresses in use beyond the share of quarantines
	former   map[ipam.Owner]string // ids of leases from before a rebuild; see formers
}

// New returns an Allocator, or says what is missing.
func New(cfg Config) (*Allocator, error) {
	switch {
	case cfg.Book == nil || cfg.Board == nil || cfg.Prober == nil || cfg.Settle == nil || cfg.HasLink == nil || cfg.Gate == nil || cfg.Log == nil:
		return nil, errors.New("allocator: a part is missing")
	case cfg.Pool == "":
		return nil, errors.New("allocator: no default pool")
	case cfg.BindWithin <= 0 || cfg.MaxConflicts <= 0 || cfg.ProbeWindow <= 0 || cfg.ProbeAhead <= 0:
		return nil, errors.New("allocator: a bound is zero")
	case cfg.Policy.Cooldown <= 0 || cfg.Policy.CooldownMin <= 0 || cfg.Policy.CooldownMin > cfg.Policy.Cooldown:
		return nil, errors.New("allocator: the cooldowns are not 0 < least <= full")
	}
	return &Allocator{Config: cfg, vet: newVetter(cfg), former: formers(cfg.Book)}, nil
}

// Run probes ahead of demand until ctx ends.
func (a *Allocator) Run(ctx context.Context) error { return a.vet.run(ctx) }

// Allocate gives a sandbox's interface its address: the lease it has, its own
// last address while that cools, or one that is free. It returns once
// the lease is durable.
//
// Errors: [ipam.FieldError]; what Gate says; [EvidenceError];
// [ConflictError]; [ipam.ErrExhausted]; [ipam.ErrCancelled]; for a wish
// [ipam.ErrTaken], [ipam.ErrQuarantined], [ipam.ErrNotInPool]; for a name of a link
// [ipam.ErrNameTaken], [ipam.ErrState] (its interface has another); and those
// of the book's file. Nothing is reserved by a call that fails.
func (a *Allocator) Allocate(ctx context.Context, req Request) (*Result, error) {
	pools, err := a.Ready(ctx, &req)
	if err != nil {
		return nil, err
	}
	call := &call{Allocator: a, req: req, pools: pools, who: ipam.Who{Actor: ipam.ByAllocator, Peer: req.Peer, Reason: "allocated"}}
	defer call.drop()
	for _, p := range pools {
		if err := call.plan(ctx, p); err != nil {
			return nil, err
		}
	}
	return call.commit(ctx)
}

// Ready completes a request, and returns the pools that it draws from, v4 first, once
// addresses of them may be given.
func (a *Allocator) Ready(ctx context.Context, req *Request) ([]*ipam.Pool, error) {
	if err := req.complete(a); err != nil {
		return nil, err
	}
	pools, err := a.pools(req)
	if err != nil {
		return nil, err
	}
	if req.PrefixLen, err = pools[0].CheckPrefixLength(req.PrefixLen); err != nil {
		return nil, err
	}
	if err := a.Gate(pools...); err != nil {
		return nil, err
	}
	if err := a.Settle(ctx); err != nil {
		return nil, a.refused(ctx, err, pools...)
	}
	// Once more: the kernel may just have reported that the bridge is down.
	return pools, a.Gate(pools...)
}

// refused is the answer when the kernel's news could not be read: the
// silent witnesses, or the error itself when none says so. A caller that hung up
// says nothing about a witness.
func (a *Allocator) refused(ctx context.Context, err error, pools ...*ipam.Pool) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("wait for the kernel's news: %w", ctx.Err())
	}
	for _, p := range pools {
		if silent := a.Board.About(p.Prefix.Addr()).Silent; len(silent) > 0 {
			return &EvidenceError{silent}
		}
	}
	return fmt.Errorf("%w: %w", ErrEvidence, err)
}

// ask reads the board, and says whether an address may be given: nil, an
// [EvidenceError], or a [seenError].
func (a *Allocator) ask(c netdb.Candidate) error {
	answer := a.about(c)
	if missing := a.missing(answer); len(missing) > 0 {
		return &EvidenceError{missing}
	}
	if len(answer.Seen) > 0 {
		return &seenError{Skipped{answer.Addr, answer.Seen}}
	}
	return nil
}

// about asks the board about an address, or about every one of a prefix: then the answer is
// about the first one that is seen.
func (a *Allocator) about(c netdb.Candidate) census.Answer {
	if c.PrefixLen == 0 {
		return a.Board.About(c.Addr)
	}
	r := c.Range()
	answer := a.Board.AboutRange(r.From, r.To)
	if len(answer.Seen) > 0 {
		answer.Addr = answer.Seen[0].Addr
		answer.Seen = slices.DeleteFunc(answer.Seen, func(s census.Sighting) bool { return s.Addr != answer.Addr })
	}
	return answer
}

// missing returns the witnesses that must answer and cannot.
func (a *Allocator) missing(answer census.Answer) (missing []census.Silence) {
	for _, s := range answer.Silent {
		if s.Witness.Kernel() || a.RequireAll {
			missing = append(missing, s)
		}
	}
	return missing
}

// seenError ends a candidate: it is in use.
type seenError struct{ Skipped }

func (e *seenError) Error() string {
	return fmt.Sprintf("address %s is in use on the wire: seen by %s", e.Addr, e.Seen[0].Witness)
}
