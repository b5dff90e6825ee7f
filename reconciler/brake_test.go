package reconciler

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/workload"
)

// R9 and W7: which plans are held, and what of them. The releases are of the
// first addresses, from .10 on.
func TestBrakes(t *testing.T) {
	gone := func(a string) []line { return []line{lease(a, bound, "G", containers("c"+a)), overdue(a)} }
	proven := func(a string) []line { return append(gone(a), lookedUp(a)) }
	live := func(a string) []line {
		return []line{lease("10.8.64.1"+a[len("10.8.64."):], bound, "L", containers("l"+a)), container("l"+a, runs)}
	}
	late := func(a string) []line { return []line{lease(a, reserved, "R", age(time.Hour))} }
	lateToo := func(a string) []line { return late("10.8.64.2" + a[len("10.8.64."):]) }
	other := container("other")
	kernels := func(l *ipam.Lease) {
		l.Labels, l.Netns, l.HostInterface = map[string]string{workload.ShownByLabel: "kernel"}, "/run/netns/g", "veth9"
	}
	// The machine was booted since: no namespace of before is there.
	before := func(l *ipam.Lease) { kernels(l); l.Plug = ipam.Plug{Boot: "before", Index: 7, Inode: 4026532000} }
	rebooted := func(a string) []line { return []line{lease(a, bound, "G", before), overdue(a)} }
	byHand := func(w *world) {
		lease("10.8.64.9", quarantine, "")(w)
		dim("10.8.64.9", 2, 15*time.Minute)(w)
	}

	for name, tt := range map[string]struct {
		world          []line
		reaps, expires int // done
		held           int // steps that are held
		says           string
	}{
		"five of five":                           {[]line{other, many(5, gone)}, 5, 0, 0, ""},
		"six of six":                             {[]line{other, many(6, gone)}, 0, 0, 6, "6 of 6 open leases"},
		"six of six, confirmed":                  {[]line{other, many(6, gone), confirmed}, 6, 0, 0, ""},
		"six of sixty":                           {[]line{many(6, gone), many(54, live)}, 6, 0, 0, ""},
		"six of fifty-nine":                      {[]line{many(6, gone), many(53, live)}, 0, 0, 6, "may release 5"},
		"fifty that the runtime says are gone":   {[]line{other, many(50, proven)}, 50, 0, 0, ""},
		"and with an empty list":                 {[]line{many(50, proven)}, 50, 0, 0, ""},
		"an empty list, one is not proven":       {[]line{many(5, proven), lease("10.8.64.99", bound, "G"), overdue("10.8.64.99")}, 5, 0, 1, "no container at all, but the book has 1 bound"},
		"an empty list, nothing to release":      {[]line{lease("10.8.64.99", bound, "G", containers("c1"))}, 0, 0, 0, ""},
		"an empty list, a reservation is late":   {[]line{many(1, late), lease("10.8.64.99", bound, "G", containers("c1"))}, 0, 0, 1, "no container at all"},
		"an empty list, and nothing is bound":    {[]line{many(20, late)}, 0, 20, 0, ""},
		"an empty list, beside a warm slot":      {[]line{many(1, late), lease("10.8.64.99", bound, "G", func(l *ipam.Lease) { l.UID = ipam.SlotUID("s") })}, 0, 1, 0, ""},
		"an empty list, confirmed":               {[]line{many(3, gone), confirmed}, 3, 0, 0, ""},
		"the proof of another runtime is none":   {[]line{other, many(2, proven), anotherRuntime}, 0, 0, 2, "another runtime answers"},
		"nor does it end reservations":           {[]line{other, many(2, late), anotherRuntime}, 0, 0, 2, "another runtime answers"},
		"and a plan cannot confirm it":           {[]line{other, many(2, gone), anotherRuntime, confirmed}, 0, 0, 2, "another runtime answers"},
		"nor does it end a quarantine":           {[]line{other, byHand, anotherRuntime}, 0, 0, 1, "another runtime answers"},
		"what it shows keeps addresses":          {[]line{lives("c1", "A", "10.8.64.2"), anotherRuntime}, 0, 0, 0, ""},
		"an empty list, of what no runtime has":  {[]line{lease("10.8.64.99", bound, "G", kernels), overdue("10.8.64.99")}, 1, 0, 0, ""},
		"and six of those are as many as others": {[]line{many(6, func(a string) []line { return []line{lease(a, bound, "G", kernels), overdue(a)} })}, 0, 0, 6, "6 of 6 open leases"},
		"fifty of before the boot":               {[]line{many(50, rebooted)}, 50, 0, 0, ""},
		"fifty of before the boot, seen too few": {[]line{many(50, func(a string) []line { return rebooted(a)[:1] })}, 0, 0, 0, ""},
		"six of a port that came back": {[]line{many(6, func(a string) []line {
			return []line{lease(a, bound, "G", before, func(l *ipam.Lease) { l.Plug.Boot = boot.BootID }), overdue(a)}
		})}, 0, 0, 6, "6 of 6 open leases"},
		"six of this boot, of which an era began": {[]line{many(6, func(a string) []line {
			return []line{lease(a, bound, "G", before, func(l *ipam.Lease) { l.Plug.Boot = boot.BootID }), overdue(a)}
		}), nextEra}, 0, 0, 6, "6 of 6 open leases"},
		"six of before the boot, of a runtime":    {[]line{other, many(6, func(a string) []line { return []line{lease(a, bound, "G", before, containers("c"+a)), overdue(a)} })}, 0, 0, 6, "6 of 6 open leases"},
		"of before the boot, another runtime":     {[]line{many(6, rebooted), anotherRuntime}, 0, 0, 6, "another runtime answers"},
		"and one that a runtime has, beside it":   {[]line{lease("10.8.64.99", bound, "G", kernels), overdue("10.8.64.99"), lease("10.8.64.98", bound, "H", containers("c1"))}, 0, 0, 1, "no container at all, but the book has 1 bound"},
		"who says so and has a container, has it": {[]line{lease("10.8.64.99", bound, "G", kernels, containers("c1")), overdue("10.8.64.99")}, 0, 0, 1, "no container at all"},
		"who says so and has no port, has it":     {[]line{lease("10.8.64.99", bound, "G", kernels, func(l *ipam.Lease) { l.Netns, l.HostInterface = "", "" }), overdue("10.8.64.99")}, 0, 0, 1, "no container at all"},
		"an empty list of no runtime":             {[]line{noRuntime, lease("10.8.64.99", bound, "G"), overdue("10.8.64.99")}, 1, 0, 0, ""},
		"late reservations are no brake":          {[]line{other, many(20, late)}, 0, 20, 0, ""},
		"but are held by one":                     {[]line{other, many(6, gone), many(3, lateToo)}, 0, 0, 9, "6 of 9 open leases"},
		"the proven go on while others wait":      {[]line{other, many(6, gone), lease("10.8.64.99", bound, "G", containers("c1")), overdue("10.8.64.99"), lookedUp("10.8.64.99")}, 1, 0, 6, "6 of 7 open leases"},
		"what keeps addresses is never braked":    {[]line{other, many(6, gone), lives("c1", "A", "10.8.64.2")}, 0, 0, 6, "6 of 6"},
		"paused and reserved ones are open too":   {[]line{other, many(6, gone), many(54, func(a string) []line { return []line{lease("10.8.64.1"+a[len("10.8.64."):], paused, "P")} })}, 6, 0, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := worldOf(tt.world...).decide()
			reaps, expires, held := 0, 0, 0
			for _, s := range d.steps {
				switch {
				case s.Result == Braked:
					held++
				case s.Kind == Reap:
					reaps++
				case s.Kind == Expire:
					expires++
				case s.Kind != Adopt:
					t.Errorf("%s %s", s.Kind, s.Addr)
				}
			}
			if reaps != tt.reaps || expires != tt.expires || held != tt.held {
				t.Errorf("%d are reaped, %d expired, %d held, want %d, %d, %d", reaps, expires, held, tt.reaps, tt.expires, tt.held)
			}
			if (d.held != nil) != (tt.held > 0) {
				t.Fatalf("held: %+v", d.held)
			}
			if d.held != nil && (!strings.Contains(d.held.Reason, tt.says) || d.held.Releases != tt.held && d.held.Releases != 6) {
				t.Errorf("held: %+v, want %q in it", d.held, tt.says)
			}
		})
	}
}

// What is quarantined may be the claim of a container that the runtime lost, or that another has: its quarantine
// does not end while the runtime shows none at all, and the book has leases that it could show.
func TestBrakesOnTheEndOfAQuarantine(t *testing.T) {
	ends := func(w *world) {
		lease("10.8.64.2", quarantine, "")(w)
		dim("10.8.64.2", 2, 15*time.Minute)(w)
	}
	holds := lease("10.8.64.3", bound, "B", containers("c1"))
	shown := container("other")
	absent := many(6, func(a string) []line { return []line{lease(a, bound, "G", containers("c"+a)), overdue(a)} })
	for name, tt := range map[string]struct {
		world []line
		held  int // releases; 0: no brake, or not for this
	}{
		"an empty list":                         {[]line{ends, holds}, 1},
		"an empty list, and others would end":   {[]line{ends, holds, overdue("10.8.64.3")}, 2},
		"an empty list, confirmed":              {[]line{ends, holds, confirmed}, 0},
		"an empty list, and nothing is bound":   {[]line{ends}, 0},
		"an empty list, beside a machine":       {[]line{ends, lease("10.8.64.3", bound, "B")}, 0},
		"an empty list, beside a warm slot":     {[]line{ends, lease("10.8.64.3", bound, "B", uid(ipam.SlotUID("s")))}, 0},
		"an empty list, the others are gone":    {[]line{ends, holds, overdue("10.8.64.3"), lookedUp("10.8.64.3")}, 0},
		"no runtime":                            {[]line{ends, holds, noRuntime}, 0},
		"a container is shown":                  {[]line{ends, holds, shown}, 0},
		"one is shown, and too many are absent": {[]line{ends, absent, shown}, 0},
		"another runtime, confirmed or not":     {[]line{ends, shown, anotherRuntime, confirmed}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			d := worldOf(tt.world...).decide()
			want := map[bool]string{true: Braked, false: Planned}[tt.held > 0]
			if len(d.steps) == 0 || d.steps[0].Kind != Clear || d.steps[0].Result != want {
				t.Fatalf("decided %q, want the quarantine's end to be %s", d.list(), want)
			}
			if tt.held > 0 && (d.held == nil || d.held.Releases != tt.held) {
				t.Errorf("held: %+v, want %d", d.held, tt.held)
			}
		})
	}
}

// R6: the release of a lease fails in ten thousand passes in a row. It is
// planned in each; the counter stays at the threshold and nothing grows.
func TestAFailingReapIsTriedForEver(t *testing.T) {
	w := worldOf(container("other"), lease("10.8.64.2", bound, "A", containers("c1")), lease("10.8.64.3", bound, "B", containers("c2")))
	for pass := range 10_000 {
		w.now = after(time.Duration(pass) * 5 * time.Minute)
		d := w.decide()
		w.known = d.memory
		if reaps := len(d.steps); (reaps == 2) != (pass >= 3) || reaps == 1 {
			t.Fatalf("pass %d plans %q", pass, d.list())
		}
		if m := d.missed["lease of 10.8.64.2"]; len(d.missed) != 2 || m.count != min(pass+1, 3) || m.since != boot {
			t.Fatalf("pass %d remembers %+v", pass, d.missed)
		}
	}
	w.book = w.book[:1]
	if d := w.decide(); len(d.missed) != 1 {
		t.Errorf("a lease that is gone is remembered: %+v", d.missed)
	}
	container("c1")(w)
	if d := w.decide(); len(d.missed) != 0 || len(d.steps) != 0 {
		t.Errorf("a lease that is seen again is remembered: %+v, %q", d.missed, d.list())
	}
}

// Misses follow the lease through passes: a sighting starts all over, a census
// that is not whole or not complete does neither.
func TestMisses(t *testing.T) {
	there := container("c1")
	for name, tt := range map[string]struct {
		passes []line // one a pass, five minutes apart; nil is a whole and complete one
		reaps  int    // the pass that reaps, from 1; 0: none
	}{
		"absent all along":               {[]line{nil, nil, nil, nil}, 4},
		"there in between":               {[]line{nil, nil, there, nil, nil, nil, nil}, 7},
		"a silence counts for nothing":   {[]line{nil, silent(runtime), silent(runtime), silent(netns), nil, nil}, 6},
		"a silence takes nothing back":   {[]line{nil, nil, nil, silent(runtime), nil}, 5},
		"news count for nothing":         {[]line{nil, onNews, onNews, onNews, onNews, nil, nil}, 7},
		"a sighting in a silence counts": {[]line{nil, nil, func(w *world) { silent(netns)(w); there(w) }, nil, nil}, 0},
		"seen by the wire in between":    {[]line{nil, nil, seen(neighbour, "10.8.64.2"), nil, nil}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var known memory
			for i, more := range tt.passes {
				lines := []line{container("other"), lease("10.8.64.2", bound, "A", containers("c1"))}
				if more != nil {
					lines = append(lines, more)
				}
				w := worldOf(lines...)
				w.now, w.known = after(time.Duration(i)*5*time.Minute), known
				d := w.decide()
				known = d.memory
				if got := fmt.Sprint(d.list()); (got == "[reap 10.8.64.2 A]") != (i+1 == tt.reaps) {
					t.Fatalf("pass %d plans %s, want the reap in pass %d", i+1, got, tt.reaps)
				}
			}
		})
	}
}
