package census

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

// Behind reports whether something was seen behind a port of this name: by Port,
// or as one of several that lead there.
func (s Sighting) Behind(port string) bool {
	return s.Port == port || s.Leads != nil && s.Leads.names[port]
}
