package server

import (
	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/workload"
)

// belongs says whose a sighting of a lease's address is. It knows of no other
// lease, as a request that asks about one does not read them all.
func belongs(l *ipam.Lease, s census.Sighting) api.Belongs {
	switch new(workload.Leases).JudgeSighting(l, s) {
	case workload.Another:
		return api.Stranger
	case workload.Ours:
		return api.Owner
	}
	return api.Unknown
}

// judged are sightings of a held address, each with whose it is. Where the lease's
// own record differs from its plumbing, nothing shows whose it is: that is reported as
// binding_differs, and no conflict is noted.
func judged(l *ipam.Lease, seen []census.Sighting) []api.Sighting {
	out := sightings(seen)
	if _, differs := workload.NewLeases([]*ipam.Lease{l}).Differs(l, seen); differs && l.Conflict == nil {
		for i := range out {
			out[i].Belongs = api.Unknown
		}
		return out
	}
	for i := range out {
		out[i].Belongs = belongs(l, seen[i])
	}
	return out
}

// conflict is what the book keeps of a conflict that stands, nil when none does.
func conflict(l *ipam.Lease) []api.Sighting {
	if l.Conflict == nil {
		return nil
	}
	seen := census.ParseEvidence(l.Conflict)
	if seen == nil {
		return evidence(l.Conflict) // says that it cannot be read
	}
	return judged(l, seen)
}
