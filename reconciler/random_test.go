package reconciler

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/netdb"
)

var (
	someAddrs     = []string{"10.8.64.2", "10.8.64.3", "10.8.64.4", "10.8.64.5", "10.8.64.6", "10.8.64.7", "10.8.64.8", "10.8.64.1", "10.8.64.200"}
	someSandboxes = []string{"A", "B", "C"}
	someTasks     = []string{"", "created", taskRunning, taskPaused, taskStopped}
	someIDs       = []string{"c1", "c2", "c3", "c4", "c5"}
)

// drawWorld draws a small world in which much collides.
func drawWorld(t *rapid.T) *world {
	some := func(of []string, what string) string { return rapid.SampledFrom(of).Draw(t, what) }
	often := func(what string) bool { return rapid.Bool().Draw(t, what) }
	rarely := func(what string) bool { return rapid.IntRange(0, 7).Draw(t, what) == 0 }
	minutes := func(what string) time.Duration {
		return time.Duration(rapid.IntRange(0, 40).Draw(t, what)) * time.Minute
	}
	var lines []line
	for _, addr := range someAddrs {
		if often("has a row") {
			s := rapid.SampledFrom(netdb.States()).Draw(t, "state")
			more := []func(*netdb.Lease){age(minutes("age"))}
			if often("has an incarnation") {
				more = append(more, uid(some([]string{"u1", "u2", "A"}, "uid")))
			}
			if s != reserved && often("records a container") {
				more = append(more, containers(some(someIDs, "recorded")))
			}
			if s != reserved && often("records a port") {
				more = append(more, on(some([]string{"veth1", "veth2"}, "recorded port")))
			}
			if s == quarantine && rarely("by an operator") {
				more = append(more, setAside)
			}
			lines = append(lines, lease(addr, s, some(someSandboxes, "sandbox"), more...))
		}
		if rarely("is on the wire") {
			by := rapid.SampledFrom([]census.Witness{netns, host, neighbour, census.Probe}).Draw(t, "witness")
			lines = append(lines, seen(by, addr, port(some([]string{"", "veth1", "veth2"}, "port")), since(minutes("seen since"))))
		}
		if often("is remembered") {
			lines = append(lines, missed(addr, rapid.IntRange(1, 3).Draw(t, "misses"), minutes("missed since")),
				dim(addr, rapid.IntRange(1, 3).Draw(t, "censuses"), minutes("dark since")))
		}
		if rarely("is looked up") {
			lines = append(lines, lookedUp(addr))
		}
	}
	for _, id := range someIDs[:rapid.IntRange(0, len(someIDs)).Draw(t, "containers")] {
		more := []func(*body){task(some(someTasks, "task")), since(minutes("claims since"))}
		if !rarely("names no owner") {
			more = append(more, owner(some(someSandboxes, "owner")))
		}
		if rarely("names an incarnation") {
			more = append(more, as(some([]string{"u1", "u2"}, "its incarnation")))
		}
		if rarely("names a lease") {
			more = append(more, leased("lease of "+some(someAddrs, "its lease")))
		}
		claimed := ""
		if often("claims") {
			claimed = some(someAddrs, "claims")
			more = append(more, ip(claimed))
		}
		if often("lives behind a port") {
			at := some([]string{"veth1", "veth2"}, "its port")
			more = append(more, home(at))
			if claimed != "" && often("and has the address") {
				lines = append(lines, seen(netns, claimed, port(at)))
			}
		}
		lines = append(lines, container(id, more...))
	}
	for _, w := range []census.Witness{runtime, netns, neighbour} {
		if rarely(string(w) + " is silent") {
			lines = append(lines, silent(w))
		}
	}
	if rarely("on news") {
		lines = append(lines, onNews)
	}
	if rarely("without a runtime") {
		lines = append(lines, noRuntime)
	}
	if rarely("confirmed") {
		lines = append(lines, confirmed)
	}
	w := worldOf(lines...)
	w.leastReleases = rapid.IntRange(1, 3).Draw(t, "releases at least")
	return w
}

// signs lists, independently of the plan, what lives of a lease and may be
// nobody else's.
func (w *world) signs(l *netdb.Lease) []census.Sighting {
	var out []census.Sighting
	for addr, seen := range w.census.Seen {
		for _, s := range seen {
			anothers := slices.ContainsFunc(w.book, func(o *netdb.Lease) bool {
				return o.ID != l.ID && (o.ID == s.LeaseID || slices.Contains(o.Containers, containerOf(s)))
			})
			named := s.Sandbox != "" && (s.Sandbox == l.Sandbox || s.Sandbox == l.UID) && (s.UID == "" || s.UID == l.UID)
			own := s.Witness == runtime && (s.LeaseID == l.ID || !anothers && (slices.Contains(l.Containers, containerOf(s)) || named))
			if addr == l.Addr || own {
				out = append(out, s)
			}
		}
	}
	return out
}

// backed reports, independently of the plan, that a container of those which an
// adoption binds lives in the namespace that has the address, or behind the one
// port that shows it, everywhere where it is, and that the host does not have it.
func (w *world) backed(s step) bool {
	in, behind := make(map[string]bool), make(map[string]bool) // ports
	for _, c := range w.census.Seen[s.Addr] {
		switch c.Witness {
		case runtime:
		case host:
			return false
		case netns:
			in[c.Port] = true
		default:
			behind[c.Port] = c.Port != ""
		}
	}
	delete(behind, "")
	if s.adopt.ID != "" && w.given[s.adopt.ID] {
		return true
	}
	shown := in
	if len(in) == 0 {
		shown = behind // these may be forged: a namespace that has the address stands against them
	}
	for port := range shown {
		if !slices.ContainsFunc(w.census.Seen[s.Addr], func(c census.Sighting) bool {
			return c.PID != 0 && slices.Contains(s.adopt.Containers, containerOf(c)) && w.homes[c.PID].Has(census.Sighting{Port: port})
		}) {
			return false
		}
	}
	return len(shown) > 0
}

// after is the world in which every step that is not held was done: the book
// alone is another. Memory is as it was, so that no time has passed.
func (w *world) after(d decision) *world {
	next := *w
	next.book = slices.Clone(w.book)
	for _, s := range d.steps {
		if s.Result == Kept {
			continue
		}
		next.book = slices.DeleteFunc(next.book, func(l *netdb.Lease) bool { return l.Addr == s.Addr })
		now := netdb.Lease{Addr: s.Addr, Sandbox: s.adopt.Sandbox, UID: s.adopt.UID, ID: s.adopt.ID, Interface: "eth0"}
		if s.lease != nil && s.Kind != Adopt && s.Kind != Quarantine {
			now = *s.lease
		}
		if now.ID == "" || slices.ContainsFunc(next.book, func(l *netdb.Lease) bool { return l.ID == now.ID }) {
			now.ID = fmt.Sprint("new at ", s.Addr)
		}
		now.Rev, now.Since = 8, w.now
		bind := func(b netdb.Binding) {
			now.State, now.Containers = bound, append(slices.Clone(now.Containers), b.Containers...)
			now.HostInterface, now.MAC = cmp.Or(b.HostInterface, now.HostInterface), cmp.Or(b.MAC, now.MAC)
		}
		switch s.Kind {
		case Adopt:
			bind(s.adopt.Binding)
		case Bind:
			bind(s.bind)
		case Pause:
			now.State = paused
		case Resume:
			bind(s.bind)
		case Quarantine:
			now.State, now.Evidence = quarantine, s.evidence
		case Clear:
			now.State = cooling
		case Reap:
			now.State = releasing
		case Expire:
			continue
		}
		if s.paused {
			now.State = paused
		}
		next.book = append(next.book, &now)
	}
	slices.SortFunc(next.book, func(a, b *netdb.Lease) int { return a.Addr.Compare(b.Addr) })
	return &next
}

// lets is where a step leads, and by whom.
var lets = map[string]struct {
	to netdb.State
	by netdb.Actor
}{
	Adopt: {bound, netdb.ByReconciler}, Bind: {bound, netdb.ByReconciler}, Pause: {paused, netdb.ByReconciler},
	Resume: {bound, netdb.ByReconciler}, Quarantine: {quarantine, netdb.ByReconciler}, Clear: {cooling, netdb.ByReconciler},
	Expire: {netdb.Free, netdb.ByWatchdog}, Reap: {releasing, netdb.ByReconciler},
}

// R10: random worlds. No two actions on one address; nothing that the table of
// moves forbids; nothing freed while a witness is silent; nothing live freed;
// nothing taken from its holder; a second plan on the result is empty.
func TestPlansOfRandomWorlds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		d := w.decide()
		at := make(map[netip.Addr]bool)
		open, unproven := 0, 0
		for _, l := range w.book {
			if l.State.Open() {
				open++
			}
		}
		for _, s := range d.steps {
			if at[s.Addr] {
				t.Fatalf("two actions on %s: %q", s.Addr, d.said())
			}
			at[s.Addr] = true
			from := netdb.Free
			if i := slices.IndexFunc(w.book, func(l *netdb.Lease) bool { return l.Addr == s.Addr }); i >= 0 {
				from = w.book[i].State
				if s.lease != w.book[i] {
					t.Fatalf("%s %s was not decided on the row", s.Kind, s.Addr)
				}
				if from == quarantine && heldBack(w.book[i]) {
					t.Fatalf("%s %s, which an operator set aside", s.Kind, s.Addr)
				}
			}
			if err := netdb.Legal(lets[s.Kind].by, from, lets[s.Kind].to); err != nil {
				t.Fatalf("%s %s: %v", s.Kind, s.Addr, err)
			}
			owners := make(map[string]bool)
			for _, c := range w.census.Seen[s.Addr] {
				if c.Witness == runtime {
					owners[c.Sandbox] = true
				}
			}
			switch s.Kind {
			case Adopt:
				if len(owners) != 1 || !owners[s.Sandbox] {
					t.Fatalf("%s was adopted for %q, of %v", s.Addr, s.Sandbox, owners)
				}
				if !w.backed(s) {
					t.Fatalf("%s was adopted for %q, and nothing but labels says so: %+v", s.Addr, s.Sandbox, w.census.Seen[s.Addr])
				}
			case Clear, Expire, Reap:
				if len(w.census.Silent) > 0 {
					t.Fatalf("%s %s while %v is silent", s.Kind, s.Addr, w.census.Silent)
				}
				if len(w.census.Seen[s.Addr]) > 0 {
					t.Fatalf("%s %s, which is seen: %+v", s.Kind, s.Addr, w.census.Seen[s.Addr])
				}
				signs := slices.DeleteFunc(w.signs(s.lease), func(c census.Sighting) bool {
					return s.Kind == Expire && (c.Addr.IsValid() || c.LeaseID != "" && c.LeaseID != s.LeaseID || slices.ContainsFunc(w.book, func(l *netdb.Lease) bool {
						return l.State.Open() && slices.Contains(l.Containers, containerOf(c)) // it lives with another lease
					}))
				})
				if s.Kind != Clear && len(signs) > 0 {
					t.Fatalf("%s %s, which lives: %+v", s.Kind, s.Addr, signs)
				}
				if s.Kind == Reap && s.Result != Kept && !w.gone[s.LeaseID] {
					unproven++
				}
			}
		}
		if most := max(w.leastReleases, int(w.maxReleases*float64(open))); unproven > most && !w.confirm {
			t.Fatalf("%d of %d are released, more than %d: %q", unproven, open, most, d.said())
		}
		if len(d.missed) > len(w.book) || len(d.dark) > len(w.book) {
			t.Fatalf("%d and %d are remembered of %d rows", len(d.missed), len(d.dark), len(w.book))
		}
		// A lease that is adopted or ends decides which of its sandbox's leases a
		// container belongs to that nothing else tells apart, and so does the book
		// of two workloads that carry the label of one lost lease. What follows from
		// that is the next look's, and ends soon.
		last, next := d, w
		for round := 0; ; round++ {
			next = next.after(last)
			again := next.decide()
			done := slices.DeleteFunc(slices.Clone(again.steps), func(s step) bool { return s.Result == Kept })
			if len(done) == 0 {
				return
			}
			decides := slices.ContainsFunc(last.steps, func(s step) bool { return s.Result != Kept && (s.Kind == Adopt || s.Kind == Expire) })
			if !decides || round == 3 {
				t.Fatalf("first %q, and then %q", last.said(), again.said())
			}
			last = again
		}
	})
}
