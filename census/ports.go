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
