package workload

import (
	"path"
	"slices"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
)

// JudgeSighting says whether a sighting of a lease's address is of the lease's
// own workload. On the wire only a positive difference makes a stranger, and only
// a positive likeness the owner: what is unknown on either side proves nothing.
func (x *Leases) JudgeSighting(l *ipam.Lease, s census.Sighting) Verdict {
	switch s.Witness {
	case census.Host:
		return Another // no sandbox lives on the bridge itself
	case census.Runtime:
		return x.Judge(l, Seen(s))
	}
	macs := l.MAC != "" && s.MAC != ""
	ports := l.HostInterface != "" && s.Port != ""
	sameMAC := l.MAC == s.MAC || l.MAC == s.Says
	if l.PrefixLen != 0 && ports {
		macs = false // what a sandbox does inside its prefix, and with which MACs, is its own; its port is not
	}
	switch {
	case macs && !sameMAC || ports && !s.Behind(l.HostInterface):
		return Another
	case macs || ports:
		return Ours
	}
	return Unknown
}

// Strangers returns the sightings that show a lease's address under
// another. What was seen is left as it is.
func (x *Leases) Strangers(l *ipam.Lease, seen []census.Sighting) []census.Sighting {
	return slices.DeleteFunc(slices.Clone(seen), func(s census.Sighting) bool { return x.JudgeSighting(l, s) != Another })
}

// A claim is what any guest or tenant can make: a frame that is sent, a label that is written. It
// is never the kernel's word on who has an address, as an address of the host or
// inside a namespace is.
func claim(s census.Sighting) bool {
	return s.Witness == census.Probe || s.Witness == census.Neighbour || s.Witness == census.Runtime
}

// Shown reports whether the kernel shows a lease's workload in its place: a namespace
// behind the lease's own port, and with its own MAC where one is recorded, has the
// address, or the neighbour table has it at both.
func Shown(l *ipam.Lease, seen []census.Sighting) bool {
	return slices.ContainsFunc(seen, func(s census.Sighting) bool {
		port := l.HostInterface != "" && s.Behind(l.HostInterface)
		mac := l.MAC != "" && s.MAC == l.MAC
		return port && (s.Witness == census.Netns && (mac || l.MAC == "") || s.Witness == census.Neighbour && mac)
	})
}

// Contradicted splits the strangers on the address of a lease whose owner asks for it
// again. Those against it are what the kernel shows. Those beside it are claims: what
// any guest or tenant can make while the kernel shows the lease's workload in its place, and at
// any time the record of a container without a task. One of which the runtime could
// not say that, which its note says, may have a task.
func (x *Leases) Contradicted(l *ipam.Lease, seen []census.Sighting) (against, beside []census.Sighting) {
	shown := Shown(l, seen)
	for _, s := range x.Strangers(l, seen) {
		if claim(s) && shown || s.Witness == census.Runtime && s.Task == "" && s.Note == "" {
			beside = append(beside, s)
		} else {
			against = append(against, s)
		}
	}
	return against, beside
}

// Claimed reports whether all that is seen of the address of a lease, whose own
// workload is gone, is claims of others: frames of strangers, and records of
// containers that are not its own.
func (x *Leases) Claimed(l *ipam.Lease, seen []census.Sighting) bool {
	for _, s := range seen {
		v := x.JudgeSighting(l, s)
		if s.Witness == census.Runtime && v == Ours || s.Witness != census.Runtime && (v != Another || !claim(s)) {
			return false
		}
	}
	return len(seen) > 0
}

// Backed reports whether nothing that is seen of an address contradicts that a
// lease's workload lives with it: no sighting is a stranger's, and those of which
// nothing says whose they are come from one port at most.
func (x *Leases) Backed(l *ipam.Lease, seen []census.Sighting) bool {
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

// Recognized reports whether an address is seen under none but a lease's own
// workload: it is not seen at all, or it is [Leases.Backed] and one sighting shows a
// place or a container that the lease records. A lease that records neither the
// MAC, nor the port, nor the namespace that is seen may be another's.
func (x *Leases) Recognized(l *ipam.Lease, seen []census.Sighting) bool {
	like := func(s census.Sighting) bool { return x.JudgeSighting(l, s) == Ours || inside(l, s) }
	return len(seen) == 0 || x.Backed(l, seen) && slices.ContainsFunc(seen, like)
}

// inside reports whether a namespace that has the lease's address has the name that
// the lease records.
func inside(l *ipam.Lease, s census.Sighting) bool {
	dir, name := path.Split(l.Netns)
	return s.Witness == census.Netns && name != "" && (dir == "/run/netns/" || dir == "/var/run/netns/") && s.Netns.Name() == name
}

// Plugged reports whether a namespace has a lease's address behind the port that the lease
// records, if it records one, and is known to be the lease's own: by the recorded MAC, or by
// the very link or namespace that the bind named in this boot. These count where there are no
// two MACs to compare, and inside a delegated prefix, where MACs are the sandbox's own matter.
// Names alone, which are used again, show nothing.
func Plugged(l *ipam.Lease, s census.Sighting) bool {
	if s.Witness != census.Netns || l.HostInterface != "" && !s.Behind(l.HostInterface) {
		return false
	}
	if l.MAC != "" && s.MAC == l.MAC {
		return true
	}
	return (l.MAC == "" || s.MAC == "" || l.PrefixLen != 0) && samePlug(l, s)
}

// samePlug reports that a sighting is at the link or in the namespace that a lease records,
// as this boot numbers them, and that neither is known to be another.
func samePlug(l *ipam.Lease, s census.Sighting) bool {
	is := ipam.Plug{Boot: ipam.Now().BootID, Inode: s.Inode}
	if s.Port == l.HostInterface { // behind several ports it is the index of one of them
		is.Index = s.Index
	}
	link := is.Index != 0 && is.Index == l.Plug.Index
	netns := is.Inode != 0 && is.Inode == l.Plug.Inode
	return (link || netns) && !l.Plug.OtherLink(is) && !l.Plug.OtherNetns(is)
}
