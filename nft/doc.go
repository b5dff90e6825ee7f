// Package nft keeps one table of nftables as it is described.
//
// A [Table] is a value: chains, rules, sets and their elements. [Conn.Read] reads one
// back from the kernel, [Conn.Apply] makes the kernel's as it should be, by what differs
// and in one transaction: a packet sees all of it or nothing. Elements of sets are changed
// one by one by [Conn.Edit], whose cost does not depend on how many there are. [Watch]
// reports every transaction; [Conn.Ours] tells one's own. It reads by an [Inbox], which tells
// when news were lost; the reader of nflog has one, too.
//
// No other table is read or written. The package knows neither leases nor ports.
//
// The library below numbers new sets in a variable that nothing guards. Every set has its
// number from here before the library sees it, so that variable is never touched.
package nft
