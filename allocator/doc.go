// Package allocator hands out an address that is free.
//
// It asks the book for the next candidate and the witnesses about that
// candidate, quarantines what is in use, and answers after the lease is
// durable. It guarantees that no address is given unchecked: when a kernel
// witness cannot answer, the allocation is refused, and what was seen under
// another is never given while it is seen.
//
// The hot path reads memory and waits for nothing but the commit: the
// bridge's news are drained at each request, and probes run ahead of demand.
//
// Incident behind it: the predecessor allocated unchecked when its check
// failed.
package allocator
