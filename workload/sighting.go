package workload

import (
	"path"
	"slices"
	"strings"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/netdb"
)

// JudgeSighting says whether a sighting of a lease's address is of the lease's
// own workload. On the wire only a positive difference makes a stranger, and only
// a positive likeness the owner: what is unknown on either side proves nothing.
func (x *Leases) JudgeSighting(l *netdb.Lease, s census.Sighting) Verdict {
	switch s.Witness {
	case census.Host:
		return Another // no sandbox lives on the bridge itself
	case census.Runtime:
		return x.Judge(l, Seen(s))
	}
	macs := l.MAC != "" && s.MAC != ""
	ports := l.HostInterface != "" && s.Port != ""
	sameMAC := l.MAC == s.MAC || l.MAC == s.Says
	switch {
	case macs && !sameMAC || ports && !s.Behind(l.HostInterface):
		return Another
	case macs || ports:
		return Ours
	}
	return Unknown
}

// Strangers returns the sightings that show a lease's address under somebody
// else. What was seen is left as it is.
func (x *Leases) Strangers(l *netdb.Lease, seen []census.Sighting) []census.Sighting {
	return slices.DeleteFunc(slices.Clone(seen), func(s census.Sighting) bool { return x.JudgeSighting(l, s) != Another })
}

// Backed reports whether nothing that is seen of an address contradicts that a
// lease's workload lives with it: no sighting is a stranger's, and those of which
// nothing says whose they are come from one port at most.
func (x *Leases) Backed(l *netdb.Lease, seen []census.Sighting) bool {
	port := l.HostInterface
	for _, s := range seen {
		switch v := x.JudgeSighting(l, s); {
		case v == Another:
			return false
		case v == Ours || s.Witness == census.Runtime || s.Port == "" || s.Port == s.Bridge:
		case port != "" && !s.Behind(port):
			return false
		case port == "":
			port = s.Port
		}
	}
	return true
}

// Recognized reports whether an address is seen under nobody but a lease's own
// workload: it is not seen at all, or it is [Leases.Backed] and one sighting shows a
// place or a container that the lease records. A lease that records neither the
// MAC, nor the port, nor the namespace that is seen may be of anybody.
func (x *Leases) Recognized(l *netdb.Lease, seen []census.Sighting) bool {
	like := func(s census.Sighting) bool { return x.JudgeSighting(l, s) == Ours || inside(l, s) }
	return len(seen) == 0 || x.Backed(l, seen) && slices.ContainsFunc(seen, like)
}

// inside reports whether a namespace that has the lease's address has the name that
// the lease records.
func inside(l *netdb.Lease, s census.Sighting) bool {
	dir, name := path.Split(l.Netns)
	return s.Witness == census.Netns && name != "" && (dir == "/run/netns/" || dir == "/var/run/netns/") &&
		strings.HasSuffix(s.Netns, " ("+name+")")
}

// Plugged reports whether a namespace has a lease's address behind the very MAC,
// and the very port where one is recorded, that the lease has.
func Plugged(l *netdb.Lease, s census.Sighting) bool {
	return s.Witness == census.Netns && l.MAC != "" && s.MAC == l.MAC && (l.HostInterface == "" || s.Behind(l.HostInterface))
}
