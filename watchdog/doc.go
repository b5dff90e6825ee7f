// Package watchdog releases an address only after the removal of its workload is
// confirmed.
//
// It guarantees that an address becomes reusable by one of two ways only: a
// lease that was never bound, and that no witness sees, ends at once; every
// other lease is releasing until the runtime and the kernel both confirm that
// nothing of its workload is left. "Could not ask" confirms nothing.
//
// [Watchdog.Run] confirms. Events only ask it to look again, so one that is
// lost, doubled or late changes nothing but the moment. It works under a
// context of its own: a client that hangs up in the middle of a release takes
// nothing back.
//
// Incident behind it: a cleanup loop released an address before it removed
// the container, and kept it released when the removal failed.
package watchdog
