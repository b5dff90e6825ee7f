package census

import "maps"

// Ports are the names of the ports that lead to one place. They are shared by
// all sightings there and never change.
type Ports struct{ names map[string]bool }

// NewPorts returns the ports of these names.
func NewPorts(names ...string) *Ports {
	p := &Ports{names: make(map[string]bool, len(names))}
	for _, n := range names {
		p.names[n] = true
	}
	return p
}

// JoinPorts returns the ports of several bridges that lead to one place.
func JoinPorts(all ...*Ports) *Ports {
	joined := &Ports{names: make(map[string]bool)}
	for _, p := range all {
		if p != nil {
			maps.Copy(joined.names, p.names)
		}
	}
	if len(joined.names) == 0 {
		return nil
	}
	return joined
}

// Behind reports whether something was seen behind a port of this name: by Port,
// or as one of several that lead there.
func (s Sighting) Behind(port string) bool {
	return s.Port == port || s.Leads != nil && s.Leads.names[port]
}

// A LastKnown is where a sandbox was last known to be, as this boot of the machine numbers it.
type LastKnown struct {
	Name   string // of the link of the host that it names; "" is none, or another sandbox's by now
	Link   int    // index of that link; 0: not known
	Behind int    // index of the port that it was last seen behind, where it names none; 0 is none
	Netns  string // path of its namespace; "" is none
	Inode  uint64 // of that namespace; 0: not known, and the path says nothing
	MAC    string // of the sandbox's end; "": not known
	// Over: its owner has released it. A port that it was only seen behind says then no more
	// than what is behind it.
	Over bool
	// Taken reports that a lease of another sandbox records the link of an index; nil: none does. An
	// index is used again, for a link that comes from another namespace with it.
	Taken func(index int) bool
}
