package allocator

import (
	"slices"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/netdb"
)

// Strangers returns the sightings that show a lease's address under somebody
// else. Only a positive difference counts: an owner whose container is not
// labelled yet, or who answers the probe himself, is no stranger.
func Strangers(l *netdb.Lease, seen []census.Sighting) []census.Sighting {
	return slices.DeleteFunc(slices.Clone(seen), func(s census.Sighting) bool { return !stranger(l, s) })
}

func stranger(l *netdb.Lease, s census.Sighting) bool {
	switch s.Witness {
	case census.Host:
		return true // no sandbox lives on the bridge itself
	case census.Runtime:
		if slices.Contains(l.Containers, netdb.Container{Namespace: s.Namespace, ID: s.Container}) || s.LeaseID == l.ID {
			return false
		}
		return s.Sandbox != "" && s.Sandbox != l.Sandbox && s.Sandbox != l.UID
	default:
		return l.MAC != "" && s.MAC != "" && l.MAC != s.MAC && l.MAC != s.Says ||
			l.HostInterface != "" && s.Port != "" && !s.Behind(l.HostInterface)
	}
}
