// Package netdb remembers who holds which address, durably, and can prove
// that it is consistent.
//
// It owns the lease book, one SQLite file in which ip is the PRIMARY KEY. What is in it,
// and which moves an address may make, package ipam says. It guarantees that
//
//   - no address has two owners, ever;
//   - a method that changes something returns after the change is durable, or
//     with an error and nothing changed;
//   - every change carries a revision, a reason, an actor and a time;
//   - a change names the lease, never the address alone, so that late news
//     about a former owner cannot touch the next one.
//
// It never looks at the wire and never asks a runtime: the caller that moves a lease
// towards free has done that, and says so by the actor it names.
//
// # Parts
//
// A [Book] is put together from parts:
//
//	store    the file, which package sqlite keeps open, and whose book it is
//	index    the same rows in memory, and which addresses are offered to callers: package index
//	writer   commits; package group has a caller that waits for one make it for all that wait
//	history  what the file has of the past, on connections of its own
//	upkeep   what follows a commit: fold the log, prune the history; and Retry
//	verbs    leases, releases, quarantines, pools, sleeps, slots, formers: each in its file
//
// A verb is a function of a transaction (tx), which stages what changes. The store writes what is
// staged, and once that is durable the index applies it. An opening makes a store and reads the
// first index; a checker reads both.
//
// No part has a goroutine of its own. The caller that holds the writer's lock commits.
// Only the lock holder uses the writing connection, its statements, the mark, the
// batch and the fields of upkeep, and only it changes the index.
//
// Locks are taken in this order: the writer's lock, that of the index, and last those of the
// clock, the queue and the signal, which call nothing. The locks of history (lasts,
// conflicts) are never taken under the writer's: no commit waits for a reader.
//
// Incident behind it: one address on two running sandboxes, because a table
// keyed by address was released by address.
package netdb
