// Package doctor says what a person should look at: what is wrong with the machine, the
// book and its witnesses, and what [reconciler.Diagnose] finds on addresses.
//
// It decides and repairs nothing. A finding names its cause, since when it is so, and a
// command that repairs it or shows more.
package doctor

import (
	"context"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/bridge"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/config/reload"
	"github.com/ipamd/ipamd/enforce"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/orphans"
	"github.com/ipamd/ipamd/reconciler"
	"github.com/ipamd/ipamd/watchdog"
)

// A Doctor examines a daemon, by its parts. It is safe for concurrent use.
type Doctor struct {
	Book             *netdb.Book
	Board            *census.Board
	Bridges          *bridge.Group
	Unready          func(*ipam.Pool) error // why a pool cannot give, as far as its bridge goes
	Watchdog         *watchdog.Watchdog
	Reconciler       *reconciler.Reconciler
	Instance         *watchdog.Instance             // nil without a runtime
	Sweeper          *orphans.Sweeper               // nil without an owner
	Rules            *enforce.Keeper                // nil while enforce.mode is off
	Unwatched        func() func(*ipam.Lease) error // says why the traffic to a paused lease cannot be watched, as of the call
	TrafficUnwatched func() error                   // why traffic wakes no sandbox just now
	Clock            *WallClock
	Exhausted        func(poolUID string) (is bool, next time.Duration)
	Refused          func() *reload.Refusal // the configuration that was not taken over; nil: the last one was
	Started          time.Time
}

// Examine lists every finding, after the latest news of the kernel.
func (d *Doctor) Examine(ctx context.Context) []api.Finding {
	// A failing Settle shows as silent witnesses in the census.
	return d.examine(func() []enforce.Difference {
		_ = d.Bridges.Settle(ctx)
		if d.Rules == nil {
			return nil
		}
		v, _ := d.Rules.View(ctx, true) // rules that cannot be read do not hold, which is a finding
		return v.Differences
	})
}

// Remembered lists every finding by what is in memory: a status does not wait
// for the kernel.
func (d *Doctor) Remembered() []api.Finding {
	return d.examine(func() []enforce.Difference { return nil })
}

func (d *Doctor) examine(settle func() (differences []enforce.Difference)) []api.Finding {
	leases, _ := d.Book.Leases() // book first, census second
	usage, _ := d.Book.Usage()
	differences := settle()
	s := State{
		World: reconciler.World{Leases: leases, Census: d.Board.Census(), Runtime: d.Instance != nil, Place: d.Book.Place,
			Blockers: d.blockers, Slot: d.Book.Slot, Sleep: d.Book.Sleep, Unwatched: d.Unwatched(), Last: d.Reconciler.Last(), Started: d.Started, Now: d.Book.Now()},
		Book: d.Book.Info(), Identity: d.Book.CheckIdentity(), Usage: usage, Unnamed: d.Book.Unconfigured(), Exhausted: d.Exhausted,
		Unready: d.Bridges.Unready(), PoolUnready: d.Unready, TrafficUnwatched: d.TrafficUnwatched(),
	}
	for _, b := range d.Bridges.Statuses() {
		s.Gaps = append(s.Gaps, b.Gaps...)
	}
	s.ClockStep, s.ClockStepped = d.Clock.Look(ipam.Now(), d.Book.Leases)
	if d.Refused != nil {
		s.RefusedReload = d.Refused()
	}
	if d.Rules != nil {
		s.Rules = &Rules{Status: d.Rules.Status(), Refused: d.Rules.Recently(refusedFor), Differences: differences}
	}
	if d.Sweeper != nil {
		s.Orphans, s.OwnerUnclear = d.Sweeper.Orphans()
	}
	if d.Instance != nil {
		s.OtherRuntime = d.Instance.Other()
	}
	return findings(Examine(s))
}

func (d *Doctor) blockers(l *ipam.Lease) []string {
	var out []string
	for _, b := range d.Watchdog.Blockers(l) {
		out = append(out, b.Detail)
	}
	return out
}

// Report is a pass as the socket spells it, with many findings that say the same made
// one.
func Report(r *reconciler.Report) api.Report {
	out := api.Report{Started: r.Started, Took: r.Took, Preview: r.Preview, Complete: r.Complete,
		Leases: r.Leases, Seen: r.Seen, Absent: r.Absent, Actions: []api.Action{}, Reports: findings(fold(r.Findings))}
	for _, s := range r.Silent {
		out.Silent = append(out.Silent, api.Silence{Witness: string(s.Witness), Reason: s.Reason, Since: s.Since})
	}
	for _, a := range r.Actions {
		out.Actions = append(out.Actions, api.Action{Kind: a.Kind, Address: a.Addr.String(), LeaseID: a.LeaseID, Sandbox: a.Sandbox,
			Reason: a.Reason, Result: a.Result, Error: a.Err})
	}
	if r.Held != nil {
		out.Held = &api.Held{Releases: r.Held.Releases, Most: r.Held.Most, Reason: r.Held.Reason}
	}
	return out
}

// BridgeStatus describes the bridges, the daemon's own first.
func (d *Doctor) BridgeStatus() (out []api.BridgeStatus) {
	for _, s := range d.Bridges.Statuses() {
		b := api.BridgeStatus{Name: s.Name, Ready: s.Ready, Reason: s.Reason, Managed: s.Managed, Ports: s.Ports, MAC: s.MAC, MTU: s.MTU}
		for _, g := range s.Gaps[:min(len(s.Gaps), api.MostGaps)] {
			b.Gaps = append(b.Gaps, g.Detail)
		}
		out = append(out, b)
	}
	return out
}

func findings(found []reconciler.Finding) []api.Finding {
	out := make([]api.Finding, len(found))
	for i, f := range found {
		out[i] = api.Finding{Kind: f.Kind, LeaseID: f.LeaseID, Detail: f.Detail, Since: f.Since, Repair: f.Repair, Because: f.Because, Count: f.Count}
		if f.Addr.IsValid() {
			out[i].Address = f.Addr.String()
		}
		for _, a := range f.Addrs {
			out[i].Addresses = append(out[i].Addresses, a.String())
		}
	}
	return out
}
