// Package term writes for a person at a terminal: pages of sentences and tables
// that fit its width, untrusted names that cannot steer it, colour, and a screen
// that is drawn anew. It knows nothing of leases, and never writes by itself: a
// [Page] is a buffer. Only a [Screen] has a goroutine, which its Close ends.
package term
