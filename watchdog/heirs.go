package watchdog

import (
	"slices"

	"github.com/ipamd/ipamd/netdb"
)

// heirs is what younger leases have taken over of a released one. Names are
// used again: a sandbox that is made anew gets its host interface, its network
// namespace and its owner label under the same names, and what the new lease
// has must not hold up the old one for as long as the sandbox lives.
type heirs struct {
	host, netns bool        // the recorded plumbing is a younger open lease's
	leases      []string    // ids of its successors
	containers  []Container // that its successors record
}

// claims reports that a container is a successor's and not the lease's own. A
// container that the lease itself records is never given away.
func (h heirs) claims(w Workload) bool {
	return slices.Contains(h.leases, w.LeaseID) || slices.Contains(h.containers, w.Container)
}

// kin finds the open leases that share a name with another one.
type kin struct{ byHost, byNetns, bySandbox map[string][]*netdb.Lease }

func newKin(rows []*netdb.Lease) *kin {
	k := &kin{make(map[string][]*netdb.Lease), make(map[string][]*netdb.Lease), make(map[string][]*netdb.Lease)}
	for _, l := range rows {
		if l.State.Open() {
			k.byHost[l.HostInterface] = append(k.byHost[l.HostInterface], l)
			k.byNetns[l.Netns] = append(k.byNetns[l.Netns], l)
			k.bySandbox[l.Sandbox] = append(k.bySandbox[l.Sandbox], l)
		}
	}
	return k
}

// heirs returns what was taken over of l. A successor is the same sandbox on
// the same interface of the same pool; its other interfaces are no successors.
func (k *kin) heirs(l *netdb.Lease) heirs {
	takenBy := func(o *netdb.Lease) bool { return o.ID != l.ID && younger(o, l) }
	h := heirs{
		host:  l.HostInterface != "" && slices.ContainsFunc(k.byHost[l.HostInterface], takenBy),
		netns: l.Netns != "" && slices.ContainsFunc(k.byNetns[l.Netns], takenBy),
	}
	for _, o := range k.bySandbox[l.Sandbox] {
		if takenBy(o) && o.PoolUID == l.PoolUID && o.Interface == l.Interface {
			h.leases = append(h.leases, o.ID)
			h.containers = append(h.containers, recorded(o)...)
		}
	}
	return h
}

// younger reports that a began after b. Two leases of one request began at
// once, and neither is younger.
func younger(a, b *netdb.Lease) bool {
	if a.Created.BootID == b.Created.BootID {
		return a.Created.Boottime > b.Created.Boottime
	}
	return a.Created.Wall.After(b.Created.Wall)
}

// recorded returns the containers that the lease records.
func recorded(l *netdb.Lease) []Container {
	out := make([]Container, len(l.Containers))
	for i, c := range l.Containers {
		out[i] = Container(c)
	}
	return out
}
