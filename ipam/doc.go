// Package ipam has the values that all rooms speak in: leases, pools, what may be done
// with them, and the errors that refuse it.
//
// It stores nothing, asks nobody and has no goroutine: each function is one of its
// arguments, but for [Now], which reads the machine's clocks. So a room that decides by
// leases can be read, built and tested without the book; package netdb, which remembers
// them, is for those that open it, write it or read it.
//
// What is stored as JSON, a [PoolSpec], a [Plug], a [Plumbing], a [WakePolicy] or a [Flight], is
// stored by its fields' tags, and some of it is hashed: another spelling of one is a
// migration.
package ipam
