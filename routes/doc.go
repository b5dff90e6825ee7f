// Package routes is what a gateway of a fleet imports: a table from whole sandbox ids
// to their addresses, which old news cannot undo.
//
// A [Table] has two writers that race. The daemon's stream of changes is ordered and
// complete; peers' pushes are earlier, and may be late, doubled or out of order. Both
// speak of an address at a revision of the book, and the book has one row an address,
// so there is one rule: of what is known of an address the highest revision stands.
//
// What ended is remembered as long as it is needed, and no longer: until the stream has
// passed its revision. From then on the stream's position says the same of all
// addresses at once: whatever is not in the table at the position had ended by then, so
// a push of that revision or an earlier one is stale, were it a year late. A fence in
// minutes, the usual remedy, fails after its minutes.
//
// A push is believed until the stream can say otherwise: what it has passed and did not
// bring, and what it is far from after a minute, was false, and the table asks for a list.
//
// A route is dropped only when its lease ended. A paused sandbox keeps its route and is
// not served; one that is not ready is not gone; a state that this build does not know
// is kept. Revisions of two epochs are never compared: a list of a new epoch replaces
// all that was there.
package routes
