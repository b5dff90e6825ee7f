// Package enforce has the kernel refuse what the book does not allow.
//
// [Ruleset] is what nftables has to be: a pure function of who may use which address on
// which port. Everything is an element of a set, keyed by port, MAC and address; no rule is
// made for a lease, so a packet's way is as long with one lease as with fifty thousand. A
// port is known by its link's index. A name is used again, and so is an index where a link came from another
// namespace with it: of two sandboxes whose leases record one link, it is that of the later.
//
// A [Keeper] makes it so: before a bind is answered its elements are there, and they are
// gone before an address cools. It reads the table back, and repairs it when another program
// changed it. No other table is looked at.
//
// A port without a lease may use no address and no MAC of a lease or gateway; with
// Policy.DropUnleased it may send nothing, unless it is trusted. A lease whose port is gone
// keeps its address and MAC from all ports. A packet that is refused is counted for its port
// and reason; with [Observe] that is all that becomes of it.
package enforce
