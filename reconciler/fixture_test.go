package reconciler

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/ipam/ipamtest"
)

// The tests of this package describe worlds in lines: what the book says, what
// the runtime shows, what the wire shows, who is silent, and what earlier
// passes remember. Now is boot; ages count back from it.

type world struct {
	view
	known   memory
	confirm bool
	sleeps  map[string]*ipam.Sleep // by the id of a paused lease
}

type line func(*world)

// worldOf is a pool 10.8.64.0/24 with its gateway at .1 and .200 excluded, a
// runtime that answers, and the default policy; then the lines.
func worldOf(lines ...line) *world {
	w := &world{view: view{
		policy: policy{
			place: place, runtime: true, misses: 3, age: 15 * time.Minute,
			quarantine: 15 * time.Minute, maxReleases: 0.10, leastReleases: 5,
		},
		census: census.Census{Seen: make(map[netip.Addr][]census.Sighting)},
		proof:  proof{homes: make(map[uint32]census.Home), given: make(map[givenTo]bool)},
		gone:   make(map[string]bool), unasked: make(map[netip.Addr]bool), whole: true, now: boot,
	}, known: memory{unseen: make(map[string]unseen), missed: make(map[string]misses)}, sleeps: make(map[string]*ipam.Sleep)}
	for _, l := range lines {
		l(w)
	}
	slices.SortFunc(w.book, func(a, b *ipam.Lease) int { return a.Addr.Compare(b.Addr) })
	for addr, seen := range w.census.Seen { // as a board has them
		slices.SortStableFunc(seen, func(a, b census.Sighting) int {
			return strings.Compare(rank(a.Witness), rank(b.Witness))
		})
		w.census.Seen[addr] = seen
	}
	return w
}

func rank(w census.Witness) string {
	return map[census.Witness]string{runtime: "1", netns: "2"}[w] + "3"
}

func place(a netip.Addr) ipam.Place {
	pool := &ipam.Pool{PoolSpec: ipam.PoolSpec{Name: "default"}}
	switch {
	case !netip.MustParsePrefix("10.8.64.0/24").Contains(a):
		return ipam.Place{Note: "in no pool"}
	case a.As4()[3] <= 1 || a.As4()[3] == 255:
		return ipam.Place{Pool: pool, Note: "the gateway"}
	case a.As4()[3] == 200:
		return ipam.Place{Pool: pool, Note: "excluded (10.8.64.200-10.8.64.200)"}
	case a.As4()[3] == 77:
		return ipam.Place{Pool: pool, Usable: true, Kept: "db"}
	}
	return ipam.Place{Pool: pool, Usable: true}
}

const (
	reserved    = ipam.Reserved
	bound       = ipam.Bound
	paused      = ipam.Paused
	releasing   = ipam.Releasing
	cooling     = ipam.Cooling
	quarantine  = ipam.Quarantined
	runtime     = census.Runtime
	netns       = census.Netns
	host        = census.Host
	neighbour   = census.Neighbour
	defaultBind = 10 * time.Minute
)

// lease is a row of the book, an hour in its state. Its id is "lease of" its
// address, its incarnation the sandbox's name.
func lease(addr string, s ipam.State, sandbox string, more ...func(*ipam.Lease)) line {
	l := &ipam.Lease{ID: "lease of " + addr, Addr: netip.MustParseAddr(addr), State: s, Sandbox: sandbox, UID: sandbox,
		Interface: "eth0", Rev: 7, Since: after(-time.Hour), BindWithin: defaultBind, Plug: ipam.Plug{Boot: boot.BootID}}
	for _, m := range more {
		m(l)
	}
	return func(w *world) { w.book = append(w.book, l) }
}

func age(d time.Duration) func(*ipam.Lease) { return func(l *ipam.Lease) { l.Since = after(-d) } }
func uid(u string) func(*ipam.Lease)        { return func(l *ipam.Lease) { l.UID = u } }
func within(d time.Duration) func(*ipam.Lease) {
	return func(l *ipam.Lease) { l.BindWithin = d }
}
func on(port string) func(*ipam.Lease) { return func(l *ipam.Lease) { l.HostInterface = port } }
func neverSeen(l *ipam.Lease)          { l.Plug = ipam.Plug{Boot: boot.BootID, Unseen: true} }
func neverLookedFor(l *ipam.Lease)     { l.Plug = ipam.Plug{} }
func nextEra(w *world)                 { w.now.BootID += "+1234abcd" }
func mac(m string) func(*ipam.Lease)   { return func(l *ipam.Lease) { l.MAC = m } }

var containers = ipamtest.Records

// stopping is how the owner of a paused lease pauses it, who was not seen to have done it.
func stopping(addr string, mode ipam.SleepMode) line {
	return func(w *world) { w.sleeps["lease of "+addr] = &ipam.Sleep{Mode: mode} }
}

// noMode is what a wake records of a lease that was paused without a mode.
func noMode(addr string) line {
	return func(w *world) {
		w.sleeps["lease of "+addr] = &ipam.Sleep{Mode: ipam.Freeze, Plain: true, Still: true}
	}
}
func setAside(l *ipam.Lease) { l.Hold = "printer of the lab" }

// body is a container, or a sighting on the wire, that began a minute ago.
type body struct {
	census.Sighting
	addrs []netip.Addr
	home  string // the port that leads to where its task lives
	given bool   // the history knows the lease of its label
}

// container is a record in the runtime without a task, unless it says otherwise.
func container(id string, more ...func(*body)) line {
	b := body{Sighting: census.Sighting{Witness: runtime, Namespace: "default", Container: id, At: after(-time.Minute).Wall, TaskAt: after(-time.Minute).Wall}}
	for _, m := range more {
		m(&b)
	}
	if len(b.addrs) == 0 {
		b.addrs = []netip.Addr{{}}
	}
	return b.show
}

// seen is an address on the wire.
func seen(by census.Witness, addr string, more ...func(*body)) line {
	b := body{Sighting: census.Sighting{Witness: by, At: after(-time.Minute).Wall}, addrs: []netip.Addr{netip.MustParseAddr(addr)}}
	for _, m := range more {
		m(&b)
	}
	return b.show
}

func (b body) show(w *world) {
	if b.home != "" && b.Task != "" && b.Task != taskStopped {
		b.PID = pid(b.Container)
		w.homes[b.PID] = census.Home{Ports: census.NewPorts(b.home)}
	}
	for _, a := range b.addrs {
		if b.given {
			w.given[givenTo{b.LeaseID, a, b.UID}] = true
		}
		s := b.Sighting
		s.Addr = a
		w.census.Seen[a] = append(w.census.Seen[a], s)
	}
}

func owner(sandbox string) func(*body) { return func(b *body) { b.Sandbox = sandbox } }
func as(uid string) func(*body)        { return func(b *body) { b.UID = uid } }
func leased(id string) func(*body)     { return func(b *body) { b.LeaseID = id } }
func port(name string) func(*body)     { return func(b *body) { b.Port = name } }
func hw(mac string) func(*body)        { return func(b *body) { b.MAC = mac } }
func since(d time.Duration) func(*body) {
	return func(b *body) { b.At, b.TaskAt = after(-d).Wall, after(-d).Wall }
}
func thawed(d time.Duration) func(*body) { // its task, which was seen paused before
	return func(b *body) { b.TaskAt, b.Resumed = after(-d).Wall, true }
}
func stood(d time.Duration) func(*body) { // its task, which runs again
	return func(b *body) { b.TaskAt, b.StoodAt = after(-d).Wall, after(-d).Wall }
}
func fresh(d time.Duration) func(*body) { // a task
	return func(b *body) { b.Began = after(-d).Wall }
}
func unclear(b *body)               { b.Note = "task state unknown: its shim does not answer" }
func home(port string) func(*body)  { return func(b *body) { b.home = port } }
func known(b *body)                 { b.given = true }
func task(state string) func(*body) { return func(b *body) { b.Task = state } }
func ip(addr string) func(*body) {
	return func(b *body) { b.addrs = append(b.addrs, netip.MustParseAddr(addr)) }
}

// pid is that of a container's task.
func pid(container string) uint32 {
	h := fnv.New32()
	_, _ = h.Write([]byte(container)) // never fails
	return h.Sum32()
}

// lives is a container whose task runs in a namespace that has its address, behind
// a port named after it.
func lives(id, sandbox, addr string, more ...func(*body)) line {
	on := "veth-" + id
	c := container(id, append([]func(*body){owner(sandbox), ip(addr), runs, home(on)}, more...)...)
	return func(w *world) { c(w); seen(netns, addr, port(on))(w) }
}

var (
	runs   = task(taskRunning)
	frozen = task(taskPaused)
	ended  = task(taskStopped)
	made   = task("created")
)

func silent(ws ...census.Witness) line {
	return func(w *world) {
		for _, by := range ws {
			w.census.Silent = append(w.census.Silent, census.Silence{Witness: by, Reason: "the socket is closed"})
		}
	}
}

// missed is what earlier passes know of the lease of an address; dim the same
// of a quarantined one.
func missed(addr string, passes int, ago time.Duration) line {
	return func(w *world) { w.known.missed["lease of "+addr] = misses{passes, after(-ago)} }
}
func dim(addr string, censuses int, ago time.Duration) line {
	return func(w *world) { w.known.unseen["lease of "+addr] = unseen{since: after(-ago), censuses: censuses} }
}

// overdue is a lease that this pass misses for the third time, after a
// quarter of an hour.
func overdue(addr string) line { return missed(addr, 2, 15*time.Minute) }

// lookedUp says that every container of a lease answered not to be there.
func lookedUp(addr string) line { return func(w *world) { w.gone["lease of "+addr] = true } }

func anotherRuntime(w *world) { w.changed = errors.New("another runtime answers") }
func noRuntime(w *world)      { w.policy.runtime = false }
func onNews(w *world)         { w.whole = false }
func confirmed(w *world)      { w.confirm = true }

// many makes the lines of n leases, the first of 10.8.64.10.
func many(n int, of func(addr string) []line) line {
	return func(w *world) {
		for i := range n {
			for _, l := range of(fmt.Sprintf("10.8.64.%d", 10+i)) {
				l(w)
			}
		}
	}
}

// list writes a decision down: a line for each action and finding, in order.
func (d decision) list() []string {
	var out []string
	for _, s := range d.steps {
		words := strings.TrimSpace(fmt.Sprintf("%s %s %s", s.Kind, s.Addr, s.Sandbox))
		if s.Result != Planned {
			words += " (" + s.Result + ")"
		}
		out = append(out, words)
	}
	for _, f := range d.findings {
		out = append(out, fmt.Sprintf("report %s %s", f.Kind, f.Addr))
	}
	return out
}

func (w *world) decide() decision {
	w.index()
	w.sleep = func(id string) *ipam.Sleep { return w.sleeps[id] }
	return w.view.plan(w.known, w.confirm)
}

// expect plans in a world and compares what is said.
func expect(t *testing.T, w *world, want ...string) decision {
	t.Helper()
	d := w.decide()
	if got := d.list(); !slices.Equal(got, want) {
		t.Errorf("decided\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
	for _, s := range d.steps {
		if s.Reason == "" {
			t.Errorf("%s %s has no reason", s.Kind, s.Addr)
		}
	}
	for _, f := range d.findings {
		if f.Detail == "" || f.Repair == "" || f.Since.IsZero() {
			t.Errorf("%s %s: detail %q, repair %q, since %v", f.Kind, f.Addr, f.Detail, f.Repair, f.Since)
		}
	}
	return d
}
