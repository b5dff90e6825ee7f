package workload

import (
	"slices"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
)

// Live returns what shows that the owner of a lease lives: of what is seen with its
// address, and of what the runtime shows. Only a positive likeness counts: that nothing
// speaks against it is no proof.
func (x *Leases) Live(l *ipam.Lease, seen, running []census.Sighting) []census.Sighting {
	if l.State == ipam.Cooling || l.State == ipam.Quarantined || l.Sandbox == "" {
		return nil
	}
	out := x.running(l, running)
	for _, s := range seen {
		if Plugged(l, s) {
			out = append(out, s)
		}
	}
	return out
}

// running returns what the runtime shows of a lease's containers. Only one that the
// lease records may claim another address.
func (x *Leases) running(l *ipam.Lease, running []census.Sighting) (out []census.Sighting) {
	for _, s := range running {
		recorded := slices.Contains(l.Containers, ipam.Container{Namespace: s.Namespace, ID: s.Container})
		elsewhere := s.Addr.IsValid() && s.Addr != l.Addr
		if (recorded || !elsewhere) && x.Judge(l, Seen(s)) == Ours {
			out = append(out, s)
		}
	}
	return out
}
