// Package binding does the part of a bind for which the book alone is not enough. It
//
//   - refuses a namespace, a container or a port whose end could never be confirmed;
//   - resolves the names in a bind, and records the index of the link and the inode of the
//     namespace beside them;
//   - gives a lease from before a rebuild back to the owner that binds it;
//   - reports to the watchdog that the owner has bound its lease;
//   - waits until the kernel has the rules of the lease;
//   - compares what a bind names with what the kernel shows.
//
// It also binds a lease in the commit of its allocation, and gives a sandbox a warm slot: see
// [OneCallAllocator]. [ResolvingBook], [PausingBook] and [ConfirmingBook] are the book as the reconciler and
// the watchdog write to it, with the same steps around each write.
//
// It decides nothing about an address: which moves are legal is the book's to say, and what
// belongs to a lease is package workload's.
package binding
