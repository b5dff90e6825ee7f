package storm_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/ipam"
)

// quiet is a history without a fault: a had .2, released it, b has it after the
// cooldown. Each call makes a new one for a case to spoil.
func quiet() *history {
	two := netip.MustParseAddr("10.8.0.2")
	return &history{
		cooldown: 3 * time.Second, cooldownMin: time.Second,
		grants: []grant{
			{asked: 1, answered: 2, addr: two, lease: "A", uid: "a"},
			{asked: 4e9, answered: 4e9 + 1, addr: two, lease: "B", uid: "b"},
		},
		holds: []*hold{
			{from: 2, to: 1e8, bindBy: never, addr: two, lease: "A", uid: "a"},
			{from: 4e9 + 1, to: never, bindBy: never, addr: two, lease: "B", uid: "b"},
		},
		lives: []*life{
			{from: 3, to: 2e8, addr: two, netns: "na", lease: "A", uid: "a", bound: true},
			{from: 4e9 + 2, to: never, addr: two, netns: "nb", lease: "B", uid: "b", bound: true},
		},
		listings: []listing{{asked: 5e9, answered: 5e9 + 1, open: map[string]netip.Addr{"B": two}, states: map[netip.Addr]api.State{two: api.Bound}}},
	}
}

// TestJudgeFindsEveryFault spoils the quiet history in one way at a time.
func TestJudgeFindsEveryFault(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*history)
		want  string // "" for no fault
	}{
		"quiet":                        {func(*history) {}, ""},
		"two owners at an instant":     {func(h *history) { h.holds[0].to = 4e9 + 2 }, "two owners"},
		"an owner that never released": {func(h *history) { h.holds[0].to = never }, "two owners"},
		"an owner that never bound":    {func(h *history) { h.holds[0].to, h.holds[0].bindBy = never, 35e8 }, ""},
		"its deadline came early": {func(h *history) {
			h.holds[0].to, h.holds[0].bindBy, h.leaps = never, 5e9, []*leap{{from: 1e9, to: 11e8, by: 3 * time.Second}}
		}, ""},
		"its deadline came early, before it was answered again": {func(h *history) {
			h.holds[0].from, h.holds[0].to, h.holds[0].asked, h.holds[0].bindBy = 2e9, never, 1, 5e9
			h.leaps = []*leap{{from: 1e9, to: 11e8, by: 3 * time.Second}}
		}, ""},
		"the clock leapt before it was asked for": {func(h *history) {
			h.holds[0].from, h.holds[0].to, h.holds[0].asked, h.holds[0].bindBy = 2e9, never, 12e8, 5e9
			h.leaps = []*leap{{from: 1e9, to: 11e8, by: 3 * time.Second}}
		}, "two owners"},
		"the same lease answered twice": {func(h *history) { h.holds = append(h.holds, h.holds[1]) }, ""},
		"two live at an instant":        {func(h *history) { h.lives[0].to = 4e9 + 3 }, "two live"},
		"two live, one without a right": {func(h *history) { h.lives[0].from, h.lives[0].to = 4e9+1, 4e9+3 }, ""},
		"a stranger beside the owner": {func(h *history) {
			h.lives[0].lease, h.lives[0].bound, h.lives[0].from, h.lives[0].to = "", false, 4e9+1, never
		}, ""},
		"given while a stranger was there": {func(h *history) { h.lives[0].lease, h.lives[0].bound, h.lives[0].to = "", false, never }, "given while live"},
		"a stranger came during the call": {func(h *history) {
			h.lives[0].lease, h.lives[0].bound, h.lives[0].from, h.lives[0].to = "", false, 4e9+1, never
		}, ""},
		"a stranger left during the call":      {func(h *history) { h.lives[0].lease, h.lives[0].bound, h.lives[0].to = "", false, 4e9 }, ""},
		"given before the old one was removed": {func(h *history) { h.lives[0].to = 4e9 + 1 }, "given while live"},
		"given again to its own":               {func(h *history) { h.grants[1].lease, h.grants[1].existing, h.lives[0].to = "A", true, never }, "two live"},
		"reused inside the cooldown":           {func(h *history) { h.lives[0].to = 2e9 }, "reused too soon"},
		"reused early, and said so":            {func(h *history) { h.lives[0].to, h.grants[1].early = 2e9, true }, ""},
		"reused inside the least cooldown":     {func(h *history) { h.lives[0].to, h.grants[1].early = 35e8, true }, "reused too soon"},
		"reused by its own sandbox":            {func(h *history) { h.lives[0].to, h.grants[1].uid = 35e8, "a" }, ""},
		"its own again, given early before": {func(h *history) {
			h.lives[0].to, h.grants[1].early = 2e9, true
			back := h.grants[1]
			back.asked, back.answered, back.lease, back.early = back.answered, back.answered+1, "C", false
			h.grants = append(h.grants, back)
		}, ""},
		"the clock leapt meanwhile": {func(h *history) {
			h.lives[0].to, h.leaps = 2e9, []*leap{{from: 21e8, to: 22e8, by: 2 * time.Second}}
		}, ""},
		"the clock leapt before": {func(h *history) {
			h.lives[0].to, h.leaps = 2e9, []*leap{{from: 1e9, to: 11e8, by: 2 * time.Second}}
		}, "reused too soon"},
		"never bound, so never cooled":    {func(h *history) { h.lives[0].to, h.lives[0].bound = 35e8, false }, ""},
		"an acknowledged lease is lost":   {func(h *history) { h.listings[0].open = nil }, "lost"},
		"it is there, elsewhere":          {func(h *history) { h.listings[0].open["B"] = netip.MustParseAddr("10.8.0.3") }, "lost"},
		"it was released during the list": {func(h *history) { h.listings[0].open, h.holds[1].to = nil, 5e9 }, ""},
		"live and free": {func(h *history) {
			h.listings[0].states = nil
			h.holds[1].to = 55e8
			h.listings[0].asked = 56e8
			h.listings[0].answered = 57e8
		}, "live and free"},
		"live and cooling":        {func(h *history) { h.listings[0].states[h.holds[1].addr] = api.Cooling }, "live and free"},
		"live and being released": {func(h *history) { h.listings[0].states[h.holds[1].addr] = api.Releasing }, ""},
		"set when its time was over": {func(h *history) {
			h.listings, h.holds[1].to = append(h.listings, listing{asked: 6e9, answered: 7e9}), 45e8
		}, ""},
		"an answer that nothing explains": {func(h *history) { h.odd = []string{"internal"} }, "odd: internal"},
	} {
		t.Run(name, func(t *testing.T) {
			h := quiet()
			c.spoil(h)
			expect(t, judge(h), c.want)
		})
	}
}

// TestJudgeReadsTheBook spoils a book's history in one way at a time.
func TestJudgeReadsTheBook(t *testing.T) {
	two := netip.MustParseAddr("10.8.0.2")
	stamp := func(at time.Duration) ipam.Stamp { return ipam.Stamp{Boottime: at, BootID: "one"} }
	// free has the address be free between the two, and the first never bound.
	free := func(c []ipam.Change, at, given time.Duration) {
		c[1].To, c[2].From, c[2].To, c[2].At = ipam.Releasing, ipam.Releasing, ipam.Cooling, c[3].At
		c[3].From, c[3].To, c[3].At = ipam.Cooling, ipam.Free, stamp(at)
		c[4].From, c[4].At = ipam.Free, stamp(given)
	}
	for name, c := range map[string]struct {
		spoil func(*history, []ipam.Change)
		want  string
	}{
		"quiet":                      {func(*history, []ipam.Change) {}, ""},
		"a state that nothing made":  {func(_ *history, c []ipam.Change) { c[1].From = ipam.Paused }, "a gap"},
		"another lease moves it":     {func(_ *history, c []ipam.Change) { c[2].LeaseID = "B" }, "taken over"},
		"before the cooldown":        {func(_ *history, c []ipam.Change) { c[4].At = stamp(5e9) }, "reused too soon"},
		"and said so":                {func(h *history, c []ipam.Change) { c[4].At, h.grants[1].early = stamp(5e9), true }, ""},
		"and no answer says so":      {func(h *history, c []ipam.Change) { c[4].At, h.grants = stamp(5e9), h.grants[:1] }, ""},
		"before the least cooldown":  {func(h *history, c []ipam.Change) { c[4].At, h.grants[1].early = stamp(35e8), true }, "reused too soon"},
		"least of all, not answered": {func(h *history, c []ipam.Change) { c[4].At, h.grants = stamp(35e8), h.grants[:1] }, "reused too soon"},
		"its own sandbox may":        {func(_ *history, c []ipam.Change) { c[4].At, c[4].UID = stamp(35e8), "a" }, ""},
		"a reboot proves nothing":    {func(_ *history, c []ipam.Change) { c[4].At = ipam.Stamp{Boottime: 5e8, BootID: "two"} }, "reused too soon"},
		"long enough after a reboot": {func(_ *history, c []ipam.Change) { c[4].At = ipam.Stamp{Boottime: 3e9, BootID: "two"} }, ""},
		"free in between":            {func(_ *history, c []ipam.Change) { free(c, 6e9, 6e9) }, ""},
		"free before its rest":       {func(_ *history, c []ipam.Change) { free(c, 5e9, 6e9) }, "free too soon"},
		"free, and then a reboot": {func(_ *history, c []ipam.Change) {
			free(c, 6e9, 0)
			c[4].At = ipam.Stamp{Boottime: 5e8, BootID: "two"}
		}, ""},
		"given early, and noted after a reboot": {func(h *history, c []ipam.Change) {
			h.grants[1].early = true
			c[1].To, c[2].From, c[2].To, c[2].At = ipam.Releasing, ipam.Releasing, ipam.Cooling, stamp(1e9)
			c[3] = ipam.Change{Rev: 4, At: stamp(3e9), Addr: two, LeaseID: "B", UID: "b", From: ipam.Cooling, To: ipam.Reserved}
			c[4].From, c[4].At = ipam.Reserved, ipam.Stamp{Boottime: 5e8, BootID: "two"}
		}, ""},
		"a grant it does not know": {func(_ *history, c []ipam.Change) { c[4].LeaseID = "C" }, "not in the book"},
	} {
		t.Run(name, func(t *testing.T) {
			changes := []ipam.Change{
				{Rev: 1, At: stamp(1), Addr: two, LeaseID: "A", UID: "a", From: ipam.Free, To: ipam.Reserved},
				{Rev: 2, At: stamp(2), Addr: two, LeaseID: "A", UID: "a", From: ipam.Reserved, To: ipam.Bound},
				{Rev: 3, At: stamp(2e9), Addr: two, LeaseID: "A", UID: "a", From: ipam.Bound, To: ipam.Releasing},
				{Rev: 4, At: stamp(3e9), Addr: two, LeaseID: "A", UID: "a", From: ipam.Releasing, To: ipam.Cooling},
				{Rev: 5, At: stamp(6e9), Addr: two, LeaseID: "B", UID: "b", From: ipam.Cooling, To: ipam.Reserved},
			}
			h := quiet()
			c.spoil(h, changes)
			expect(t, judgeBook(h, changes), c.want)
		})
	}
}

func expect(t *testing.T, faults []string, want string) {
	t.Helper()
	for _, f := range faults {
		if want != "" && strings.HasPrefix(f, want) {
			return
		}
	}
	if want != "" || len(faults) > 0 {
		t.Errorf("found %q, want %q", faults, want)
	}
}

// TestJudgeFindsAdoptions: what was taken over has to have lived there.
func TestJudgeFindsAdoptions(t *testing.T) {
	lived := &history{lives: []*life{{addr: two, uid: "a"}}}
	for from, want := range map[ipam.State]string{ipam.Free: "by a label", ipam.Quarantined: "by a label", ipam.Reserved: "", ipam.Paused: ""} {
		expect(t, adopted(lived, []ipam.Change{{Addr: two, UID: "b", From: from, To: ipam.Bound}}), want)
		expect(t, adopted(lived, []ipam.Change{{Addr: two, UID: "a", From: from, To: ipam.Bound}}), "")
		expect(t, adopted(lived, []ipam.Change{{Addr: three, UID: "a", From: from, To: ipam.Bound}}), want)
	}
}

// enforced is a history of rules without a fault: b is bound and lives, a's lease is cooling,
// and what was sent was received as far as it was its sender's own.
func enforced() *history {
	h := quiet()
	h.lives[1].netns, h.lives[1].since = "/spaces/7", 4e9+3
	port, _ := due(h.lives[1])
	h.sent = map[uint32]*sent{
		1: {at: 45e8, arrived: 45e8 + 1, port: port, what: "its own IPv4", own: true},
		2: {at: 45e8, arrived: never, port: port, what: "IPv4 from another's address"},
	}
	_, mac := h.lives[1].port()
	h.readings = []reading{{from: 46e8, to: 47e8, cooling: map[string]string{"C": "10.8.0.3"}, has: rules{
		"leased": {port}, "macs": {port + " " + mac.String()},
		"ipv4": {port + " " + mac.String() + " 10.8.0.2"}, "ipv6": {port + " " + mac.String() + " " + linkLocal(mac).String()},
	}}}
	return h
}

// TestJudgeHoldsTheRulesAgainstTheBook spoils the history of rules in one way at a time.
func TestJudgeHoldsTheRulesAgainstTheBook(t *testing.T) {
	opened := func(h *history, port string, from, to moment) {
		h.gaps = append(h.gaps, &gap{from: from, to: to, port: port})
	}
	for name, c := range map[string]struct {
		spoil func(*history)
		want  string // "" for no fault
	}{
		"as it should be":                   {func(*history) {}, ""},
		"another's frame arrives":           {func(h *history) { h.sent[2].arrived = 46e8 }, "passed"},
		"its own never arrives":             {func(h *history) { h.sent[1].arrived = never }, "dropped"},
		"its own is dropped in a gap":       {func(h *history) { h.sent[1].arrived = never; opened(h, "", 44e8, never) }, "dropped"},
		"while all rules were away":         {func(h *history) { h.sent[2].arrived = 46e8; opened(h, "", 455e7, 457e7) }, ""},
		"while those of its port were away": {func(h *history) { h.sent[2].arrived = 46e8; opened(h, "port7", 455e7, 457e7) }, ""},
		"while another port's were away":    {func(h *history) { h.sent[2].arrived = 46e8; opened(h, "port8", 455e7, 457e7) }, "passed"},
		"after they were back":              {func(h *history) { h.sent[2].arrived = 46e8; opened(h, "", 43e8, 44e8) }, "passed"},
		"no table":                          {func(h *history) { h.readings[0].has = nil }, "no rules"},
		"no table after a flush":            {func(h *history) { h.readings[0].has = nil; opened(h, "", 455e7, 465e7) }, ""},
		"no element of a sandbox":           {func(h *history) { delete(h.readings[0].has, "ipv4") }, "other rules"},
		"one that was deleted by hand":      {func(h *history) { delete(h.readings[0].has, "ipv4"); opened(h, "port7", 455e7, 465e7) }, ""},
		"one too many": {func(h *history) {
			h.readings[0].has["ipv4"] = append(h.readings[0].has["ipv4"], h.readings[0].has["macs"][0]+" 10.8.0.9")
		}, "other rules"},
		"another's address":                  {func(h *history) { h.readings[0].has["ipv4"] = []string{h.readings[0].has["macs"][0] + " 10.8.0.9"} }, "other rules"},
		"of one that was bound meanwhile":    {func(h *history) { h.lives[1].since = 465e7; h.readings[0].has = rules{} }, ""},
		"of one that ended meanwhile":        {func(h *history) { h.lives[1].to = 465e7; h.readings[0].has = rules{} }, ""},
		"of one that was released meanwhile": {func(h *history) { h.holds[1].to = 465e7; h.readings[0].has = rules{} }, ""},
		"of one whose address is cooling": {func(h *history) {
			h.readings[0].has["ipv4"] = append(h.readings[0].has["ipv4"], "port9 02:00:00:00:00:09 10.8.0.3")
		}, "a rule too long"},
		"none as its address begins to cool":      {func(h *history) { h.cooled = []cooled{{lease: "C"}} }, ""},
		"one still as its address begins to cool": {func(h *history) { h.cooled = []cooled{{lease: "C", rule: true}} }, "a rule too long"},
	} {
		t.Run(name, func(t *testing.T) {
			h := enforced()
			c.spoil(h)
			expect(t, slices.Concat(judgeFrames(h), judgeReadings(h)), c.want)
		})
	}
}

// TestRulesAreReadByTheirPort: a set of one part and of several, and a table whose chain is
// gone.
func TestRulesAreReadByTheirPort(t *testing.T) {
	const sets = `{"set": {"name": "leased", "elem": ["port7", "port8"]}}, {"set": {"name": "ipv4", "elem": [{"concat": ["port7", "02:00:00:00:00:07", "10.8.0.2"]}]}}, {"set": {"name": "counts", "elem": ["port7"]}}`
	r, err := readRules([]byte(`{"nftables": [{"chain": {"hook": "prerouting"}}, ` + sets + `]}`))
	if want := []string{"ipv4 port7 02:00:00:00:00:07 10.8.0.2", "leased port7"}; err != nil || !slices.Equal(r.of("port7"), want) {
		t.Errorf("%q, %v, want %q", r.of("port7"), err, want)
	}
	if r, err := readRules([]byte(`{"nftables": [` + sets + `]}`)); r != nil || err != nil {
		t.Errorf("without a chain: %q, %v", r, err)
	}
}
