package reconciler

import (
	"net/netip"
	"slices"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/workload"
)

// leastCensuses is how many whole and complete censuses must agree that a quarantined
// address is unseen, however long it has been.
const leastCensuses = 3

// unseen is what was observed of one quarantined lease since it was last
// seen. It is kept in memory only: a restart starts again.
type unseen struct {
	since    ipam.Stamp
	censuses int
}

// unseenLong decides which quarantined addresses have been unseen long enough.
// before is what earlier passes observed; what this one knows comes back. A
// census that a witness is missing from, or that was not read anew for this pass, proves nothing and counts for
// nothing, as it does for an address that the wire should have been asked
// about and was not: three passes on news may follow one another within seconds. One sighting starts all over,
// in whichever pass, and so does a container that the row records. What an operator holds stays so until an operator clears it. The address of a lease from before
// a rebuild of which nothing was ever seen waits for its owner, as the lease itself did.
func unseenLong(book []*ipam.Lease, c census.Census, whole bool, shows func(*ipam.Lease) bool, unasked map[netip.Addr]bool, before map[string]unseen, least time.Duration, now ipam.Stamp) ([]*ipam.Lease, map[string]unseen) {
	var clears []*ipam.Lease
	after := make(map[string]unseen)
	for _, l := range book {
		if l.State != ipam.Quarantined || heldBack(l) || l.Former() && workload.NeverSeen(l, now.BootID) || len(workload.SeenOf(c, l)) > 0 || shows(l) {
			continue
		}
		d, known := before[l.ID]
		if !whole || !c.CompleteAbout(l.Addr) || unasked[l.Addr] {
			if known {
				after[l.ID] = d
			}
			continue
		}
		if !known {
			d.since = now
		}
		d.censuses = min(d.censuses+1, leastCensuses)
		after[l.ID] = d
		if d.censuses >= leastCensuses && now.Since(d.since) >= least {
			clears = append(clears, l)
		}
	}
	return clears, after
}

// probesMost bounds the questions of one pass: a broadcast costs its sender
// about 1 µs a port.
const probesMost = 256

// toProbe splits the quarantined leases that a probe has seen, by their
// evidence or by what is seen now, into those that this pass asks about and
// those that have to wait for another. They follow one another in the order of
// the book, from the one behind last.
func toProbe(book []*ipam.Lease, about func(netip.Addr) census.Answer, last netip.Addr) (ask, wait []netip.Addr) {
	var before []netip.Addr
	for _, l := range book {
		switch {
		case l.State != ipam.Quarantined || heldBack(l):
		case !probed(census.ParseEvidence(l.Evidence)) && !probed(about(l.Addr).Seen):
		case last.Less(l.Addr):
			ask = append(ask, l.Addr)
		default:
			before = append(before, l.Addr)
		}
	}
	ask = append(ask, before...)
	n := min(len(ask), probesMost)
	return ask[:n], ask[n:]
}

// heldBack reports whether only an operator ends a quarantine: one holds it, or
// its evidence cannot be read, so that it is not known what has to be over.
func heldBack(l *ipam.Lease) bool {
	return l.Hold != "" || len(l.Evidence) > 0 && census.ParseEvidence(l.Evidence) == nil
}

func probed(seen []census.Sighting) bool {
	return slices.ContainsFunc(seen, func(s census.Sighting) bool { return s.Witness == census.Probe })
}
