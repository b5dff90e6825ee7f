// Package changelog follows the history of a book and reports each change: once to a
// counter, and once as a line of the log.
//
// It guarantees that changes are reported in order and that no commit waits for it. A
// history that is pruned before it was read is reported as a gap. It changes nothing.
package changelog
