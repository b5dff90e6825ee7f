package workload

import (
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
)

// NeverSeen reports that it says nothing of a lease's workload that no witness sees it: the
// lease records no container, which a runtime would know of, and nothing of it was ever seen on
// the bridge of its pool. It may live on another link, where no witness looks. A lease that ended
// for its absence had its address given to a second sandbox while the first ran. What was bound
// before the machine was booted is gone with that boot. Where no boot is recorded no look was made
// for it, as an older ipamd did not: it counts as unseen until a witness sees it in place.
func NeverSeen(l *ipam.Lease, boot string) bool {
	switch {
	case len(l.Containers) > 0:
		return false
	case l.Plug.Boot == "":
		return (l.State == ipam.Bound || l.State == ipam.Paused) && ipam.SameBoot(l.Since.BootID, boot)
	}
	return l.Plug.Unseen && l.Plug.OfBoot(boot)
}

// SeenInPlace reports whether a sighting of a lease's address is of its own workload, by what
// the kernel shows inside a namespace: by the namespace where that is known on both sides, else by
// its port or its MAC.
func (x *Leases) SeenInPlace(l *ipam.Lease, s census.Sighting) bool {
	switch {
	case s.Witness != census.Netns: // a frame is its sender's claim
		return false
	case l.Plug.Inode != 0 && s.Inode != 0 && l.Plug.OfBoot(ipam.Now().BootID):
		return s.Inode == l.Plug.Inode
	}
	return x.JudgeSighting(l, s) == Ours || inside(l, s) || Plugged(l, s)
}
