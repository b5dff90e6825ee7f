package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Errors of a request. The state of the book did not change.
var (
	// ErrInvalid is wrapped by every [FieldError].
	ErrInvalid = errors.New("invalid argument")
	// ErrNotFound means that no such lease, pool or address is known.
	ErrNotFound = errors.New("not found")
	// ErrGone means that the lease has ended and its address has, or may
	// have, another owner. Drop the lease id; there is nothing to undo.
	ErrGone = errors.New("lease is gone")
	// ErrStale means that the lease changed since the revision that the
	// caller acted on. Look again.
	ErrStale = errors.New("revision is stale")
	// ErrState means that the table of moves does not allow this one.
	ErrState = errors.New("not allowed in this state")
	// ErrCools means that the address was given while it cooled: it has to be
	// released and to cool anew, and is not free at once.
	ErrCools = fmt.Errorf("%w: its address still has to cool", ErrState)
	// ErrCancelled means that this attempt was cancelled before its allocate
	// arrived. Try again with a higher attempt.
	ErrCancelled = errors.New("attempt was cancelled")
	// ErrTombstones means that the book keeps as many cancelled attempts as it
	// has room for. None is dropped before its time; cancel again later.
	ErrTombstones = errors.New("too many cancelled attempts stand")
	// ErrTaken means that the address has an owner.
	ErrTaken = errors.New("address is taken")
	// ErrQuarantined means that the address is quarantined.
	ErrQuarantined = errors.New("address is quarantined")
	// ErrNotInPool means that the address is outside its pool's prefix, or
	// is excluded, or is the network's, the gateway's or the broadcast one.
	ErrNotInPool = errors.New("address is not given by the pool")
	// ErrExhausted means that the pool has no address to give now.
	ErrExhausted = errors.New("pool is exhausted")
	// ErrOverlap means that the prefix overlaps another pool's.
	ErrOverlap = errors.New("pool overlaps another")
	// ErrPoolNotEmpty means that the pool still has leases.
	ErrPoolNotEmpty = errors.New("pool is not empty")
	// ErrStaleGeneration means that a pool has gone on since what the caller sends: it
	// is in a later generation, or another pool has its name.
	ErrStaleGeneration = errors.New("generation is stale")
	// ErrDraining means that the pool gives no address any more.
	ErrDraining = errors.New("pool drains")
	// ErrPoolChanged means that the pool cannot give an address any more that was
	// picked before. Pick again.
	ErrPoolChanged = fmt.Errorf("%w: its pool changed since it was picked", ErrTaken)
	// ErrQuarantineFull means that the pool's share of quarantined addresses
	// is used up; the address stays unlisted and is not handed out while it
	// is seen.
	ErrQuarantineFull = errors.New("quarantine is at its cap")
)

// ErrGives means that an address cannot be withheld beside the pools, because one of them
// gives it, or could: it has to be a row of that pool.
var ErrGives = errors.New("a pool gives it")

// ErrNameTaken means that a host interface name is leased to another, or that a link of the
// host has it which is not known to be the caller's own.
var ErrNameTaken = errors.New("interface name is taken")

// ErrOtherRuntime means that the book's containers are in another container
// runtime than the one that answers now.
var ErrOtherRuntime = errors.New("it is not the container runtime that the book knows")

// ErrPruned is wrapped by every [PrunedError].
var ErrPruned = errors.New("the history does not reach back so far")

// ErrClosed means that the book was closed.
var ErrClosed = errors.New("the book is closed")

// A StaleError is [ErrStale] with the lease as it is now, and the revision at
// which the caller saw it.
type StaleError struct {
	Lease *Lease
	Seen  int64
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("lease %s of %s: %v: it is %s at %d, not at %d", e.Lease.ID, e.Lease.Addr, ErrStale, e.Lease.State, e.Lease.Rev, e.Seen)
}

func (e *StaleError) Unwrap() error { return ErrStale }

// An OwnedError says that the owner has an open lease already. Nothing was
// reserved.
type OwnedError struct{ Lease *Lease }

func (e *OwnedError) Error() string {
	return fmt.Sprintf("sandbox %q already holds %s", e.Lease.Sandbox, e.Lease.Text())
}

// A KeptError refuses an address that its pool keeps for another sandbox. It is
// [ErrTaken].
type KeptError struct {
	Addr    netip.Addr
	Pool    string
	Sandbox string // whose it is
}

func (e *KeptError) Error() string {
	return fmt.Sprintf("address %s: %v: pool %s keeps it for sandbox %q", e.Addr, ErrTaken, e.Pool, e.Sandbox)
}

func (e *KeptError) Unwrap() error { return ErrTaken }

// An ExhaustedError says what the pool is full of. It is [ErrExhausted].
type ExhaustedError struct {
	Pool      string
	PrefixLen int // of the delegated prefix that was wanted; 0 for an address
	ByState   map[State]int
	Next      time.Duration // until the next one has cooled for long enough; 0 when none cools
}

func (e *ExhaustedError) Error() string {
	s := fmt.Sprintf("%v: %s holds %d reserved, %d bound, %d paused, %d releasing, %d cooling, %d quarantined",
		ErrExhausted, e.Pool, e.ByState[Reserved], e.ByState[Bound], e.ByState[Paused],
		e.ByState[Releasing], e.ByState[Cooling], e.ByState[Quarantined])
	what := "address"
	if e.PrefixLen != 0 {
		what = fmt.Sprintf("/%d", e.PrefixLen)
		s += fmt.Sprintf("; no /%d of it is whole", e.PrefixLen)
	}
	if e.Next > 0 {
		s += fmt.Sprintf("; the next %s will have cooled in %s", what, max(e.Next.Round(time.Second), time.Second))
	}
	return s
}

func (e *ExhaustedError) Unwrap() error { return ErrExhausted }

// A StalePoolError is [ErrStaleGeneration] with the pool as it is now, nil when it was
// removed.
type StalePoolError struct {
	Pool  *Pool
	Name  string
	Asked int64  // the caller's generation, 0 when it named none
	Last  int64  // the present one, or the last of a pool that was removed
	UID   string // the caller's, "" when it named none
}

func (e *StalePoolError) Error() string {
	switch {
	case e.Pool == nil && e.UID != "":
		return fmt.Sprintf("pool %s: %v: there is none of uid %s", e.Name, ErrStaleGeneration, e.UID)
	case e.UID != "" && e.UID != e.Pool.UID:
		return fmt.Sprintf("pool %s: %v: its uid is %s, not %s", e.Name, ErrStaleGeneration, e.Pool.UID, e.UID)
	case e.Pool == nil:
		return fmt.Sprintf("pool %s: %v: it was removed in generation %d, this is %d", e.Name, ErrStaleGeneration, e.Last, e.Asked)
	case e.Asked == e.Last:
		return fmt.Sprintf("pool %s: %v: generation %d is another", e.Name, ErrStaleGeneration, e.Last)
	}
	return fmt.Sprintf("pool %s: %v: it is in generation %d, not %d", e.Name, ErrStaleGeneration, e.Last, e.Asked)
}

func (e *StalePoolError) Unwrap() error { return ErrStaleGeneration }

// A PoolNotEmptyError is [ErrPoolNotEmpty] with the leases in the way, in the order of
// their addresses.
type PoolNotEmptyError struct {
	Pool    *Pool
	Effects []LeaseEffect
	Bridge  string // that the pool stays on, because some of these live there; "" where none does
}

func (e *PoolNotEmptyError) Error() string {
	var named []string
	for _, f := range e.Effects[:min(len(e.Effects), namedMost)] {
		named = append(named, fmt.Sprintf("%s (%s, sandbox %q: %s)", f.Lease.Addr, f.Lease.State, f.Lease.Sandbox, f.Note))
	}
	if more := len(e.Effects) - len(named); more > 0 {
		named = append(named, fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("pool %s, %s: %v: %s", e.Pool.Name, e.Pool.Prefix, ErrPoolNotEmpty, strings.Join(named, ", "))
}

func (e *PoolNotEmptyError) Unwrap() error { return ErrPoolNotEmpty }

// namedMost is how many leases the text of an error names.
const namedMost = 5

// An OverlapError is [ErrOverlap] with the other pool.
type OverlapError struct {
	Spec  PoolSpec
	UID   string // that its pool has, or would get
	Other *Pool
}

func (e *OverlapError) Error() string {
	gateway := ""
	if e.Spec.Prefix.Contains(e.Other.Gateway) {
		gateway = fmt.Sprintf(", and the gateway %s", e.Other.Gateway)
	}
	return fmt.Sprintf("pool %s, %s: %v: %s has %s%s", e.Spec.Name, e.Spec.Prefix, ErrOverlap, e.Other.Name, e.Other.Prefix, gateway)
}

func (e *OverlapError) Unwrap() error { return ErrOverlap }

// An OtherPoolsRowError is [ErrOverlap] with a row that another pool has, or had, of an
// address that a pool is to get: nothing of it becomes the new pool's.
type OtherPoolsRowError struct {
	Addr           netip.Addr
	OldUID, NewUID string // of the pools
	Why            string // what keeps the address
}

func (e *OtherPoolsRowError) Error() string {
	return fmt.Sprintf("address %s: %v: %s; it is of pool %s, and the pool that is to get it is %s", e.Addr, ErrOverlap, e.Why, e.OldUID, e.NewUID)
}

func (e *OtherPoolsRowError) Unwrap() error { return ErrOverlap }

// A PrunedError means that changes after a revision are not in the history any
// more. A subscriber has missed some, and goes on behind Upto.
type PrunedError struct {
	Since int64 // the revision that the caller named
	Upto  int64 // the last one that is gone
}

func (e *PrunedError) Error() string {
	return fmt.Sprintf("%v: revisions %d to %d are gone", ErrPruned, e.Since+1, e.Upto)
}

func (e *PrunedError) Unwrap() error { return ErrPruned }
