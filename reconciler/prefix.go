package reconciler

import (
	"net/netip"
	"slices"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
)

// inPrefix reports whether an address is in one of some delegated prefixes, which are in their
// order: it is seen there, and is no address without a row.
func inPrefix(prefixes []*ipam.Lease, a netip.Addr) bool {
	behind, exact := slices.BinarySearchFunc(prefixes, a, func(l *ipam.Lease, a netip.Addr) int { return l.Addr.Compare(a) })
	return exact || behind > 0 && prefixes[behind-1].Covers(a)
}

// unheldPrefix decides about a delegated prefix that cools or is quarantined, and of which an
// address is seen: all of it is quarantined, with that evidence. Who has an address does not
// show by that that it has the prefix, so none is adopted; its former owner gets it back by
// an allocate or a bind.
func (v *view) unheldPrefix(d *decision, row *ipam.Lease, seen []census.Sighting) {
	if row.State == ipam.Quarantined {
		return
	}
	s := step{Action: Action{Addr: row.Addr}, lease: row, evidence: evidence(seen)}
	d.add(s, Quarantine, "the %s witness sees %s of %s%s, and no lease explains it", seen[0].Witness, seen[0].Addr, row.Text(), seen[0].Where())
}
