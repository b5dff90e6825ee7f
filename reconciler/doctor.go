package reconciler

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ipamd/ipamd/bridge"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/netdb"
)

// A World is all that Diagnose looks at.
type World struct {
	Leases       []*netdb.Lease // in the order of the addresses, read before the census
	Usage        []netdb.Usage
	Unreadable   []netdb.Unreadable
	ReadOnly     Trouble // the book cannot be written
	Growing      Trouble // the book's files cannot be cut
	Exposed      string  // who else may change the book's file or folder
	Unready      Trouble // the bridge is not ready
	Gaps         []bridge.Gap
	Identity     error     // the book belongs to another runner
	Started      time.Time // the daemon, which read whose the book is and its rows
	Census       census.Census
	Runtime      bool          // a runtime witness is expected
	OtherRuntime *OtherRuntime // it answers, and the containers are not in it; nil: none does
	Place        func(netip.Addr) netdb.Place
	Blockers     func(*netdb.Lease) []string // what keeps a releasing lease; nil: not known
	Orphans      []Orphan
	HeldSet      string               // names the set of those orphans that are held
	Told         []Finding            // by the last pass
	Held         *Held                // of the last pass
	Unseen       map[string]time.Time // since when passes miss a bound lease, by its id
	Passed       time.Time            // the last pass; zero before the first
	OwnerUnclear Trouble              // why the last sweep for orphans could not judge
	Clock        Trouble              // the clocks say what cannot be
	ClockStep    time.Duration        // how far the wall clock moved against the boot's clock since the start
	ClockStepped time.Time            // when it last did, by its new time and as far as is known

	// Exhausted says whether the pool has no address to give now, and how long until one has rested; 0 when none rests.
	Exhausted func(poolUID string) (is bool, next time.Duration)
	Now       netdb.Stamp
}

// A Trouble is what does not work, and since when; without Err there is none.
type Trouble struct {
	Err   error
	Since time.Time
}

// An OtherRuntime answers in place of the one that the containers are in.
type OtherRuntime struct {
	Known, Met string // ids
	Since      time.Time
}

// An Orphan is a sandbox that runs although its owner says that it is gone.
type Orphan struct {
	Sandbox string
	Detail  string // a sentence: what its owner says, and what runs
	Since   time.Time
	Held    bool // it is not ended before an operator confirms it
}

// confirmOrphans is how a person ends a set of held orphans.
func confirmOrphans(set string) string {
	return strings.Replace("ipamctl explain orphans_held; if they are gone: ipamctl reconcile --confirm-orphans SET", "SET", set, 1)
}

// nearCap is the part of the quarantine's share from which it is a finding.
const nearCap = 0.8

// LeastClockStep is the least step of the wall clock that is a finding: a smaller
// one does not show in a history that people read. No wait is measured by it.
const LeastClockStep = time.Second

// Diagnose lists every finding, in the order of the addresses; many that say the
// same of one stranger are one. It decides nothing and changes nothing.
func Diagnose(w World) []Finding {
	out := w.machine()
	held := make(map[netip.Addr]*netdb.Lease, len(w.Leases))
	v := &view{policy: policy{place: w.Place, runtime: w.Runtime},
		book: w.Leases, census: w.Census, now: w.Now}
	v.index()
	for _, l := range w.Leases {
		held[l.Addr] = l
		out = append(out, w.lease(v, l)...)
	}
	told := make(map[netip.Addr]Finding) // by a pass, which asks the kernel about a claim
	for _, f := range w.Told {
		if f.Kind == "unleased" {
			told[f.Addr] = f
		}
	}
	for addr, seen := range w.Census.Seen {
		row := held[addr]
		if row != nil && row.State != netdb.Cooling && row.State != netdb.Quarantined {
			continue
		}
		for _, f := range v.unexplained(addr, row, seen) {
			if t, same := told[addr]; same && t.Kind == f.Kind && t.Since.Equal(f.Since) {
				f = t
			}
			out = append(out, f)
		}
	}
	// Only a pass meets the cap. What it found holds as long as the address is
	// seen, and neither set aside nor held.
	for _, f := range w.Told {
		row := held[f.Addr]
		if f.Kind == quarantineFull && len(w.Census.Seen[f.Addr]) > 0 && w.Place(f.Addr).Usable && (row == nil || row.State == netdb.Cooling) {
			out = append(out, f)
		}
	}
	sortFindings(out)
	return Fold(out)
}

// unexplained finds what is wrong with an address that is seen and not held.
func (v *view) unexplained(addr netip.Addr, row *netdb.Lease, seen []census.Sighting) []Finding {
	place, claims := v.place(addr), claimants(seen)
	switch {
	case place.Pool == nil && !place.Usable:
		return nil // no address of ours
	case !place.Usable:
		var out []Finding
		for _, c := range claims {
			out = append(out, Finding{Kind: "unleased", Addr: addr, Since: c.containers[0].At, Mend: whois(addr),
				Detail: fmt.Sprintf("the runtime shows %s, which claims it; no pool gives it: it is %s", c.name()+c.containers[0].Where(), place.Note)})
		}
		return out
	case len(claims) > 1:
		return []Finding{twoClaimants(addr, "", claims)}
	case len(claims) == 1:
		return []Finding{unleased(addr, row, claims[0], seen)}
	case row != nil && row.State == netdb.Quarantined:
		return nil // reported as that
	}
	return []Finding{{Kind: "foreign", Addr: addr, Detail: fmt.Sprintf("no lease explains what the %s witness sees%s", seen[0].Witness, seen[0].Where()),
		Since: seen[0].At, Mend: whois(addr), source: sourceOf(seen[0])}}
}

// machine finds what is not about one address.
func (w World) machine() []Finding {
	var out []Finding
	add := func(f Finding) { out = append(out, f) }
	if w.Identity != nil {
		add(Finding{Kind: "identity_mismatch", Since: w.Started, Detail: w.Identity.Error(),
			Mend: "ipamctl explain identity_mismatch"})
	}
	if w.Unready.Err != nil {
		repair := "journalctl -u ipamd -p warning"
		var not *bridge.NotReadyError
		if errors.As(w.Unready.Err, &not) && len(not.Repair) > 0 {
			repair = strings.Join(not.Repair, " && ")
		}
		add(Finding{Kind: "bridge_not_ready", Since: w.Unready.Since, Detail: w.Unready.Err.Error(), Mend: repair})
	}
	if w.ReadOnly.Err != nil {
		add(Finding{Kind: "book_readonly", Since: w.ReadOnly.Since, Detail: w.ReadOnly.Err.Error(), Mend: "ipamctl explain book_readonly"})
	}
	if err := w.Growing.Err; err != nil {
		add(Finding{Kind: "book_grows", Since: w.Growing.Since, Detail: err.Error(), Mend: "ipamctl explain book_grows"})
	}
	if w.Exposed != "" {
		add(Finding{Kind: "book_exposed", Since: w.Started, Detail: w.Exposed,
			Mend: "ipamctl explain book_exposed"})
	}
	if w.Clock.Err != nil {
		add(Finding{Kind: "clock_unclear", Since: w.Clock.Since, Detail: "the machine's clocks say what cannot be: " + w.Clock.Err.Error() + "; every wait counts from the start of the daemon",
			Mend: "ipamctl explain clock_unclear"})
	}
	if step := w.ClockStep; step.Abs() > LeastClockStep {
		add(Finding{Kind: "clock_stepped", Since: w.ClockStepped, Detail: fmt.Sprintf("the wall clock was moved by %v since the start; waits are measured by the boot's clock and stay right, times in the history are the wall's", step.Round(time.Millisecond)),
			Mend: "timedatectl"})
	}
	for _, s := range w.Census.Silent {
		f := Finding{Kind: "witness_silent", Detail: fmt.Sprintf("the %s witness cannot answer: %s", s.Witness, s.Reason),
			Since: s.Since, Mend: "journalctl -u ipamd -p warning"}
		switch {
		case s.Witness == census.Runtime:
			f.Mend = "systemctl status containerd"
		case w.Unready.Err != nil: // each of them looks at the bridge
			f.Because, f.Mend = "bridge_not_ready", "ipamctl explain bridge_not_ready"
		}
		add(f)
	}
	for _, g := range w.Gaps {
		add(Finding{Kind: g.Kind, Detail: g.Detail, Since: g.Since, Mend: g.Next})
	}
	if o := w.OtherRuntime; o != nil {
		add(Finding{Kind: "runtime_changed", Since: o.Since,
			Detail: fmt.Sprintf("containerd %s answers, but the containers of the book are in containerd %s: nothing is let go on its word", o.Met, o.Known),
			Mend:   "ctr version; if they are gone with the old one: ipamctl reconcile --confirm"})
	}
	for _, u := range w.Unreadable {
		add(Finding{Kind: "unreadable_row", Since: w.Started, Detail: fmt.Sprintf("row %q: %s", u.Row, u.Reason), Mend: "ipamd check"})
	}
	for _, u := range w.Usage {
		if n := u.ByState[netdb.Quarantined]; float64(n) >= nearCap*float64(u.QuarantineCap) {
			add(Finding{Kind: "quarantine_near_cap", Since: w.nearCapSince(u), Detail: fmt.Sprintf("pool %s: %d of at most %d addresses", u.Pool.Name, n, u.QuarantineCap),
				Mend: "ipamctl quarantine ls"})
		}
	}
	for _, u := range w.Usage {
		if exhausted, next := w.Exhausted(u.Pool.UID); exhausted && u.Pool.State == "active" {
			detail := fmt.Sprintf("pool %s, %s, has no address to give", u.Pool.Name, u.Pool.Prefix)
			if next > 0 {
				detail += fmt.Sprintf("; the next one will have rested in %s", max(next.Round(time.Second), time.Second))
			}
			add(Finding{Kind: "pool_exhausted", Since: w.exhaustedSince(u), Detail: detail, Mend: "ipamctl pools"})
		}
	}
	if w.Held != nil {
		add(Finding{Kind: "reap_held", Detail: w.Held.Reason, Since: w.Held.Since,
			Mend: "ipamctl reconcile --preview; if they are gone: ipamctl reconcile --confirm"})
	}
	if w.OwnerUnclear.Err != nil {
		add(Finding{Kind: "owner_unclear", Since: w.OwnerUnclear.Since,
			Detail: "the owner's list is not to be judged by: " + w.OwnerUnclear.Err.Error() + "; no sandbox is taken for an orphan",
			Mend:   "ipamctl explain owner_unclear"})
	}
	for _, s := range w.Census.Unread() {
		add(Finding{Kind: "labels_unreadable", Since: s.At, Detail: s.Unread + ": what else it claims is not known",
			Mend: fmt.Sprintf("ctr -n %s containers info %s", s.Namespace, s.Container)})
	}
	held := Finding{Kind: "orphans_held", Mend: confirmOrphans(w.HeldSet)}
	for _, o := range w.Orphans {
		f := Finding{Kind: "orphan", Detail: fmt.Sprintf("sandbox %q runs: %s", o.Sandbox, o.Detail),
			Since: o.Since, Mend: "ipamctl explain orphan"}
		if o.Held {
			f.Mend = confirmOrphans(w.HeldSet)
			held.Count++
			if held.Since.IsZero() || o.Since.Before(held.Since) {
				held.Since = o.Since
			}
		}
		add(f)
	}
	if held.Count > 0 {
		held.Detail = fmt.Sprintf("the owner says of %d more sandboxes that they are gone than an hour's sweeps end on its word: they are left as they are", held.Count)
		add(held)
	}
	return out
}

// nearCapSince is when the row was quarantined that brought a pool to nearCap,
// of those that are so yet.
func (w World) nearCapSince(u netdb.Usage) time.Time {
	since := []time.Time{w.Started} // if usage counted a row that is not among the leases
	for _, l := range w.Leases {
		if l.State == netdb.Quarantined && l.PoolUID == u.Pool.UID {
			since = append(since, l.Since.Wall)
		}
	}
	slices.SortFunc(since[1:], time.Time.Compare)
	return since[min(int(math.Ceil(nearCap*float64(u.QuarantineCap))), len(since)-1)]
}

// exhaustedSince is when the newest lease of a pool took its address.
func (w World) exhaustedSince(u netdb.Usage) time.Time {
	since := w.Started // when nothing but exclusions fills it
	for _, l := range w.Leases {
		if l.PoolUID == u.Pool.UID && l.Created.Wall.After(since) {
			since = l.Created.Wall
		}
	}
	return since
}

// unseenSince is when passes began to miss a bound lease. One that no pass has
// missed yet was there, or was not bound, at the last of them.
func (w World) unseenSince(l *netdb.Lease) time.Time {
	if since, missed := w.Unseen[l.ID]; missed {
		return since
	}
	return slices.MaxFunc([]time.Time{w.Started, w.Passed, l.Since.Wall}, time.Time.Compare)
}

// lease finds what is wrong with one lease.
func (w World) lease(v *view, l *netdb.Lease) []Finding {
	var out []Finding
	add := func(kind, mend, detail string, args ...any) {
		out = append(out, Finding{Kind: kind, Addr: l.Addr, LeaseID: l.ID, Detail: fmt.Sprintf(detail, args...), Since: l.Since.Wall, Mend: mend})
	}
	// What cools in its own pool is not held any more, and will not be given.
	if place := w.Place(l.Addr); !place.Usable && (place.Pool == nil || l.State != netdb.Cooling) {
		add("outside_pool", "ipamctl show "+l.ID, "%s, in pool %s; the pool would not give it: it is %s", l.State, l.Pool, place.Note)
	}
	switch {
	case l.State == netdb.Quarantined:
		words := ": " + l.Reason
		if l.Hold != "" {
			words = " by the operator: " + l.Hold
		}
		add("quarantined", whois(l.Addr), "set aside%s", words)
		out[len(out)-1].source = quarantinedFor(l.Evidence)
		return out
	case v.pastDeadline(l):
		add("reserved_past_deadline", "ipamctl release "+l.ID, "sandbox %q has not bound it within %v%s", l.Sandbox, l.BindWithin, v.named(l))
	case l.State == netdb.Releasing && l.Stuck(w.Now):
		add("releasing_stuck", "ipamctl show "+l.ID+"; if it can never be confirmed: ipamctl release "+l.ID+" --force --reason WHY", "sandbox %q let it go; its removal is not confirmed%s", l.Sandbox, w.blocked(l))
	case l.State == netdb.Bound && len(w.Census.Seen[l.Addr]) == 0 && len(v.of(l)) == 0 && w.Census.Complete():
		add("bound_unseen", "ipamctl show "+l.ID, "no witness sees sandbox %q", l.Sandbox)
		out[len(out)-1].Since = w.unseenSince(l)
	}
	if l.State == netdb.Cooling {
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

// ignored finds records without a task that carry the name of a sandbox whose lease was
// released beside them: a release does not wait for long for what is a label alone.
func (v *view) ignored(l *netdb.Lease) (Finding, bool) {
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
		Mend: fmt.Sprintf("ctr -n %s containers info %s", s.Namespace, s.Container),
		Detail: fmt.Sprintf("container %s/%s%s carries the name of sandbox %q and has no task; the sandbox's lease was released beside it, and its address cools",
			s.Namespace, s.Container, more, l.Sandbox)}, true
}

// named names a container that keeps a reserved lease by a label of its sandbox.
func (v *view) named(l *netdb.Lease) string {
	for _, s := range v.of(l) {
		if !sure(l, s) {
			return "; it is kept for what carries its name" + s.Where() + ", which nothing but the label shows to live with it"
		}
	}
	return ""
}

func (w World) blocked(l *netdb.Lease) string {
	if w.Blockers == nil {
		return ""
	}
	if by := w.Blockers(l); len(by) > 0 {
		return ": " + strings.Join(by, "; ")
	}
	return ""
}
