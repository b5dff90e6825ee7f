// Package faultfs is a disk for tests that can lose its power and fail at any
// operation: one folder, kept in memory, behind a real mount (FUSE).
//
// A [Disk] behaves like any file system as long as no test makes it fail. It
// keeps a record of every operation that changes it, so that afterwards a
// [Replay] can say what a disk would hold if the power had been cut behind any
// one of them: what fsync or fdatasync of that very file had confirmed, and
// names only as far as fsync of the folder had, which is less than ext4 gives
// and all that POSIX promises. With a source of chance some of the rest has
// reached the disk as well, in any order and down to single sectors.
//
// What a program maps into its memory goes past the disk: a page fault that
// waits for its own process cannot be interrupted by Go's collector, and both
// would wait for ever. To make, find, open, resize and remove such a file can
// fail like all else; to read and write it cannot, and a record and a power
// loss know nothing of it.
package faultfs
