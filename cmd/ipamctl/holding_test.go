package main

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ipamd/ipamd/api"
)

// Who held an address, read from changes that may begin in the middle.
func TestHoldings(t *testing.T) {
	at := func(rev int64) time.Time { return noon.Add(time.Duration(rev) * time.Minute) }
	change := func(rev int64, lease, sandbox string, from, to api.State, reason, actor string) api.Change {
		return api.Change{Revision: rev, At: at(rev), Address: "10.8.64.2", LeaseID: lease, Sandbox: sandbox, From: from, To: to, Reason: reason, Actor: actor}
	}
	given := change(1, "l1", "a", api.Free, api.Reserved, "allocated", "allocator")
	bound := change(2, "l1", "a", api.Reserved, api.Bound, "bound", "client")
	let := change(3, "l1", "a", api.Bound, api.Releasing, "released", "client")
	cooled := change(4, "l1", "a", api.Releasing, api.Cooling, "removal_confirmed", "watchdog")
	adopted := change(5, "l1", "a", api.Cooling, api.Bound, "adopted", "reconciler")
	free := change(5, "l1", "a", api.Cooling, api.Free, "cooldown_over", "reconciler")
	next := change(6, "l2", "b", api.Free, api.Reserved, "allocated", "allocator")
	past := func(t holding) holding { t.until, t.why, t.by = at(3), "released", "client"; return t }
	one := holding{lease: "l1", address: "10.8.64.2", sandbox: "a", from: at(1), first: 1}
	upTo := func(t holding, rev int64, now api.State) holding { t.last, t.now = rev, now; return t }

	for name, tt := range map[string]struct {
		changes []api.Change // oldest first, for the eye
		want    []holding    // newest first
	}{
		"nothing":               {nil, nil},
		"held still":            {[]api.Change{given, bound}, []holding{upTo(one, 2, api.Bound)}},
		"let go, not confirmed": {[]api.Change{given, bound, let}, []holding{past(upTo(one, 3, api.Releasing))}},
		"two after each other": {[]api.Change{given, bound, let, cooled, free, next}, []holding{
			{lease: "l2", address: "10.8.64.2", sandbox: "b", from: at(6), first: 6, last: 6, now: api.Reserved},
			past(upTo(one, 5, api.Free)),
		}},
		"let go and adopted again": {[]api.Change{given, bound, let, cooled, adopted}, []holding{
			{lease: "l1", address: "10.8.64.2", sandbox: "a", from: at(5), first: 5, last: 5, now: api.Bound},
			past(upTo(one, 4, api.Cooling)),
		}},
		"begun before": {[]api.Change{bound, let}, []holding{
			past(holding{lease: "l1", address: "10.8.64.2", sandbox: "a", first: 2, last: 3, now: api.Releasing}),
		}},
		"ended before": {[]api.Change{cooled, free}, []holding{
			{lease: "l1", address: "10.8.64.2", sandbox: "a", first: 4, last: 5, now: api.Free},
		}},
		"never bound": {[]api.Change{given, change(2, "l1", "a", api.Reserved, api.Free, "expired", "watchdog")}, []holding{
			{lease: "l1", address: "10.8.64.2", sandbox: "a", from: at(1), until: at(2), why: "expired", by: "watchdog", first: 1, last: 2, now: api.Free},
		}},
		"set aside, nobody's": {[]api.Change{
			change(1, "q", "", api.Free, api.Quarantined, "seen_on_wire", "allocator"),
			change(2, "q", "", api.Quarantined, api.Cooling, "not_seen", "reconciler"),
		}, nil},
		"set aside, then adopted": {[]api.Change{
			change(1, "q", "", api.Free, api.Quarantined, "seen_on_wire", "allocator"),
			change(2, "q", "a", api.Quarantined, api.Bound, "adopted", "reconciler"),
		}, []holding{{lease: "q", address: "10.8.64.2", sandbox: "a", from: at(2), first: 2, last: 2, now: api.Bound}}},
	} {
		t.Run(name, func(t *testing.T) {
			changes := slices.Clone(tt.changes)
			slices.Reverse(changes)
			if d := cmp.Diff(tt.want, holdings(changes), cmp.AllowUnexported(holding{})); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}
