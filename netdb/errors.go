package netdb

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/ipamd/ipamd/netdb/bookfile"
	"github.com/ipamd/ipamd/netdb/group"
	"github.com/ipamd/ipamd/netdb/sqlite"
)

// Errors of Open, but for ErrIdentity. Each refusal leaves the file untouched.
var (
	// ErrLocked means that another process has the book open.
	ErrLocked = bookfile.ErrLocked
	// The file is no lease book of ipamd, was made by another version of it, or is broken.
	ErrNotABook    = sqlite.ErrNotABook
	ErrNewerSchema = sqlite.ErrNewerSchema
	ErrOlderSchema = sqlite.ErrOlderSchema
	ErrOldBuild    = sqlite.ErrOldBuild
	ErrDamaged     = sqlite.ErrDamaged
	// ErrIdentity means that the book was made for another runner or on
	// another machine. Open does not refuse it: see [Book.Identity].
	ErrIdentity = errors.New("the book belongs to another runner")
	// ErrExposed means that all users may write to the book, or make files beside it.
	ErrExposed = bookfile.ErrExposed
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
	ErrState = errors.New("state does not allow it")
	// ErrCools means that the address was given while it cooled: it has to be
	// released and to rest anew, and is not free at once.
	ErrCools = fmt.Errorf("%w: its address still has to cool", ErrState)
	// ErrCancelled means that a tombstone of this attempt came first. Try
	// again with a higher attempt.
	ErrCancelled = errors.New("attempt was cancelled")
	// ErrTombstones means that as many cancelled attempts stand as the book
	// keeps. None of them is given up for one more; ask again when some have
	// ended.
	ErrTombstones = errors.New("too many cancelled attempts stand")
	// ErrTaken means that the address has an owner.
	ErrTaken = errors.New("address is taken")
	// ErrQuarantined means that the address is quarantined.
	ErrQuarantined = errors.New("address is quarantined")
	// ErrNotInPool means that the address is outside its pool's prefix, or
	// is excluded, or is the network's, the gateway's or the broadcast one.
	ErrNotInPool = errors.New("address is not in the pool")
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

// Errors of the file. Retry; reads keep working.
var (
	// Another process holds its lock, it cannot be written, or its files were taken away.
	ErrBusy     = sqlite.ErrBusy
	ErrReadOnly = sqlite.ErrReadOnly
	ErrMoved    = sqlite.ErrMoved
	// ErrLogHeld means that the log is long, over 16 MiB, because a reader that
	// does not end, or one behind the other, keeps it from beginning anew. Requests do not meet it: it is
	// in [Info], as Growing.
	ErrLogHeld = errors.New("a reader holds the log")
	// ErrClosed means that the book was closed.
	ErrClosed = group.ErrClosed
)

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

// namedMost is how many leases the text of an error names.
const namedMost = 5

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
