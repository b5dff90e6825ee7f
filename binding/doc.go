// Package binding does what a bind needs beside the book: it checks the namespace that
// a bind names, records which link and which namespace the names are just now, returns
// a lease from before a rebuild to the owner that binds it, ends the watchdog's wait, and
// compares what was named with what the kernel shows.
//
// It decides nothing about an address: the rules are those of the book, and what
// belongs to a lease is for package workload to say.
package binding
