// Package netdb remembers who holds which address, durably, and can prove
// that it is consistent.
//
// It owns the lease book, one SQLite file in which ip is the PRIMARY KEY, and
// the table of moves that an address may make. It guarantees that
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
// Incident behind it: one address on two running sandboxes, because a table
// keyed by address was released by address.
package netdb
