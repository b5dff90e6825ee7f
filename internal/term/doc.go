// Package term writes for a person at a terminal: pages of sentences and tables
// that fit its width, untrusted names that cannot steer it, colour, and a screen
// that is drawn anew. It knows nothing of leases. A [Page] is a buffer. Only a [Screen] has a goroutine, which its Close ends.
//
// Tables and widths are go-pretty's, the raw terminal x/term's. A framework for terminals
// (bubbletea) is not used: top redraws one page a second, and the framework adds 1.5 MB and
// a score of packages to a tool that is copied as one small file.
package term
