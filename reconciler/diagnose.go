package reconciler

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/workload"
)

// A World is all that Diagnose looks at.
type World struct {
	Leases   []*ipam.Lease // in the order of the addresses, read before the census
	Census   census.Census
	Runtime  bool // a runtime witness is expected
	Place    func(netip.Addr) ipam.Place
	Blockers func(*ipam.Lease) []string // what keeps a releasing lease
	Slot     func(leaseID string) *ipam.Slot
	Sleep    func(leaseID string) *ipam.Sleep // nil: nothing is recorded of any
	// Unwatched is why the traffic to a lease cannot be watched, nil where it can. May be nil.
	Unwatched func(*ipam.Lease) error
	Last      *Report   // of the last pass; nil before the first
	Started   time.Time // the daemon
	Now       ipam.Stamp
}

// Diagnose lists what is wrong with addresses, in their order. It decides nothing and
// changes nothing.
func Diagnose(w World) []Finding {
	var out []Finding
	last := Report{}
	if w.Last != nil {
		last = *w.Last
	}
	held := make(map[netip.Addr]*ipam.Lease, len(w.Leases))
	v := &view{policy: policy{place: w.Place, sleep: w.Sleep, runtime: w.Runtime},
		book: w.Leases, census: w.Census, now: w.Now}
	v.index()
	for _, l := range w.Leases {
		held[l.Addr] = l
		out = append(out, w.lease(v, l)...)
	}
	reported := make(map[netip.Addr]Finding) // by a pass, which asks the kernel about a claim
	for _, f := range last.Findings {
		if f.Kind == "unleased" {
			reported[f.Addr] = f
		}
	}
	for addr, seen := range w.Census.Seen {
		row := held[addr]
		if row != nil && row.State != ipam.Cooling && row.State != ipam.Quarantined {
			continue
		}
		for _, f := range v.unexplained(addr, row, seen) {
			if p, same := reported[addr]; same && p.Kind == f.Kind && p.Since.Equal(f.Since) {
				f = p
			}
			out = append(out, f)
		}
	}
	// Only a pass meets the cap. What it found holds as long as the address is
	// seen, and neither quarantined nor held.
	for _, f := range last.Findings {
		row := held[f.Addr]
		if f.Kind == quarantineFull && len(w.Census.Seen[f.Addr]) > 0 && w.Place(f.Addr).Usable && (row == nil || row.State == ipam.Cooling) {
			out = append(out, f)
		}
	}
	sortFindings(out)
	return out
}

// unexplained finds what is wrong with an address that is seen and not held.
func (v *view) unexplained(addr netip.Addr, row *ipam.Lease, seen []census.Sighting) []Finding {
	place, claims := v.place(addr), claimants(seen)
	switch {
	case place.Pool == nil && !place.Usable:
		return nil // no address of ours
	case !place.Usable:
		var out []Finding
		for _, c := range claims {
			out = append(out, Finding{Kind: "unleased", Addr: addr, Since: c.containers[0].At, Repair: whois(addr),
				Detail: fmt.Sprintf("the runtime shows %s, which claims it; no pool gives it: it is %s", c.name()+c.containers[0].Where(), place.Note)})
		}
		return out
	case len(claims) > 1:
		return []Finding{twoClaimants(addr, "", claims)}
	case len(claims) == 1:
		return []Finding{unleased(v, addr, row, claims[0], seen)}
	case row != nil && row.State == ipam.Quarantined:
		return nil // reported as that
	}
	return []Finding{{Kind: "foreign", Addr: addr, Detail: fmt.Sprintf("no lease explains what the %s witness sees%s", seen[0].Witness, seen[0].Where()),
		Since: seen[0].At, Repair: whois(addr), Source: sourceOf(seen[0])}}
}

// unseenSince is when passes began to miss a bound lease. One that no pass has
// missed yet was there, or was not bound, at the last of them.
func (w World) unseenSince(l *ipam.Lease) time.Time {
	moments := []time.Time{w.Started, l.Since.Wall}
	if w.Last != nil {
		if since, missed := w.Last.AbsentSince[l.ID]; missed {
			return since
		}
		moments = append(moments, w.Last.Started)
	}
	return slices.MaxFunc(moments, time.Time.Compare)
}

// lease finds what is wrong with one lease.
func (w World) lease(v *view, l *ipam.Lease) []Finding {
	var out []Finding
	add := func(kind, repair, detail string, args ...any) {
		out = append(out, Finding{Kind: kind, Addr: l.Addr, LeaseID: l.ID, Detail: fmt.Sprintf(detail, args...), Since: l.Since.Wall, Repair: repair})
	}
	// What cools in its own pool is not held any more, and will not be given.
	if place := w.Place(l.Addr); !place.Usable && (place.Pool == nil || l.State != ipam.Cooling) {
		add("outside_pool", "ipamctl show "+l.ID, "%s, in pool %s; the pool would not give it: it is %s", l.State, l.Pool, place.Note)
	}
	if place := w.Place(l.Addr); place.Kept != "" && place.Kept != l.Sandbox && (l.State.Open() || l.State == ipam.Releasing) {
		add("kept_for_another", "ipamctl show "+l.ID, "%s by sandbox %q; pool %s keeps it for sandbox %q, which gets it after that", l.State, l.Sandbox, l.Pool, place.Kept)
	}
	switch {
	case l.State == ipam.Quarantined:
		words := ": " + l.Reason
		if l.Hold != "" {
			words = " by the operator: " + l.Hold
		}
		add("quarantined", whois(l.Addr), "quarantined%s", words)
		out[len(out)-1].Source = quarantinedFor(l.Evidence)
		return out
	case v.pastDeadline(l):
		add("reserved_past_deadline", "ipamctl release "+l.ID, "sandbox %q has not bound it within %v%s", l.Sandbox, l.BindWithin, v.named(l))
	case l.State == ipam.Releasing && l.Stuck(w.Now):
		add("releasing_stuck", "ipamctl show "+l.ID+" # if it can never be confirmed: ipamctl release "+l.ID+" --force --reason WHY", "sandbox %q was released, and its removal is not confirmed%s", l.Sandbox, w.blocked(l))
	case l.State == ipam.Bound && len(w.Census.Seen[l.Addr]) == 0 && len(v.of(l)) == 0 && w.Census.CompleteAbout(l.Addr):
		if workload.NeverSeen(l, v.now.BootID) && !workload.EndsByKernel(l, v.now.BootID) {
			add("bound_unseen", "ipamctl show "+l.ID+" # once it is gone: ipamctl release "+l.ID, "no witness has ever seen sandbox %q on its bridge: it may be on another link, and does not end by itself", l.Sandbox)
		} else {
			add("bound_unseen", "ipamctl show "+l.ID, "no witness sees sandbox %q", l.Sandbox)
		}
		out[len(out)-1].Since = w.unseenSince(l)
	case w.unused(v, l):
		add("slot_unused", "ipamctl show "+l.ID+" # if it was never started: ipamctl release "+l.ID, "sandbox %q was given the warm slot in %s %v ago, and the runtime has shown no container of it", l.Sandbox, l.Netns, w.Now.Since(l.Since).Round(time.Second))
	}
	if l.State == ipam.Paused {
		if mode := v.stopping(l); w.runsOn(v, l, mode) {
			add("paused_running", "ipamctl show "+l.ID+" # if it is not to be paused: ipamctl resume "+l.ID, "sandbox %q was paused (%s) %v ago, and its tasks run and were not seen to stand still", l.Sandbox, mode, w.Now.Since(l.Since).Round(time.Second))
		}
		if s := v.slept(l); s != nil && s.Wake != nil && w.Unwatched != nil && !v.kernelSilent() {
			if why := w.Unwatched(l); why != nil {
				add("paused_unwatched", "ipamctl show "+l.ID+" # to have it woken: ipamctl wake "+l.ID, "no traffic wakes sandbox %q: %v", l.Sandbox, why)
			}
		}
	}
	if l.State == ipam.Cooling {
		if f, found := v.ignored(l); found {
			out = append(out, f)
		}
		return out
	}
	if f, found := v.dispute(l); found {
		out = append(out, f)
	} else if l.Conflict != nil {
		out = append(out, v.quiet(l))
	} else if f, found := v.misbound(l); found {
		out = append(out, f)
	} else if f, found := v.stray(l); found {
		out = append(out, f)
	}
	return out
}

// runsFor is how long the tasks of a sandbox that its owner is to pause may run on before that is
// a finding.
const runsFor = 10 * time.Minute

// runsOn reports that the tasks of a paused lease run long after its owner has said that it pauses
// them. It is not resumed by itself, since a checkpoint may take its time, and nothing else ends it
// where the owner has given the pause up.
func (w World) runsOn(v *view, l *ipam.Lease, mode ipam.SleepMode) bool {
	return mode != "" && w.Now.Since(l.Since) > runsFor && !v.silent(census.Runtime) &&
		slices.ContainsFunc(v.of(l), func(s census.Sighting) bool { return s.Task == taskRunning && sure(l, s) })
}

// kernelSilent reports whether a witness of the kernel cannot answer: which ports there are is not
// known then.
func (v *view) kernelSilent() bool {
	return slices.ContainsFunc(v.census.Silent, func(s census.Silence) bool { return s.Witness.Kernel() })
}

// unused reports that a sandbox has a warm slot for longer than a reservation may wait for
// its bind, and no container. A slot is bound from the start, to a namespace that ipamd keeps,
// so no deadline ends it, and no witness ever misses it: a caller that failed after the claim
// would keep it for good, unseen. It is not ended by itself, since a sandbox that the runtime
// does not show may be in it.
func (w World) unused(v *view, l *ipam.Lease) bool {
	if !w.Runtime || l.State != ipam.Bound || w.Slot == nil || len(l.Containers) > 0 || len(v.of(l)) > 0 {
		return false
	}
	slot := w.Slot(l.ID)
	return slot != nil && slot.Claimed && w.Now.Since(l.Since) > l.BindWithin && w.Census.CompleteAbout(l.Addr)
}

// ignored finds records without a task that carry the name of a sandbox whose lease was
// released beside them: a release does not wait for long for what is a label alone.
func (v *view) ignored(l *ipam.Lease) (Finding, bool) {
	if v.leases.Has(l.Sandbox) {
		return Finding{}, false // they may be of that lease
	}
	alone := slices.DeleteFunc(v.of(l), func(s census.Sighting) bool { return s.Task != "" || s.Note != "" || sure(l, s) })
	if len(alone) == 0 {
		return Finding{}, false
	}
	s, more := alone[0], ""
	if n := len(alone) - 1; n > 0 {
		more = fmt.Sprintf(", and %d more,", n)
	}
	return Finding{Kind: "record_ignored", Addr: l.Addr, LeaseID: l.ID, Since: s.At,
		Repair: fmt.Sprintf("ctr -n %s containers info %s", s.Namespace, s.Container),
		Detail: fmt.Sprintf("container %s/%s%s carries the name of sandbox %q and has no task; the sandbox's lease was released beside it, and its address cools",
			s.Namespace, s.Container, more, l.Sandbox)}, true
}

// named names a container that keeps a reserved lease by a label of its sandbox.
func (v *view) named(l *ipam.Lease) string {
	for _, s := range v.of(l) {
		if !sure(l, s) {
			return "; it is not ended, because a container carries the sandbox's name" + s.Where() + "; only that label ties it to the address"
		}
	}
	return ""
}

func (w World) blocked(l *ipam.Lease) string {
	if by := w.Blockers(l); len(by) > 0 {
		return ": " + strings.Join(by, "; ")
	}
	return ""
}
