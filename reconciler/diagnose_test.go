package reconciler

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
)

// One world for each kind of finding, and one beside it that is well.
func TestDiagnose(t *testing.T) {
	lease := func(s ipam.State, age time.Duration) *ipam.Lease {
		return &ipam.Lease{ID: "l1", Addr: two, State: s, Sandbox: "a", UID: "a", BindWithin: 10 * time.Minute,
			Since: after(-age), Reason: "seen_on_wire"}
	}
	sighting := func(a netip.Addr) census.Census {
		c := seenAt(a)
		c.Seen[a][0].At = boot.Wall
		return c
	}
	for name, tt := range map[string]struct {
		spoil func(*World)
		want  []string // "kind address", in order
		says  string   // in the first one's detail
	}{
		"all is well":                  {func(w *World) {}, nil, ""},
		"a stranger on a free address": {func(w *World) { w.Census = sighting(three) }, []string{"foreign 10.8.64.3"}, "netns witness sees on veth1"},
		"a stranger on a cooling one": {func(w *World) {
			w.Leases, w.Census = []*ipam.Lease{lease(ipam.Cooling, 0)}, sighting(two)
		}, []string{"foreign 10.8.64.2"}, ""},
		"a workload on the gateway": {func(w *World) { w.Census = sighting(netip.MustParseAddr("10.8.64.1")) }, nil, ""},
		"quarantined": {func(w *World) {
			w.Leases, w.Census = []*ipam.Lease{lease(ipam.Quarantined, 0)}, sighting(two)
		}, []string{"quarantined 10.8.64.2"}, "seen_on_wire"},
		"quarantined by hand": {func(w *World) {
			l := lease(ipam.Quarantined, 0)
			l.Reason, l.Hold = "set_aside", "printer of the lab"
			w.Leases = []*ipam.Lease{l}
		}, []string{"quarantined 10.8.64.2"}, "quarantined by the operator: printer of the lab"},
		"quarantined, on evidence that cannot be read": {func(w *World) {
			l := lease(ipam.Quarantined, 0)
			l.Evidence = []byte(`"odd"`)
			w.Leases = []*ipam.Lease{l}
		}, []string{"quarantined 10.8.64.2"}, "seen_on_wire"},
		"reserved, in time":                   {func(w *World) { w.Leases = []*ipam.Lease{lease(ipam.Reserved, 10*time.Minute)} }, nil, ""},
		"reserved, past its deadline":         {func(w *World) { w.Leases = []*ipam.Lease{lease(ipam.Reserved, 11*time.Minute)} }, []string{"reserved_past_deadline 10.8.64.2"}, `"a"`},
		"releasing, for half a minute":        {func(w *World) { w.Leases = []*ipam.Lease{lease(ipam.Releasing, 30*time.Second)} }, nil, ""},
		"releasing, for longer":               {func(w *World) { w.Leases = []*ipam.Lease{lease(ipam.Releasing, 30*time.Second+1)} }, []string{"releasing_stuck 10.8.64.2"}, "not confirmed"},
		"bound and unseen":                    {func(w *World) { w.Leases = []*ipam.Lease{lease(ipam.Bound, 0)} }, []string{"bound_unseen 10.8.64.2"}, `"a"`},
		"paused and unseen":                   {func(w *World) { w.Leases = []*ipam.Lease{lease(ipam.Paused, 24*time.Hour)} }, nil, ""},
		"bound and seen":                      {func(w *World) { w.Leases, w.Census = []*ipam.Lease{lease(ipam.Bound, 0)}, sighting(two) }, nil, ""},
		"bound, unseen, a witness silent":     {func(w *World) { w.Leases, w.Census = []*ipam.Lease{lease(ipam.Bound, 0)}, silentCensus() }, nil, ""},
		"bound, and a stranger is on it":      {strangerOn(lease(ipam.Bound, 0), sighting(two)), []string{"conflict 10.8.64.2"}, "under another on veth1"},
		"releasing, and a stranger":           {strangerOn(lease(ipam.Releasing, 0), sighting(two)), []string{"conflict 10.8.64.2"}, ""},
		"cooling is the foreign one's row":    {strangerOn(lease(ipam.Cooling, 0), sighting(two)), []string{"foreign 10.8.64.2"}, ""},
		"a lease without a sandbox":           {func(w *World) { w.Leases = []*ipam.Lease{{Addr: two, State: ipam.Bound}} }, []string{"bound_unseen 10.8.64.2"}, `""`},
		"a warm slot, claimed just now":       {claimedSlot(lease(ipam.Bound, 10*time.Minute), sighting(two)), nil, ""},
		"a warm slot that no container is in": {claimedSlot(lease(ipam.Bound, 11*time.Minute), sighting(two)), []string{"slot_unused 10.8.64.2"}, "11m0s ago"},
		"the same, and the runtime is silent": {silentRuntime(claimedSlot(lease(ipam.Bound, 11*time.Minute), sighting(two))), nil, ""},
		"a warm slot whose container is gone": {claimedSlot(with(lease(ipam.Bound, time.Hour), ipam.Container{Namespace: "default", ID: "c"}), sighting(two)), []string{"stray 10.8.64.2"}, ""},
		"to be frozen, its task runs":         {sleeps(ipam.Sleep{Mode: ipam.Freeze}, 10*time.Minute, taskRunning, nil), nil, ""},
		"to be frozen, it runs for long":      {sleeps(ipam.Sleep{Mode: ipam.Freeze}, 11*time.Minute, taskRunning, nil), []string{"paused_running 10.8.64.2"}, `"a" was paused (freeze) 11m0s ago`},
		"to be frozen, it is":                 {sleeps(ipam.Sleep{Mode: ipam.Freeze}, 11*time.Minute, taskPaused, nil), nil, ""},
		"to be frozen, a label alone runs": {func(w *World) {
			sleeps(ipam.Sleep{Mode: ipam.Freeze}, 11*time.Minute, taskPaused, nil)(w)
			none := netip.Addr{}
			w.Census.Seen[none] = append(w.Census.Seen[none], census.Sighting{Witness: census.Runtime, Namespace: "default", Container: "c9", Sandbox: "a", Task: taskRunning})
		}, nil, ""},
		"frozen, its task runs since":         {sleeps(ipam.Sleep{Mode: ipam.Freeze, Still: true}, 11*time.Minute, taskRunning, nil), nil, ""},
		"to be frozen, the runtime is silent": {silentRuntime(sleeps(ipam.Sleep{Mode: ipam.Freeze}, 11*time.Minute, taskRunning, nil)), nil, ""},
		"a sleeper's port is gone":            {sleeps(ipam.Sleep{Mode: ipam.Freeze, Still: true, Wake: new(ipam.WakePolicy)}, 0, taskPaused, errors.New("veth1 is no port")), []string{"paused_unwatched 10.8.64.2"}, "no traffic wakes sandbox \"a\": veth1 is no port"},
		"it is there":                         {sleeps(ipam.Sleep{Mode: ipam.Freeze, Still: true, Wake: new(ipam.WakePolicy)}, 0, taskPaused, nil), nil, ""},
		"it is gone, and nothing wakes it":    {sleeps(ipam.Sleep{Mode: ipam.Freeze, Still: true}, 0, taskPaused, errors.New("veth1 is no port")), nil, ""},
		"it is gone, the kernel is silent": {func(w *World) {
			sleeps(ipam.Sleep{Mode: ipam.Freeze, Still: true, Wake: new(ipam.WakePolicy)}, 0, taskPaused, errors.New("veth1 is no port"))(w)
			w.Census.Silent = append(w.Census.Silent, census.Silence{Witness: census.Netns, Reason: "gone"})
		}, nil, ""},
		"a state of the future": {func(w *World) { w.Leases = []*ipam.Lease{{Addr: two, State: "dreaming"}} }, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := World{
				Place:    func(a netip.Addr) ipam.Place { return ipam.Place{Usable: a == two || a == three} },
				Blockers: func(*ipam.Lease) []string { return nil }, Started: boot.Wall, Now: boot,
			}
			tt.spoil(&w)
			found := Diagnose(w)
			got := kinds(t, found)
			if !slices.Equal(got, tt.want) {
				t.Fatalf("found %q, want %q", got, tt.want)
			}
			if len(found) > 0 && !strings.Contains(found[0].Detail, tt.says) {
				t.Errorf("%s says %q, want %q in it", got[0], found[0].Detail, tt.says)
			}
		})
	}
}

// claimedSlot is a world in which a lease is one of a warm slot that a sandbox has.
func claimedSlot(l *ipam.Lease, c census.Census) func(*World) {
	return func(w *World) {
		w.Leases, w.Census, w.Runtime = []*ipam.Lease{l}, c, true
		w.Slot = func(id string) *ipam.Slot { return &ipam.Slot{LeaseID: id, Claimed: true} }
	}
}

// sleeps is a world in which a lease is paused, whose container's task is in a state, and whose
// traffic cannot be watched because of why.
func sleeps(how ipam.Sleep, age time.Duration, task string, why error) func(*World) {
	return func(w *World) {
		l := &ipam.Lease{ID: "lease", Addr: netip.MustParseAddr("10.8.64.2"), State: ipam.Paused, Sandbox: "a", UID: "a", Since: after(-age),
			Containers: []ipam.Container{{Namespace: "default", ID: "c"}}}
		w.Leases, w.Runtime = []*ipam.Lease{l}, true
		w.Census = census.Census{Seen: map[netip.Addr][]census.Sighting{{}: {{Witness: census.Runtime, Namespace: "default", Container: "c", Task: task}}}}
		w.Sleep = func(string) *ipam.Sleep { return &how }
		w.Unwatched = func(*ipam.Lease) error { return why }
	}
}

func silentRuntime(world func(*World)) func(*World) {
	return func(w *World) {
		world(w)
		w.Census.Silent = append(w.Census.Silent, census.Silence{Witness: census.Runtime, Reason: "gone"})
	}
}

func with(l *ipam.Lease, c ipam.Container) *ipam.Lease {
	l.Containers = append(l.Containers, c)
	return l
}

// strangerOn is a world in which the lease records another port than is seen.
func strangerOn(l *ipam.Lease, c census.Census) func(*World) {
	return func(w *World) {
		l.HostInterface = "veth9"
		w.Leases, w.Census = []*ipam.Lease{l}, c
	}
}

// A bound lease that no pass has missed yet is unseen since the last pass, or
// since it was bound.
func TestUnseenSince(t *testing.T) {
	l := &ipam.Lease{ID: "l1", Since: after(-5 * time.Minute)}
	w := World{Started: after(-time.Hour).Wall}
	for name, tt := range map[string]struct {
		passed time.Time
		unseen map[string]time.Time
		want   time.Duration
	}{
		"before the first pass": {time.Time{}, nil, 5 * time.Minute},
		"bound after the last":  {after(-6 * time.Minute).Wall, nil, 5 * time.Minute},
		"bound before the last": {after(-time.Minute).Wall, nil, time.Minute},
		"missed by passes":      {after(-time.Minute).Wall, map[string]time.Time{"l1": after(-3 * time.Minute).Wall}, 3 * time.Minute},
	} {
		w.Last = nil
		if !tt.passed.IsZero() {
			w.Last = &Report{Started: tt.passed, AbsentSince: tt.unseen}
		}
		if got := w.unseenSince(l); !got.Equal(after(-tt.want).Wall) {
			t.Errorf("%s: since %v, want %v", name, got, after(-tt.want).Wall)
		}
	}
}
