package census

import "fmt"

// Plugged is a port of a bridge that belongs to a lease's plumbing.
type Plugged struct {
	Port        string
	RenamedFrom string // the name that it was asked about by; "" when it has that still
	Bridge      string
	Netns       string // the path of the namespace that it leads into, where it was found by that
}

func (p Plugged) String() string {
	switch {
	case p.RenamedFrom != "":
		return fmt.Sprintf("%s, which was %s, is a port of %s", p.Port, p.RenamedFrom, p.Bridge)
	case p.Netns != "":
		return fmt.Sprintf("%s is a port of %s and leads into %s", p.Port, p.Bridge, p.Netns)
	}
	return fmt.Sprintf("%s is a port of %s", p.Port, p.Bridge)
}

// A RecordedNetns is a network namespace as a lease records it: what the path led to then, by its inode.
type RecordedNetns struct {
	Path  string
	Inode uint64
}

// Into is which ports lead into a [RecordedNetns]: none where another is at its path by now, or none at all.
type Into struct {
	Ports []int // their indexes
	// Unopened are the indexes of ports of those bridges that are wanted and not open, as one that another process
	// has. The rooms that follow ports know nothing of them.
	Unopened []int
	Err      error // it is not known, for the kernel did not say it in time
}
