// Package watchdog lets a lease go only after the removal of its workload is
// confirmed.
//
// It guarantees that an address becomes reusable by one of two ways only: a
// lease that was never bound, and that no witness sees, ends at once; every
// other lease is releasing until the runtime and the kernel both confirm that
// nothing of its workload is left. "Could not ask" confirms nothing.
//
// Incident behind it: a cleanup loop released an address before it removed
// the container, and kept it released when the removal failed.
package watchdog
