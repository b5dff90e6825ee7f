package workload

import (
	"slices"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/netdb"
)

// NeverSeen reports that it says nothing of a lease's workload that no witness sees it: the
// lease records no container, which a runtime would know of, and nothing of it was ever seen on
// the bridge of its pool. It may live on another link, where no witness looks. A lease that ended
// for its absence had its address given to a second sandbox while the first ran. What was bound
// before the machine was booted is gone with that boot.
func NeverSeen(l *netdb.Lease, boot string) bool {
	return l.Plug.Unseen && len(l.Containers) == 0 && l.Plug.Boot == boot
}

// SeenInPlace reports whether one of the sightings of a lease's address is of its own workload:
// by its port, its MAC or its namespace.
func (x *Leases) SeenInPlace(l *netdb.Lease, seen []census.Sighting) bool {
	return slices.ContainsFunc(seen, func(s census.Sighting) bool {
		return s.Witness != census.Runtime && (x.JudgeSighting(l, s) == Ours || inside(l, s) || Plugged(l, s))
	})
}
