// Package reload is how a daemon takes a configuration over, at its start and while it runs:
// the pools into the book, and the log's level. Everything else needs a restart.
//
// It guarantees that a reload is taken over as a whole or not at all, since half of one
// leaves a daemon that no file describes, and that the reason of a refusal is known until a
// configuration is taken over. A start goes on with a pool that has to stay on its bridge:
// the other pools and the sandboxes that live cannot wait for it.
package reload
