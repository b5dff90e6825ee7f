package reconciler

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
)

// showing is the evidence of a quarantine: what the lines show.
func showing(lines ...line) func(*ipam.Lease) {
	w := worldOf(lines...)
	return func(l *ipam.Lease) { l.Evidence = evidence(w.census.Seen[l.Addr]) }
}

// held is showing with an operator's hold on top.
func held(lines ...line) func(*ipam.Lease) {
	return func(l *ipam.Lease) {
		showing(lines...)(l)
		setAside(l)
	}
}

// A claim that is older than a quarantine waits for a person, unless the
// quarantine is about none but the claimant. Such a one is made while the
// runtime is silent; or before its sandbox's first pass.
func TestClaimOlderThanAQuarantine(t *testing.T) {
	const a2 = "10.8.64.2"
	old := since(2 * time.Hour)
	wire := seen(netns, a2, port("veth1"))
	its := func(more ...func(*body)) line {
		return container("c1", append([]func(*body){owner("A"), ip(a2), runs, home("veth1"), old}, more...)...)
	}
	for name, tt := range map[string]struct {
		evidence func(*ipam.Lease)
		sandbox  string
		now      []line
		adopt    bool
	}{
		"seen on its port, then and now":          {showing(wire), "", []line{its(), wire}, true},
		"and by a neighbour and a probe":          {showing(wire, seen(neighbour, a2), seen(census.Probe, a2)), "", []line{its(), wire, seen(neighbour, a2)}, true},
		"not on the wire any more":                {showing(wire), "", []line{its()}, false},
		"nor does it run yet":                     {showing(wire), "", []line{its(task(""))}, false},
		"its container was the evidence":          {showing(its(task(""))), "", []line{its(), wire}, true},
		"of an incarnation that no label named":   {showing(its()), "", []line{its(as("one")), wire}, true},
		"on another port":                         {showing(seen(netns, a2, port("veth9"))), "", []line{its(), wire}, false},
		"on two ports now":                        {showing(wire), "", []line{its(), wire, seen(netns, a2, port("veth9"))}, false},
		"on the wire, and it has stopped":         {showing(wire), "", []line{its(ended), wire}, false},
		"on the wire, and it never ran":           {showing(wire), "", []line{its(task("")), wire}, false},
		"another claimed it then":                 {showing(its(), container("c2", owner("B"), ip(a2))), "", []line{its()}, false},
		"another incarnation claimed it then":     {showing(its(as("two"))), "", []line{its(as("one"))}, false},
		"a container without owner was there":     {showing(container("c3", ip(a2))), "", []line{its()}, false},
		"the host has it":                         {showing(wire), "", []line{its(), wire, seen(host, a2)}, false},
		"the host had it":                         {showing(seen(host, a2)), "", []line{its()}, false},
		"an operator quarantined it":              {held(wire), "", []line{its()}, false},
		"a rebuild quarantined it":                {showing(seen(census.Book, a2)), "", []line{its()}, false},
		"another held it before":                  {showing(wire), "B", []line{its(), wire}, false},
		"evidence that cannot be read":            {func(l *ipam.Lease) { l.Evidence = json.RawMessage(`{"witness":1}`) }, "", []line{its()}, false},
		"evidence of nothing":                     {func(l *ipam.Lease) { l.Evidence = json.RawMessage(`[]`) }, "", []line{its()}, false},
		"a younger claim, and a stranger's port":  {showing(seen(netns, a2, port("veth9"))), "", []line{its(since(time.Minute)), wire}, true},
		"a younger claim, and an operator's word": {held(wire), "", []line{its(since(time.Minute))}, false},
	} {
		t.Run(name, func(t *testing.T) {
			want := "report unleased 10.8.64.2"
			if tt.adopt {
				want = "adopt 10.8.64.2 A"
			}
			w := worldOf(append(tt.now, lease(a2, quarantine, tt.sandbox, tt.evidence))...)
			in := w.asWorld()
			in.Last = &Report{Findings: expect(t, w, want).findings}
			held := false
			for _, f := range Diagnose(in) {
				held = held || f.Kind == "unleased" && f.Repair != "ipamctl reconcile"
			}
			if held == tt.adopt {
				t.Errorf("doctor says that it is held: %v", held)
			}
		})
	}
}

// Which came first, the claim or the row, is known over a step of the wall clock between them: after one that set
// it back, as NTP does with an RTC that said 2035, a sandbox that is made now is adopted. A claim from before the step
// stays older than a row from before it.
func TestClaimsOverAStepOfTheClock(t *testing.T) {
	const a2 = "10.8.64.2"
	const years = 9 * 365 * 24 * time.Hour
	row := func(ago, step time.Duration) line {
		return lease(a2, cooling, "B", age(ago), func(l *ipam.Lease) { l.Since.Wall = l.Since.Wall.Add(step) })
	}
	claimed := func(ago, step time.Duration) line { return lives("c1", "A", a2, since(ago-step)) }
	inTheBootBefore := func(w *world) { w.now.BootID = "two" }
	for name, tt := range map[string]struct {
		world []line
		adopt bool
	}{
		"no step, a newer claim":                     {[]line{row(10*time.Minute, 0), claimed(5*time.Minute, 0)}, true},
		"no step, an older claim":                    {[]line{row(5*time.Minute, 0), claimed(10*time.Minute, 0)}, false},
		"set back, then claimed":                     {[]line{row(10*time.Minute, years), claimed(5*time.Minute, 0)}, true},
		"claimed, and set back after the row":        {[]line{row(5*time.Minute, years), claimed(10*time.Minute, years)}, false},
		"the row, the claim, and then set back":      {[]line{row(10*time.Minute, years), claimed(5*time.Minute, years)}, true},
		"set forward, then claimed":                  {[]line{row(10*time.Minute, -years), claimed(5*time.Minute, 0)}, true},
		"claimed, and set forward after the row":     {[]line{row(5*time.Minute, -years), claimed(10*time.Minute, -years)}, false},
		"the row, the claim, and then set forward":   {[]line{row(10*time.Minute, -years), claimed(5*time.Minute, -years)}, true},
		"an older claim, and a small step back":      {[]line{row(10*time.Minute, 2*time.Second), claimed(10*time.Minute+time.Second, 2*time.Second)}, false},
		"a newer claim, and a small step back":       {[]line{row(10*time.Minute, 2*time.Second), claimed(5*time.Minute, 0)}, true},
		"claimed in the boot before, after the row":  {[]line{row(4*time.Hour, 0), claimed(3*time.Hour, 0), inTheBootBefore}, true},
		"claimed in the boot before, before the row": {[]line{row(3*time.Hour, 0), claimed(4*time.Hour, 0), inTheBootBefore}, false},
		"set back by a boot, then claimed":           {[]line{row(4*time.Hour, years), claimed(5*time.Minute, 0), inTheBootBefore}, true},
	} {
		t.Run(name, func(t *testing.T) {
			want := "report unleased 10.8.64.2"
			if tt.adopt {
				want = "adopt 10.8.64.2 A"
			}
			expect(t, worldOf(tt.world...), want)
		})
	}
}
