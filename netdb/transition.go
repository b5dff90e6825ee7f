package netdb

import (
	"fmt"
	"slices"
)

// A move is one row of the table of moves: the only ways in which an address
// may change its state, and who may make them.
type move struct {
	from, to State
	by       []Actor
}

// moves is the table. The CHECK constraint on changes repeats it; a test
// tries every combination against both. A move from a state to itself notes
// something new (a container more, a higher attempt, a conflict) and frees nothing.
//
// What is not here does not exist: paused never cools directly, releasing
// never returns to bound, and only the watchdog, which has the removal
// confirmed, makes an address cool.
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
