package holding

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ipamd/ipamd/api"
)

// Who held an address, read from changes that may begin in the middle.
func TestHoldings(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
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
	past := func(t Holding) Holding { t.Until, t.Why, t.By = at(3), "released", "client"; return t }
	one := Holding{Lease: "l1", Address: "10.8.64.2", Sandbox: "a", From: at(1), First: 1}
	upTo := func(t Holding, rev int64, now api.State) Holding { t.Last, t.Now = rev, now; return t }

	for name, tt := range map[string]struct {
		changes []api.Change // oldest first, for the eye
		want    []Holding    // newest first
	}{
		"nothing":                 {nil, nil},
		"held still":              {[]api.Change{given, bound}, []Holding{upTo(one, 2, api.Bound)}},
		"released, not confirmed": {[]api.Change{given, bound, let}, []Holding{past(upTo(one, 3, api.Releasing))}},
		"two after each other": {[]api.Change{given, bound, let, cooled, free, next}, []Holding{
			{Lease: "l2", Address: "10.8.64.2", Sandbox: "b", From: at(6), First: 6, Last: 6, Now: api.Reserved},
			past(upTo(one, 5, api.Free)),
		}},
		"released and adopted again": {[]api.Change{given, bound, let, cooled, adopted}, []Holding{
			{Lease: "l1", Address: "10.8.64.2", Sandbox: "a", From: at(5), First: 5, Last: 5, Now: api.Bound},
			past(upTo(one, 4, api.Cooling)),
		}},
		"begun before": {[]api.Change{bound, let}, []Holding{
			past(Holding{Lease: "l1", Address: "10.8.64.2", Sandbox: "a", First: 2, Last: 3, Now: api.Releasing}),
		}},
		"ended before": {[]api.Change{cooled, free}, []Holding{
			{Lease: "l1", Address: "10.8.64.2", Sandbox: "a", First: 4, Last: 5, Now: api.Free},
		}},
		"never bound": {[]api.Change{given, change(2, "l1", "a", api.Reserved, api.Free, "expired", "watchdog")}, []Holding{
			{Lease: "l1", Address: "10.8.64.2", Sandbox: "a", From: at(1), Until: at(2), Why: "expired", By: "watchdog", First: 1, Last: 2, Now: api.Free},
		}},
		"quarantined, of no sandbox": {[]api.Change{
			change(1, "q", "", api.Free, api.Quarantined, "seen_on_wire", "allocator"),
			change(2, "q", "", api.Quarantined, api.Cooling, "not_seen", "reconciler"),
		}, nil},
		"quarantined, then adopted": {[]api.Change{
			change(1, "q", "", api.Free, api.Quarantined, "seen_on_wire", "allocator"),
			change(2, "q", "a", api.Quarantined, api.Bound, "adopted", "reconciler"),
		}, []Holding{{Lease: "q", Address: "10.8.64.2", Sandbox: "a", From: at(2), First: 2, Last: 2, Now: api.Bound}}},
	} {
		t.Run(name, func(t *testing.T) {
			changes := slices.Clone(tt.changes)
			slices.Reverse(changes)
			if d := cmp.Diff(tt.want, Read(changes)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}
