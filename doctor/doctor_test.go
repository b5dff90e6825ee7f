package doctor

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/bridge"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/config/reload"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/orphans"
	"github.com/ipamd/ipamd/reconciler"
	"github.com/ipamd/ipamd/watchdog"
)

var at = time.Unix(1_750_000_000, 0)

func after(d time.Duration) ipam.Stamp {
	return ipam.Stamp{Wall: at.Add(d), Boottime: time.Hour + d, BootID: "one"}
}

// One state for each finding that is not about one address, and one beside it that is well.
func TestExamine(t *testing.T) {
	usage := func(most, quarantined int) []ipam.Usage {
		return []ipam.Usage{{Pool: ipam.Pool{PoolSpec: ipam.PoolSpec{Name: "default"}}, QuarantineCap: most,
			ByState: map[ipam.State]int{ipam.Quarantined: quarantined}}}
	}
	draining := func(state ipam.State) []ipam.Usage {
		return []ipam.Usage{{Pool: ipam.Pool{UID: "p", State: ipam.PoolDraining, PoolSpec: ipam.PoolSpec{Name: "old", Prefix: netip.MustParsePrefix("fd00::/64")}},
			QuarantineCap: 1, ByState: map[ipam.State]int{state: 1}}}
	}
	waits := errors.New("it waits")
	for name, tt := range map[string]struct {
		spoil  func(*State)
		want   []string // kinds, in order
		says   string   // in the first one's detail
		repair string   // in the first one's command
	}{
		"the bridge is down": {func(s *State) { s.Unready = []*bridge.NotReadyError{{Reason: "rt0 is down", Since: at}} }, []string{"bridge_not_ready"}, "rt0 is down", ""},
		"a pool's gateway is missing": {func(s *State) {
			s.Usage = usage(25, 0)
			s.PoolUnready = func(*ipam.Pool) error {
				return &allocator.BridgeError{Pool: "default", Bridge: "br9", Reason: "br9 is without the gateway 10.9.0.1/24", Since: at, Repair: []string{"ip addr add 10.9.0.1/24 dev br9"}}
			}
		}, []string{"pool_not_ready"}, "br9 is without the gateway", "ip addr add 10.9.0.1/24 dev br9"},
		"the disk is full":           {func(s *State) { s.Book.ReadOnly, s.Book.ReadOnlySince = errors.New("disk is full"), at }, []string{"book_readonly"}, "disk is full", ""},
		"others may change the book": {func(s *State) { s.Book.Exposed = "book.db: group 1 may write to it" }, []string{"book_exposed"}, "group 1", ""},
		"the book's disk fails":      {func(s *State) { s.Book.Growing, s.Book.GrowingSince = errors.New("fold the log: EIO"), at }, []string{"book_grows"}, "fold the log: EIO", ""},
		"another runner's book":      {func(s *State) { s.Identity = errors.New("it is runner-2's") }, []string{"identity_mismatch"}, "runner-2", ""},
		"a witness is silent": {func(s *State) {
			s.Census.Silent = []census.Silence{{Witness: census.Runtime, Reason: "down", Since: at}}
		}, []string{"witness_silent"}, "runtime", ""},
		"a row cannot be read":          {func(s *State) { s.Book.Unreadable = []netdb.Unreadable{{Row: "10.8.64.999", Reason: "no address"}} }, []string{"unreadable_row"}, `"10.8.64.999": no address`, ""},
		"quarantines near their share":  {func(s *State) { s.Usage = usage(25, 20) }, []string{"quarantine_near_cap"}, "20 of at most 25", ""},
		"quarantines below their share": {func(s *State) { s.Usage = usage(25, 19) }, nil, "", ""},
		"a pool of one address, well":   {func(s *State) { s.Usage = usage(1, 0) }, nil, "", ""},
		"a pool of one, quarantined":    {func(s *State) { s.Usage = usage(1, 1) }, []string{"quarantine_near_cap"}, "1 of at most 1", ""},
		"all is well":                   {func(s *State) {}, nil, "", ""},
		"everything at once, addresses last": {func(s *State) {
			s.Unready, s.Book.ReadOnly, s.Book.ReadOnlySince = []*bridge.NotReadyError{{Reason: "x", Since: at}}, errors.New("y"), at
			two := netip.MustParseAddr("10.8.64.2")
			s.Leases = []*ipam.Lease{{Addr: two, State: ipam.Bound}}
		}, []string{"book_readonly", "bridge_not_ready", "bound_unseen"}, "y", ""},
		"an orphan": {func(s *State) {
			s.Orphans = []orphans.Orphan{{Sandbox: "A", Containers: []watchdog.Container{{Namespace: "default", ID: "c1"}}, Since: at}}
		}, []string{"orphan"}, `sandbox "A" runs: its owner says that it is gone, and it has the containers default/c1`, "ipamctl explain orphan"},
		"G11: orphans are held": {func(s *State) {
			s.Orphans = []orphans.Orphan{{Sandbox: "A", Since: at, Held: true, Err: waits}, {Sandbox: "B", Since: at.Add(-time.Hour), Held: true, Err: waits}}
		}, []string{"orphan", "orphan", "orphans_held"}, "; it waits", "ipamctl reconcile --confirm-orphans 2-"},
		"another runtime": {func(s *State) {
			s.OtherRuntime = &watchdog.OtherRuntime{Known: watchdog.KnownRuntime{ID: "one"}, Met: "two", Since: at}
		}, []string{"runtime_changed"},
			"containerd two answers, but the containers of the book are in containerd one", "ipamctl reconcile --confirm"},
		"the runtime lost its metadata": {func(s *State) {
			s.OtherRuntime = &watchdog.OtherRuntime{Known: watchdog.KnownRuntime{ID: "one", Lost: true}, Met: "one", Since: at}
		}, []string{"runtime_changed"},
			"containerd one answers, but the containers of the book are in containerd one before it lost its metadata", "ipamctl reconcile --confirm"},
		"the owner lost its list": {func(s *State) {
			s.OwnerUnclear = &orphans.UnclearError{Since: at, Cause: errors.New("the owner's list is empty")}
		}, []string{"owner_unclear"}, "list is empty; no sandbox is taken", "ipamctl explain owner_unclear"},
		"releases are held": {func(s *State) {
			s.Last = &reconciler.Report{Held: &reconciler.Held{Reason: "6 of 7 open leases", Since: at}}
		}, []string{"reap_held"}, "6 of 7", "ipamctl reconcile --confirm"},
		"the clock was moved":      {func(s *State) { s.ClockStep, s.ClockStepped = -90*time.Minute, at }, []string{"clock_stepped"}, "-1h30m0s", "timedatectl"},
		"the clock was trimmed":    {func(s *State) { s.ClockStep = time.Second }, nil, "", ""},
		"the clock was moved more": {func(s *State) { s.ClockStep, s.ClockStepped = time.Second+time.Millisecond, at }, []string{"clock_stepped"}, "1.001s", ""},
		"a pool drains and its leases do not end": {func(s *State) {
			s.Usage = draining(ipam.Paused)
			s.Leases = []*ipam.Lease{{PoolUID: "p", Addr: netip.MustParseAddr("fd00::2"), State: ipam.Paused, Sandbox: "nb", Rev: 7, Since: after(0)}}
			s.Census = census.Census{}
		}, []string{"pool_cannot_drain"}, `1 of its leases do not end by themselves; the first is fd00::2, paused by sandbox "nb"`, "ipamctl explain pool_cannot_drain"},
		"a pool drains": {func(s *State) { s.Usage = draining(ipam.Bound) }, nil, "", ""},
		"a reload was refused": {func(s *State) {
			s.RefusedReload = &reload.Refusal{Reason: "pool x overlaps", Next: "systemctl reload ipamd", Since: at}
		}, []string{"configuration_refused"}, "pool x overlaps", "systemctl reload ipamd"},
		"traffic wakes none": {func(s *State) {
			s.TrafficUnwatched, s.Sleep = errors.New("another program has it"), func(string) *ipam.Sleep { return &ipam.Sleep{Wake: new(ipam.WakePolicy)} }
			s.Leases = []*ipam.Lease{{State: ipam.Reserved, Since: after(0)}}
		}, []string{"traffic_unwatched"}, "another program has it", "ipamctl explain traffic_unwatched"},
		"traffic would wake none, and is to": {func(s *State) { s.TrafficUnwatched = errors.New("x") }, nil, "", ""},
		"a pool is not configured": {func(s *State) {
			s.Unnamed = []*ipam.Pool{{PoolSpec: ipam.PoolSpec{Name: "old", Prefix: netip.MustParsePrefix("10.9.0.0/24")}}}
		}, []string{"pool_not_configured"}, "pool old, 10.9.0.0/24", "ipamctl explain pool_not_configured"},
	} {
		t.Run(name, func(t *testing.T) {
			s := State{World: reconciler.World{Started: at, Now: after(0),
				Place: func(netip.Addr) ipam.Place { return ipam.Place{Usable: true} }}, Exhausted: func(string) (bool, time.Duration) { return false, 0 },
				PoolUnready: func(*ipam.Pool) error { return nil }}
			tt.spoil(&s)
			found := Examine(s)
			var got []string
			for _, f := range found {
				got = append(got, f.Kind)
				if f.Detail == "" || f.Repair == "" || f.Since.IsZero() {
					t.Errorf("%s says %q, since %v, repaired by %q", f.Kind, f.Detail, f.Since, f.Repair)
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Fatalf("found %q, want %q", got, tt.want)
			}
			if len(found) > 0 && (!strings.Contains(found[0].Detail, tt.says) || !strings.Contains(found[0].Repair, tt.repair)) {
				t.Errorf("%s says %q, repaired by %q; want %q and %q in them", got[0], found[0].Detail, found[0].Repair, tt.says, tt.repair)
			}
		})
	}
}

// A pool is near its cap since the row that brought it there, whatever was
// quarantined before and since, and elsewhere.
func TestNearCapSince(t *testing.T) {
	row := func(pool string, state ipam.State, age time.Duration) *ipam.Lease {
		return &ipam.Lease{PoolUID: pool, State: state, Since: after(-age)}
	}
	s := State{World: reconciler.World{Started: after(-time.Hour).Wall, Leases: []*ipam.Lease{
		row("p", ipam.Quarantined, 2*time.Minute), row("p", ipam.Quarantined, 9*time.Minute), row("p", ipam.Quarantined, 5*time.Minute),
		row("p", ipam.Quarantined, 7*time.Minute), row("p", ipam.Quarantined, 1*time.Minute),
		row("q", ipam.Quarantined, 8*time.Minute), row("p", ipam.Bound, 6*time.Minute),
	}}}
	for name, tt := range map[string]struct {
		pool string
		most int
		want time.Duration
	}{
		"the fourth of five":        {"p", 5, 2 * time.Minute},
		"rounded up":                {"p", 3, 5 * time.Minute},
		"the only one":              {"q", 1, 8 * time.Minute},
		"more counted than read":    {"q", 9, 8 * time.Minute},
		"counted, and none is read": {"r", 1, time.Hour},
	} {
		u := ipam.Usage{Pool: ipam.Pool{UID: tt.pool}, QuarantineCap: tt.most}
		if got := s.nearCapSince(u); !got.Equal(after(-tt.want).Wall) {
			t.Errorf("%s: since %v, want %v", name, got, after(-tt.want).Wall)
		}
	}
}
