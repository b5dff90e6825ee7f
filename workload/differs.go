package workload

import (
	"path/filepath"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
)

// Differs finds the one mistake in a lease's own record that the kernel shows: the
// namespace behind the very port that the lease records has the address, with
// another MAC than is recorded. It returns that sighting.
//
// Everything else that is seen has to agree, or another may be there: no
// other port, no third MAC, nothing of the recorded one, no container of another
// sandbox, and no lease of another owner that records the port or the MAC, because
// the names of ports are used again. A port that differs is never such a mistake,
// whatever its MAC: a MAC is easily copied.
func (x *Leases) Differs(l *ipam.Lease, seen []census.Sighting) (at census.Sighting, found bool) {
	if l.MAC == "" || l.HostInterface == "" {
		return at, false
	}
	mac := ""
	for _, s := range seen {
		if s.Witness == census.Runtime {
			if x.Judge(l, Seen(s)) == Another {
				return at, false
			}
			continue
		}
		switch {
		case s.Witness == census.Host, s.Port != "" && !s.Behind(l.HostInterface), // somewhere else
			s.MAC == l.MAC || s.Says == l.MAC,        // the recorded one lives
			mac != "" && s.MAC != "" && s.MAC != mac, // two others
			s.Says != "" && s.Says != s.MAC,          // two in one answer
			s.Witness == census.Netns && otherNetns(l, s):
			return at, false
		}
		if s.MAC != "" {
			mac = s.MAC
			if s.Witness == census.Netns && !found {
				at, found = s, true
			}
		}
	}
	return at, found && !x.takenOver(l, at)
}

// otherNetns reports that a sighting is in a namespace of another name than the
// one that the lease records.
func otherNetns(l *ipam.Lease, s census.Sighting) bool {
	dir, file := filepath.Split(l.Netns)
	return s.Netns.Name() != "" && filepath.Base(dir) == "netns" && s.Netns.Name() != file
}

// takenOver reports that a lease of another owner records the port or the MAC of
// a sighting.
func (x *Leases) takenOver(l *ipam.Lease, s census.Sighting) bool {
	for _, o := range x.byID {
		if (o.Sandbox != l.Sandbox || o.UID != l.UID) && (o.HostInterface == l.HostInterface || o.MAC == s.MAC) {
			return true
		}
	}
	return false
}
