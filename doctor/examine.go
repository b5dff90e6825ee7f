package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/bridge"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/config/reload"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/orphans"
	"github.com/ipamd/ipamd/reconciler"
	"github.com/ipamd/ipamd/watchdog"
)

// A State is all that Examine looks at.
type State struct {
	reconciler.World
	Book             netdb.Info
	Identity         error // the book belongs to another runner
	Usage            []ipam.Usage
	Unnamed          []*ipam.Pool            // in the book, and not in the configuration
	Unready          []*bridge.NotReadyError // the bridges that are not ready
	PoolUnready      func(*ipam.Pool) error  // why a pool cannot give, as far as its bridge goes
	Gaps             []bridge.Gap
	OtherRuntime     *watchdog.OtherRuntime // it answers, and the containers are not in it; nil: none does
	Orphans          []orphans.Orphan
	RefusedReload    *reload.Refusal // nil: the last reload was taken over
	Rules            *Rules          // nil while enforce.mode is off
	TrafficUnwatched error           // why traffic wakes no sandbox; nil: it does
	OwnerUnclear     error           // why the last sweep for orphans could not judge
	ClockStep        time.Duration   // how far the wall clock moved against the boot's clock since the start
	ClockStepped     time.Time       // when it last did, by its new time and as far as is known

	// Exhausted says whether the pool has no address to give now, and how long until one has cooled; 0 when none cools.
	Exhausted func(poolUID string) (is bool, next time.Duration)
}

// Examine lists every finding: the machine's, and then those of addresses in their order.
// Many that say the same of one stranger are one.
func Examine(s State) []reconciler.Finding {
	out := s.machine()
	slices.SortStableFunc(out, func(a, b reconciler.Finding) int { return cmp.Compare(a.Kind, b.Kind) })
	return fold(append(out, reconciler.Diagnose(s.World)...))
}

// confirmOrphans is how a person ends a set of held orphans.
func confirmOrphans(set string) string {
	return strings.Replace("ipamctl explain orphans_held # if they are gone: ipamctl reconcile --confirm-orphans SET", "SET", set, 1)
}

// nearCap is the part of the quarantine's share from which it is a finding.
const nearCap = 0.8

// leastClockStep is the least step of the wall clock that is a finding: a smaller
// one does not show in a history that people read. No wait is measured by it.
const leastClockStep = time.Second

// repairOf is one line of commands; none is for a person to look first.
func repairOf(commands []string) string {
	if len(commands) == 0 {
		return "journalctl -u ipamd -p warning"
	}
	return strings.Join(commands, " && ")
}

// machine finds what is not about one address.
func (s State) machine() []reconciler.Finding {
	var out []reconciler.Finding
	add := func(f reconciler.Finding) { out = append(out, f) }
	if s.Identity != nil {
		add(reconciler.Finding{Kind: "identity_mismatch", Since: s.Started, Detail: s.Identity.Error(),
			Repair: "ipamctl explain identity_mismatch"})
	}
	for _, not := range s.Unready {
		add(reconciler.Finding{Kind: "bridge_not_ready", Since: not.Since, Detail: not.Error(), Repair: repairOf(not.Repair)})
	}
	for _, u := range s.Usage {
		var lacking *allocator.BridgeError
		if errors.As(s.PoolUnready(&u.Pool), &lacking) {
			add(reconciler.Finding{Kind: "pool_not_ready", Since: lacking.Since, Repair: repairOf(lacking.Repair), Because: "bridge_not_ready",
				Detail: fmt.Sprintf("pool %s, %s, gives no address: %s", u.Pool.Name, u.Pool.Prefix, lacking.Reason)})
		}
	}
	if err := s.Book.ReadOnly; err != nil {
		add(reconciler.Finding{Kind: "book_readonly", Since: s.Book.ReadOnlySince, Detail: err.Error(), Repair: "ipamctl explain book_readonly"})
	}
	if err := s.Book.Growing; err != nil {
		add(reconciler.Finding{Kind: "book_grows", Since: s.Book.GrowingSince, Detail: err.Error(), Repair: "ipamctl explain book_grows"})
	}
	if s.Book.Exposed != "" {
		add(reconciler.Finding{Kind: "book_exposed", Since: s.Started, Detail: s.Book.Exposed, Repair: "ipamctl explain book_exposed"})
	}
	if err := s.Book.Clock; err != nil {
		add(reconciler.Finding{Kind: "clock_unclear", Since: s.Book.ClockSince, Detail: "the machine's clocks contradict each other: " + err.Error() + "; every wait counts from the start of the daemon",
			Repair: "ipamctl explain clock_unclear"})
	}
	if step := s.ClockStep; step.Abs() > leastClockStep {
		add(reconciler.Finding{Kind: "clock_stepped", Since: s.ClockStepped, Detail: fmt.Sprintf("the wall clock was moved by %v since the start; waits are measured by the boot's clock and stay right, times in the history are the wall's", step.Round(time.Millisecond)),
			Repair: "timedatectl"})
	}
	for _, silent := range s.Census.Silent {
		f := reconciler.Finding{Kind: "witness_silent", Detail: fmt.Sprintf("the %s witness cannot answer: %s", silent.Witness, silent.Reason),
			Since: silent.Since, Repair: "journalctl -u ipamd -p warning"}
		switch {
		case silent.Witness == census.Runtime:
			f.Repair = "systemctl status containerd"
		case len(s.Unready) > 0: // each of them looks at a bridge
			f.Because, f.Repair = "bridge_not_ready", "ipamctl explain bridge_not_ready"
		}
		add(f)
	}
	out = append(out, s.Rules.findings()...)
	for _, g := range s.Gaps {
		add(reconciler.Finding{Kind: g.Kind, Detail: g.Detail, Since: g.Since, Repair: g.Next})
	}
	if o := s.OtherRuntime; o != nil {
		add(reconciler.Finding{Kind: "runtime_changed", Since: o.Since,
			Detail: fmt.Sprintf("containerd %s answers, but the containers of the book are in containerd %s: nothing is released on its word", o.Met, o.Known),
			Repair: "ctr version # if they are gone with the old one: ipamctl reconcile --confirm"})
	}
	for _, u := range s.Book.Unreadable {
		add(reconciler.Finding{Kind: "unreadable_row", Since: s.Started, Detail: fmt.Sprintf("row %q: %s", u.Row, u.Reason), Repair: "ipamctl book check # then, with socket and service stopped: ipamd rebuild --preview"})
	}
	for _, u := range s.Usage {
		if n := u.ByState[ipam.Quarantined]; float64(n) >= nearCap*float64(u.QuarantineCap) {
			add(reconciler.Finding{Kind: "quarantine_near_cap", Since: s.nearCapSince(u), Detail: fmt.Sprintf("pool %s: %d of at most %d addresses", u.Pool.Name, n, u.QuarantineCap),
				Repair: "ipamctl quarantine ls"})
		}
	}
	for _, u := range s.Usage {
		if exhausted, next := s.Exhausted(u.Pool.UID); exhausted && u.Pool.State == ipam.PoolActive {
			detail := fmt.Sprintf("pool %s, %s, has no address to give", u.Pool.Name, u.Pool.Prefix)
			if next > 0 {
				detail += fmt.Sprintf("; the next one will have cooled in %s", max(next.Round(time.Second), time.Second))
			}
			add(reconciler.Finding{Kind: "pool_exhausted", Since: s.exhaustedSince(u), Detail: detail, Repair: "ipamctl pools"})
		}
	}
	for _, u := range s.Usage {
		if f, ok := s.cannotDrain(u.Pool); ok {
			add(f)
		}
	}
	if s.Last != nil && s.Last.Held != nil {
		add(reconciler.Finding{Kind: "reap_held", Detail: s.Last.Held.Reason, Since: s.Last.Held.Since,
			Repair: "ipamctl reconcile --preview # if they are gone: ipamctl reconcile --confirm"})
	}
	var unclear *orphans.UnclearError
	if errors.As(s.OwnerUnclear, &unclear) {
		add(reconciler.Finding{Kind: "owner_unclear", Since: unclear.Since,
			Detail: "the owner's list cannot be relied on: " + unclear.Error() + "; no sandbox is taken for an orphan",
			Repair: "ipamctl explain owner_unclear"})
	}
	for _, c := range s.Census.Unread() {
		add(reconciler.Finding{Kind: "labels_unreadable", Since: c.At, Detail: c.Unread + ": what else it claims is not known",
			Repair: fmt.Sprintf("ctr -n %s containers info %s", c.Namespace, c.Container)})
	}
	confirm := confirmOrphans(orphans.HeldSet(s.Orphans))
	held := reconciler.Finding{Kind: "orphans_held", Repair: confirm}
	for _, o := range s.Orphans {
		f := reconciler.Finding{Kind: "orphan", Detail: fmt.Sprintf("sandbox %q runs: %s", o.Sandbox, o.Detail()),
			Since: o.Since, Repair: "ipamctl explain orphan"}
		if o.Held {
			f.Repair = confirm
			held.Count++
			if held.Since.IsZero() || o.Since.Before(held.Since) {
				held.Since = o.Since
			}
		}
		add(f)
	}
	if held.Count > 0 {
		held.Detail = fmt.Sprintf("held orphans: %d; the owner calls more sandboxes gone than may be ended within an hour", held.Count)
		add(held)
	}
	if s.TrafficUnwatched != nil && slices.ContainsFunc(s.Leases, s.wokenByTraffic) {
		add(reconciler.Finding{Kind: "traffic_unwatched", Since: s.Started, Detail: fmt.Sprintf("traffic wakes no sandbox: %v", s.TrafficUnwatched),
			Repair: "ipamctl explain traffic_unwatched"})
	}
	if r := s.RefusedReload; r != nil {
		add(reconciler.Finding{Kind: "configuration_refused", Since: r.Since, Repair: r.Next,
			Detail: "the configuration was not taken over, and the daemon goes on with what was before: " + r.Reason})
	}
	for _, pool := range s.Unnamed {
		add(reconciler.Finding{Kind: "pool_not_configured", Since: s.Started, Repair: config.RepairUnnamed,
			Detail: fmt.Sprintf("pool %s, %s, is in the book and not in the configuration; it is kept as it was", pool.Name, pool.Prefix)})
	}
	return out
}

// wokenByTraffic reports whether traffic is to wake a lease's sandbox, now or once it is paused again.
func (s State) wokenByTraffic(l *ipam.Lease) bool {
	if s.Sleep == nil {
		return false
	}
	how := s.Sleep(l.ID)
	return how != nil && how.Wake != nil
}

// nearCapSince is when the row was quarantined that brought a pool to nearCap,
// of those that are so yet.
func (s State) nearCapSince(u ipam.Usage) time.Time {
	since := []time.Time{s.Started} // if usage counted a row that is not among the leases
	for _, l := range s.Leases {
		if l.State == ipam.Quarantined && l.PoolUID == u.Pool.UID {
			since = append(since, l.Since.Wall)
		}
	}
	slices.SortFunc(since[1:], time.Time.Compare)
	return since[min(int(math.Ceil(nearCap*float64(u.QuarantineCap))), len(since)-1)]
}

// exhaustedSince is when the newest lease of a pool took its address.
func (s State) exhaustedSince(u ipam.Usage) time.Time {
	since := s.Started // when nothing but exclusions fills it
	for _, l := range s.Leases {
		if l.PoolUID == u.Pool.UID && l.Created.Wall.After(since) {
			since = l.Created.Wall
		}
	}
	return since
}

// cannotDrain is a pool that drains, and has leases that do not end by themselves: paused
// ones last without limit, and stuck ones ought to have moved on.
func (s State) cannotDrain(p ipam.Pool) (f reconciler.Finding, is bool) {
	if p.State != ipam.PoolDraining {
		return f, false
	}
	var first *ipam.Lease
	n := 0
	for _, l := range s.Leases {
		if l.PoolUID != p.UID || l.State != ipam.Paused && !l.Stuck(s.Now) {
			continue
		}
		if n++; first == nil || l.Rev < first.Rev {
			first = l
		}
	}
	if first == nil {
		return f, false
	}
	return reconciler.Finding{Kind: "pool_cannot_drain", Since: first.Since.Wall, Repair: "ipamctl explain pool_cannot_drain",
		Detail: fmt.Sprintf("pool %s, %s, drains, and %d of its leases do not end by themselves; the first is %s, %s by sandbox %q", p.Name, p.Prefix, n, first.Addr, first.State, first.Sandbox)}, true
}
