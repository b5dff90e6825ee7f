package netdb

// A State is where an address is in its life. Free is the absence of a row.
type State string

const (
	Free        State = "free"        // no row
	Reserved    State = "reserved"    // handed out, not yet seen on the wire; has a bind deadline
	Bound       State = "bound"       // the runtime named its containers, netns, host interface and MAC
	Paused      State = "paused"      // frozen or hibernated; the address stays its own, without limit
	Releasing   State = "releasing"   // the owner let go or is known to be gone; removal is not confirmed
	Cooling     State = "cooling"     // removal confirmed; waits out the cooldown
	Quarantined State = "quarantined" // seen on the wire without a matching owner
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
