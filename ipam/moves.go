package ipam

import (
	"fmt"
	"slices"
)

// A State is where an address is in its life. Free is the absence of a row.
type State string

const (
	Free        State = "free"        // no row
	Reserved    State = "reserved"    // handed out, not bound yet; has a bind deadline
	Bound       State = "bound"       // the runtime named its containers, netns, host interface or MAC, or a pass found them
	Paused      State = "paused"      // frozen or hibernated; the address stays its own, without limit
	Releasing   State = "releasing"   // the owner released it or is known to be gone; removal is not confirmed
	Cooling     State = "cooling"     // removal confirmed; waits out the cooldown
	Quarantined State = "quarantined" // not given: seen in use without a matching owner, or kept back by an operator or a rebuild
)

// Cancelled is what becomes of an attempt; no address is ever in this state. It
// is in the history only.
const Cancelled State = "cancelled"

// States lists every state of a row, in the order of an address's life.
func States() []State {
	return []State{Reserved, Bound, Paused, Releasing, Cooling, Quarantined}
}

// Open reports that the state belongs to a sandbox that may use the address.
// There is at most one open lease per owner.
func (s State) Open() bool { return s == Reserved || s == Bound || s == Paused }

// An Actor is the room, or the person, that a move is made by.
type Actor string

const (
	ByAllocator  Actor = "allocator"
	ByClient     Actor = "client"
	ByWatchdog   Actor = "watchdog"
	ByReconciler Actor = "reconciler"
	ByOperator   Actor = "operator"
)

// Actors lists every actor.
func Actors() []Actor {
	return []Actor{ByAllocator, ByClient, ByWatchdog, ByReconciler, ByOperator}
}

// A move is one row of the table of moves: the only ways in which an address
// may change its state, and who may make them.
type move struct {
	from, to State
	by       []Actor
}

// moves is the table. The CHECK constraint on the changes of a book repeats it; a test of netdb
// tries every combination against both. A move from a state to itself notes
// something new (a container more, a higher attempt, a conflict) and frees nothing.
//
// What is not here does not exist: paused never cools directly, releasing
// never returns to bound, and only the watchdog, which has the removal
// confirmed, makes the address of a lease cool.
var moves = []move{
	{Free, Reserved, []Actor{ByAllocator}},
	{Free, Quarantined, []Actor{ByAllocator, ByReconciler, ByOperator}},
	{Free, Bound, []Actor{ByReconciler}}, // adopt

	{Reserved, Reserved, []Actor{ByAllocator, ByReconciler}},
	{Reserved, Bound, []Actor{ByClient, ByReconciler}},
	{Reserved, Free, []Actor{ByWatchdog}}, // never bound, and not seen
	{Reserved, Releasing, []Actor{ByClient, ByWatchdog, ByReconciler, ByOperator}},

	{Bound, Bound, []Actor{ByAllocator, ByClient, ByReconciler}},
	{Bound, Paused, []Actor{ByClient, ByReconciler}},
	{Bound, Releasing, []Actor{ByClient, ByWatchdog, ByReconciler, ByOperator}},

	{Paused, Paused, []Actor{ByAllocator, ByClient, ByReconciler}},
	{Paused, Bound, []Actor{ByClient, ByReconciler}},
	{Paused, Releasing, []Actor{ByClient, ByWatchdog, ByReconciler, ByOperator}},

	{Releasing, Releasing, []Actor{ByReconciler}},             // a conflict begins or ends
	{Releasing, Cooling, []Actor{ByWatchdog}},                 // removal confirmed
	{Releasing, Quarantined, []Actor{ByWatchdog, ByOperator}}, // still on the wire for too long; or it cannot be confirmed

	{Cooling, Reserved, []Actor{ByAllocator}}, // its own sandbox again, or the cooldown is over
	{Cooling, Quarantined, []Actor{ByAllocator, ByReconciler, ByOperator}},
	{Cooling, Bound, []Actor{ByReconciler}}, // adopt
	{Cooling, Free, []Actor{ByAllocator, ByReconciler}},

	{Quarantined, Bound, []Actor{ByAllocator, ByClient, ByReconciler, ByOperator}}, // adopt: its former owner came back, or a person says so
	{Quarantined, Quarantined, []Actor{ByOperator}},                                // a hold
	{Quarantined, Cooling, []Actor{ByReconciler, ByOperator}},
}

// Legal returns nil when the table of moves lets the actor take an address
// from one state to another, else an error that is [ErrState].
func Legal(by Actor, from, to State) error {
	for _, m := range moves {
		if m.from == from && m.to == to {
			if slices.Contains(m.by, by) {
				return nil
			}
			return fmt.Errorf("%w: %s may not move %s to %s", ErrState, by, from, to)
		}
	}
	return fmt.Errorf("%w: no move from %s to %s", ErrState, from, to)
}
