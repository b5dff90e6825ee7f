// Package logging owns how the daemon's log is written: the handler that fits where
// standard error leads, the journal's fields, the queue, and the lines that repeat.
//
// It guarantees that a caller never waits for a reader of the log, that nothing
// which is logged steers a terminal, and that a line which is held back or lost is
// counted in one that is written. It never decides what is worth a line.
package logging
