// Package soak is a test: ipamd under a steady load, and what it keeps of it.
//
// ipamd runs as the program that is shipped, in a process of its own, with a
// real rt0 in a network namespace. 64 clients allocate, bind, pause, resume and
// release without end; another process holds a thousand connections and says
// nothing on them. Meanwhile resident memory, open files and goroutines are
// read each second, and the heap that a collection left. After the first part,
// in which caches fill, they must stay where they are; once the clients have left, files and goroutines must be
// as many as before they came.
//
// TestF1SoakOfALargePool does the same in a pool of which no address comes back:
// what is left of ever new sandboxes is no row and no more of the heap than what a
// pool remembers at most.
//
// TestGreedyHolder measures a lone caller beside a process with four hundred.
//
// TestTenThousand is the other end: ten times as many connections, with room
// for a tenth of them and with room for all, and a greedy process among them.
//
// `go test ./soak` takes a minute and `make soak` ten; -soak.for is the time.
// Latencies are printed and not judged, since what a shared machine does to a p99 is no fault of
// ipamd's. One is asserted: the middle one in the crowd, by that without it.
package soak
