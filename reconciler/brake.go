package reconciler

import (
	"fmt"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/workload"
)

// brake holds what a plan would release when that looks like a loss of sight
// rather than of workloads: more at once than a pass may, or a runtime that
// answers that it has no container at all while the book has bound leases that
// it could show. A warm slot that no sandbox has is none of these: it has no container. What that runtime does not
// show it may have lost, so the end of a quarantine is held with the releases where leases record containers: the
// address may be the claim of such a one.
//
// A lease whose recorded containers all answered a look-up not to be there
// goes on and does not count: the runtime itself has said so of each, which a
// lost or lagging list cannot counterfeit. Without that, fifty containers that
// were deleted while the daemon was down would stop it for good. Reservations past their
// deadline do not count either, for the deadline was agreed with their owner
// and a registry that is down for an hour makes hundreds of them; but a pass in
// doubt about its eyes releases none of them.
//
// Neither does a lease whose workload the kernel alone shows, when the kernel has neither its link
// nor its namespace any more, or its namespace was recorded in another boot of the machine: a host
// whose CNI plugin found no daemon at hundreds of DELs, or which boots with hundreds of leases, is
// not held up. Each is still absent for as many passes and as long.
//
// Confirm lifts both. The third brake is another runtime than the one that the
// containers are in, whose every answer is that they are not there: it holds
// all, also the end of a quarantine, until Confirm has made it the book's. Nothing lifts the fourth, a witness
// that cannot answer: such a pass plans no release in the first place.
func (v *view) brake(d *decision, confirm bool) {
	open, bound, recorded, guessed, expired, clears := 0, 0, 0, 0, 0, 0
	for _, l := range v.book {
		if l.State.Open() {
			open++
		}
		if l.State == ipam.Bound && !v.gone[l.ID] && !workload.ByKernelAlone(l) && !ipam.IsSlotUID(l.UID) {
			bound++
			if len(l.Containers) > 0 {
				recorded++
			}
		}
	}
	knownGone := make(map[string]bool)
	for _, l := range v.book {
		// What another runtime says is none, and it holds all.
		knownGone[l.ID] = v.changed == nil && (v.gone[l.ID] || workload.Outlived(l, v.now.BootID))
	}
	for _, s := range d.steps {
		switch {
		case s.Kind == Expire:
			expired++
		case s.Kind == Clear:
			clears++
		case s.Kind == Reap && !knownGone[s.LeaseID]:
			guessed++
		}
	}
	empty := v.runtime && v.containers.Len() == 0 && bound > 0
	// Where no lease records a container the runtime may have none to lose, as on a host of machines.
	holdsClears := v.changed != nil || empty && recorded > 0
	if !holdsClears {
		clears = 0
	}
	most := max(v.leastReleases, int(v.maxReleases*float64(open)))
	switch {
	case v.changed != nil && guessed+expired+clears > 0:
		d.held = &Held{Releases: guessed + expired + clears, Reason: v.changed.Error()}
	case confirm:
	case empty && guessed+expired+clears > 0:
		d.held = &Held{Releases: guessed + expired + clears, Most: most, Reason: fmt.Sprintf(
			"the runtime shows no container at all, but the book has %d bound leases", bound)}
	case guessed > most:
		d.held = &Held{Releases: guessed, Most: most, Reason: fmt.Sprintf(
			"%d of %d open leases would be released at once, and a pass may release %d", guessed, open, most)}
	}
	if d.held == nil {
		return
	}
	for i, s := range d.steps {
		if s.Kind == Expire || s.Kind == Reap && !knownGone[s.LeaseID] || s.Kind == Clear && holdsClears {
			d.steps[i].Result = Braked
		}
	}
}
