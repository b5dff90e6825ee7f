// Package watchdog releases an address only after the removal of its workload is
// confirmed.
//
// It guarantees that the address of a lease becomes reusable in two ways only: a
// lease that was never bound, and that no witness sees, ends at once; every
// other lease is releasing until the runtime and the kernel both confirm that
// nothing of its workload is left. "Could not ask" confirms nothing. An address
// that others use, or that is still seen long after its release, is quarantined
// instead: package reconciler, or an operator, ends that.
//
// A [Blocker] is a reason why a removal is not confirmed. One try to confirm is an
// attempt, in two stages: look-ups for one lease alone, then what is read once for all leases
// that passed those. Between its attempts a lease has a track, which says when the next
// one is due.
//
// [Watchdog.Run] confirms. Events only ask it to look again, so one that is
// lost, doubled or late changes nothing but the moment. It works under a
// context of its own: a client that hangs up in the middle of a release takes
// nothing back.
//
// Incident behind it: a cleanup loop released an address before it removed
// the container, and kept it released when the removal failed.
package watchdog
