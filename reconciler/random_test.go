package reconciler

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
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
			s := rapid.SampledFrom(ipam.States()).Draw(t, "state")
			more := []func(*ipam.Lease){age(minutes("age"))}
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
			if s == paused && often("its owner has said how") {
				lines = append(lines, stopping(addr, rapid.SampledFrom([]ipam.SleepMode{ipam.Freeze, ipam.Hibernate}).Draw(t, "mode")))
			}
		}
		if rarely("is on the wire") {
			by := rapid.SampledFrom([]census.Witness{netns, host, neighbour, census.Probe}).Draw(t, "witness")
			lines = append(lines, seen(by, addr, port(some([]string{"", "veth1", "veth2"}, "port")), since(minutes("seen since"))))
		}
		if often("is remembered") {
			lines = append(lines, missed(addr, rapid.IntRange(1, 3).Draw(t, "misses"), minutes("missed since")),
				dim(addr, rapid.IntRange(1, 3).Draw(t, "censuses"), minutes("unseen since")))
		}
		if rarely("is looked up") {
			lines = append(lines, lookedUp(addr))
		}
	}
	for _, id := range someIDs[:rapid.IntRange(0, len(someIDs)).Draw(t, "containers")] {
		more := []func(*body){task(some(someTasks, "task")), since(minutes("claims since"))}
		if rarely("its task was reported") {
			more = append(more, thawed(minutes("resumed since")))
		}
		if rarely("its task is new") {
			more = append(more, fresh(minutes("new since")))
		}
		if rarely("its task is unclear") {
			more = append(more, unclear)
		}
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
// no other's.
func (w *world) signs(l *ipam.Lease) []census.Sighting {
	var out []census.Sighting
	for addr, seen := range w.census.Seen {
		for _, s := range seen {
			anothers := slices.ContainsFunc(w.book, func(o *ipam.Lease) bool {
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

// livesAt reports, independently of the plan, that one of some containers lives in
// every namespace that has an address, or behind every port that shows it where no
// namespace does, that the host does not have it, and that each of them is at one of
// those places or is excused.
func (w *world) livesAt(addr netip.Addr, all []ipam.Container, excused func(ipam.Container) bool) bool {
	in, behind := make(map[string]bool), make(map[string]bool) // ports
	for _, c := range w.census.Seen[addr] {
		switch c.Witness {
		case runtime:
		case host:
			in["the host's"] = true
		case netns:
			in[c.Port] = true
		default:
			behind[c.Port] = c.Port != ""
		}
	}
	delete(behind, "")
	shown := in
	if len(in) == 0 {
		shown = behind // these may be forged: a namespace that has the address stands against them
	}
	at := func(c ipam.Container, port string) bool {
		h, known := w.homes[pid(c.ID)]
		return known && h.Has(census.Sighting{Port: port})
	}
	for _, c := range all {
		some := func(port string) bool { return at(c, port) }
		if !excused(c) && !slices.ContainsFunc(slices.Collect(maps.Keys(shown)), some) {
			return false
		}
	}
	for port := range shown {
		if !slices.ContainsFunc(all, func(c ipam.Container) bool { return at(c, port) }) {
			return slices.ContainsFunc(all, excused) && !slices.ContainsFunc(all, func(c ipam.Container) bool { return !excused(c) })
		}
	}
	return len(all) > 0
}

// names reports whether a container carries one of some lease ids.
func (w *world) names(ids func(givenTo) bool) func(ipam.Container) bool {
	return func(c ipam.Container) bool {
		for addr, seen := range w.census.Seen {
			for _, s := range seen {
				if s.Witness == runtime && containerOf(s) == c && ids(givenTo{s.LeaseID, addr, s.UID}) {
					return true
				}
			}
		}
		return false
	}
}

// backed reports, independently of the plan, that what a step binds, pauses or resumes
// a lease for is more than a label.
func (w *world) backed(s step) bool {
	if s.Kind == Adopt {
		return w.livesAt(s.Addr, s.adopt.Containers, w.names(func(g givenTo) bool { return w.given[g] }))
	}
	excused := func(c ipam.Container) bool {
		h, known := w.homes[pid(c.ID)]
		return w.names(func(g givenTo) bool { return g.id == s.LeaseID })(c) || slices.Contains(s.lease.Containers, c) ||
			known && s.lease.HostInterface != "" && h.Has(census.Sighting{Port: s.lease.HostInterface})
	}
	if s.Kind == Bind {
		return w.livesAt(s.Addr, s.bind.Containers, excused)
	}
	state := map[string]string{Pause: taskPaused, Resume: taskRunning}[s.Kind]
	for _, seen := range w.census.Seen {
		for _, c := range seen {
			one := []ipam.Container{containerOf(c)}
			if c.Witness == runtime && c.Task == state && w.livesAt(s.Addr, one, excused) {
				return true
			}
		}
	}
	return false
}

// after is the world in which every step that is not held was done: the book
// alone is another. Memory is as it was, so that no time has passed.
func (w *world) after(d decision) *world {
	next := *w
	next.book, next.sleeps = slices.Clone(w.book), maps.Clone(w.sleeps)
	for _, s := range d.steps {
		if s.Result == Braked {
			continue
		}
		next.book = slices.DeleteFunc(next.book, func(l *ipam.Lease) bool { return l.Addr == s.Addr })
		now := ipam.Lease{Addr: s.Addr, Sandbox: s.adopt.Sandbox, UID: s.adopt.UID, ID: s.adopt.ID, Interface: "eth0"}
		if s.lease != nil && s.Kind != Adopt && s.Kind != Quarantine {
			now = *s.lease
		}
		if now.ID == "" || slices.ContainsFunc(next.book, func(l *ipam.Lease) bool { return l.ID == now.ID }) {
			now.ID = fmt.Sprint("new at ", s.Addr)
		}
		now.Rev, now.Since = 8, w.now
		bind := func(b ipam.Binding) {
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
		case Still:
			now.Since = s.lease.Since
			next.sleeps[now.ID] = &ipam.Sleep{Mode: next.sleeps[now.ID].Mode, Still: true}
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
	slices.SortFunc(next.book, func(a, b *ipam.Lease) int { return a.Addr.Compare(b.Addr) })
	return &next
}

// lets is where a step leads, and by whom.
var lets = map[string]struct {
	to ipam.State
	by ipam.Actor
}{
	Adopt: {bound, ipam.ByReconciler}, Bind: {bound, ipam.ByReconciler}, Pause: {paused, ipam.ByReconciler},
	Still: {paused, ipam.ByReconciler}, Resume: {bound, ipam.ByReconciler}, Quarantine: {quarantine, ipam.ByReconciler}, Clear: {cooling, ipam.ByReconciler},
	Expire: {ipam.Free, ipam.ByWatchdog}, Reap: {releasing, ipam.ByReconciler},
}

// R10: random worlds. No two actions on one address; nothing that the table of
// moves forbids; nothing freed on news, or while a witness is silent; nothing live freed;
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
				t.Fatalf("two actions on %s: %q", s.Addr, d.list())
			}
			at[s.Addr] = true
			from := ipam.Free
			if i := slices.IndexFunc(w.book, func(l *ipam.Lease) bool { return l.Addr == s.Addr }); i >= 0 {
				from = w.book[i].State
				if s.lease != w.book[i] {
					t.Fatalf("%s %s was not decided on the row", s.Kind, s.Addr)
				}
				if from == quarantine && heldBack(w.book[i]) {
					t.Fatalf("%s %s, which an operator quarantined", s.Kind, s.Addr)
				}
			}
			if err := ipam.Legal(lets[s.Kind].by, from, lets[s.Kind].to); err != nil {
				t.Fatalf("%s %s: %v", s.Kind, s.Addr, err)
			}
			owners := make(map[string]bool)
			for _, c := range w.census.Seen[s.Addr] {
				if c.Witness == runtime {
					owners[c.Sandbox] = true
				}
			}
			switch s.Kind {
			case Bind, Pause, Resume:
				if !w.backed(s) {
					t.Fatalf("%s %s, and nothing but labels says so: %+v", s.Kind, s.Addr, w.census.Seen)
				}
			case Adopt:
				if !owners[s.Sandbox] {
					t.Fatalf("%s was adopted for %q, of %v", s.Addr, s.Sandbox, owners)
				}
				if !w.backed(s) {
					t.Fatalf("%s was adopted for %q, and nothing but labels says so: %+v", s.Addr, s.Sandbox, w.census.Seen[s.Addr])
				}
			case Clear, Expire, Reap:
				if !w.whole {
					t.Fatalf("%s %s on news", s.Kind, s.Addr)
				}
				if len(w.census.Silent) > 0 {
					t.Fatalf("%s %s while %v is silent", s.Kind, s.Addr, w.census.Silent)
				}
				if len(w.census.Seen[s.Addr]) > 0 {
					t.Fatalf("%s %s, which is seen: %+v", s.Kind, s.Addr, w.census.Seen[s.Addr])
				}
				signs := slices.DeleteFunc(w.signs(s.lease), func(c census.Sighting) bool {
					return s.Kind == Expire && (c.Addr.IsValid() || c.LeaseID != "" && c.LeaseID != s.LeaseID || slices.ContainsFunc(w.book, func(l *ipam.Lease) bool {
						return l.State.Open() && slices.Contains(l.Containers, containerOf(c)) // it lives with another lease
					}))
				})
				if s.Kind != Clear && len(signs) > 0 {
					t.Fatalf("%s %s, which lives: %+v", s.Kind, s.Addr, signs)
				}
				if s.Kind == Reap && s.Result != Braked && !w.gone[s.LeaseID] {
					unproven++
				}
			}
		}
		if most := max(w.leastReleases, int(w.maxReleases*float64(open))); unproven > most && !w.confirm {
			t.Fatalf("%d of %d are released, more than %d: %q", unproven, open, most, d.list())
		}
		if len(d.missed) > len(w.book) || len(d.unseen) > len(w.book) {
			t.Fatalf("%d and %d are remembered of %d rows", len(d.missed), len(d.unseen), len(w.book))
		}
		// A lease that is adopted or ends decides which of its sandbox's leases a
		// container belongs to that nothing else distinguishes, and so does the book
		// of two workloads that carry the label of one lost lease. What follows from
		// that is the next look's, and ends soon.
		last, next := d, w
		for round := 0; ; round++ {
			next = next.after(last)
			again := next.decide()
			done := slices.DeleteFunc(slices.Clone(again.steps), func(s step) bool { return s.Result == Braked })
			if len(done) == 0 {
				return
			}
			decides := slices.ContainsFunc(last.steps, func(s step) bool { return s.Result != Braked && (s.Kind == Adopt || s.Kind == Expire) })
			if !decides || round == 3 {
				t.Fatalf("first %q, and then %q", last.list(), again.list())
			}
			last = again
		}
	})
}

// G6: records that nothing but their labels ties to a lease, whatever they claim, change
// no bind, pause and resume of any; but where another container claims its address and may live with it,
// one more claim makes a dispute, of which a person has to say whose the address is.
func TestG6LabelsChangeNothingHeld(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		reply := func() (out, disputed []string) {
			d := w.decide()
			for _, s := range d.steps {
				if s.Kind == Bind || s.Kind == Pause || s.Kind == Still || s.Kind == Resume {
					out = append(out, fmt.Sprint(s.Kind, s.Addr, s.bind))
				}
			}
			for _, f := range d.findings {
				if f.Kind == "two_claimants" {
					disputed = append(disputed, f.Addr.String())
				}
			}
			return out, disputed
		}
		before, _ := reply()
		for i := range rapid.IntRange(1, 3).Draw(t, "records") {
			container(fmt.Sprint("label", i), task(rapid.SampledFrom(someTasks).Draw(t, "its task")), home("veth9"),
				owner(rapid.SampledFrom([]string{"", "A", "B", "C", "D"}).Draw(t, "its owner")),
				as(rapid.SampledFrom([]string{"", "u1", "u2", "A", "u9"}).Draw(t, "its uid")),
				ip(rapid.SampledFrom(someAddrs).Draw(t, "it claims")))(w)
		}
		after, disputed := reply()
		inDispute := func(step string) bool {
			return slices.ContainsFunc(disputed, func(addr string) bool { return strings.Contains(step, addr) })
		}
		before, after = slices.DeleteFunc(before, inDispute), slices.DeleteFunc(after, inDispute)
		if !slices.Equal(before, after) {
			t.Fatalf("%q, and with labels %q", before, after)
		}
	})
}
