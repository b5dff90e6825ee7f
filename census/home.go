package census

// A Home is the network namespace that a process is in, as a bridge knows it.
type Home struct {
	Netns NetnsID // the zero value: no link of the bridge's namespace leads there
	Ports *Ports  // of the bridge that lead there; nil is none
	// Host is the namespace that has the bridge itself. Behind it may be virtual
	// machines, into which no witness sees.
	Host bool
}

// Has reports whether something was seen in that namespace, or behind a port that
// leads there.
func (h Home) Has(s Sighting) bool {
	return h.Netns.Is(s.Netns) || h.Ports != nil && h.Ports.names[s.Port]
}
