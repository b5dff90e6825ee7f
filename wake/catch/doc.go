// Package catch says when traffic reaches a paused sandbox.
//
// It owns one table of nftables, with a chain at the egress of each port whose sandbox
// sleeps: host, neighbours and the world pass there. The kernel copies the first packet that
// the policy of the lease names to nflog, at most one a second for each address; where
// the sandbox is frozen nothing is dropped, and where it hibernates what would wake it is, so
// that its sender tries again. The copies say no more than "look again": what is done is decided by the book.
package catch
