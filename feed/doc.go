// Package feed gives the changes of a book to many readers, in commit order, each once.
//
// The newest changes are in memory, encoded once for all readers; older ones are read
// from the book. A line is encoded for one epoch of it, and memory begins anew with the next.
// A reader says where it is and gets what follows, so one that stops
// costs nothing, one that comes back misses nothing, and no commit waits for any. What
// the history has not kept is refused, and never left out without a word.
//
// A reader of older changes takes some ahead, as long as all of them together hold a few
// megabytes so; beyond that each reads a batch at a time.
//
// It has no goroutine of its own: the reader that needs the newest changes first reads
// them for the others.
package feed
