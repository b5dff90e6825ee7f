package metrics

import (
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/bridge"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/enforce"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/reconciler"
	"github.com/ipamd/ipamd/server"
	"github.com/ipamd/ipamd/wake"
	"github.com/ipamd/ipamd/wake/catch"
	"github.com/ipamd/ipamd/wake/idle"
	"github.com/ipamd/ipamd/warm"
	"github.com/ipamd/ipamd/watchdog"
)

// A Daemon is what is read at each scrape.
type Daemon struct {
	Book       *netdb.Book
	Board      *census.Board
	Bridges    *bridge.Group
	Unready    func(*ipam.Pool) error // why a pool cannot give, as far as its bridge goes
	Watchdog   *watchdog.Watchdog
	Reconciler *reconciler.Reconciler
	Server     *server.Server
	Rules      *enforce.Keeper // nil while enforce.mode is off
	Flights    *wake.Flights
	Catcher    *catch.Catcher // nil where the kernel lacks what it takes
	Idle       *idle.Watcher  // nil while idle.after is 0
	Warm       *warm.Keeper
	Version    api.VersionReply
}

// Follow adds what is read from the daemon at each scrape.
func (m *Metrics) Follow(d Daemon) error { return m.Registry.Register(scrape{d}) }

// scrape reads the daemon when it is asked.
type scrape struct{ Daemon }

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("ipamd_"+name, help, labels, nil)
}

var (
	descAddresses  = describe("addresses", "Addresses of a pool by state: those of leases; kept, which have no lease and are for one sandbox; free, which any sandbox may get.", "pool", "family", "state")
	descPoolSize   = describe("pool_size", "Addresses of a pool that can be given at all.", "pool", "family")
	descExhausted  = describe("pool_exhausted", "1 when a pool that does not drain has no address to give now.", "pool", "family")
	descPoolReady  = describe("pool_ready", "1 when a pool's bridge is as the pool needs it, and all that look at it answer.", "pool", "family")
	descGeneration = describe("pool_generation", "Generation of a pool's description; it rises with each change.", "pool", "family")
	descDraining   = describe("pool_draining", "1 when a pool gives nothing because it drains.", "pool", "family")
	descOutside    = describe("pool_outside", "Leases on addresses that their pool does not give any more.", "pool", "family")
	descCap        = describe("quarantine_cap", "Addresses of a pool that may be quarantined without an operator.", "pool", "family")
	descReady      = describe("ready", "1 when addresses can be given.")
	descIdentity   = describe("identity_state", "1 for what the book is: own, or foreign, which gives nothing.", "state")
	descSilent     = describe("witness_silent", "1 for a witness that cannot answer, 0 for one that can.", "witness")
	descUnreadable = describe("unreadable_rows", "Rows of the book that cannot be read; their addresses are not given.")
	descReadonly   = describe("book_readonly", "1 when the book cannot be written.")
	descGrowing    = describe("book_growing", "1 when the book's files grow and cannot be cut, though changes go on.")
	descBytes      = describe("book_bytes", "Size of the book's files.", "file")
	descRevision   = describe("revision", "The last committed revision.")
	descPorts      = describe("bridge_ports", "Ports of the bridges.")
	descBridge     = describe("bridge_ready", "1 when a bridge is as all of its pools need it.", "bridge")
	descWithheld   = describe("withheld_addresses", "Addresses of removed pools that are not given before they have cooled.")
	descBlocked    = describe("release_blocked", "Leases that are being released, by what stands first in their way.", "blocker")
	descOldest     = describe("release_oldest_seconds", "How long the oldest release has waited for its confirmation; 0 when none waits.")
	descAbsent     = describe("reap_candidates", "Bound leases that the last pass missed, released or not yet.")
	descHeld       = describe("reap_held_releases", "Releases that the last pass held back, until an operator confirms.")
	descFindings   = describe("findings", "Disagreements that the last pass reported and left to a person.", "kind")
	descConflicts  = describe("conflicts", "Held addresses on which a conflict stands: another is seen there, or was a moment ago.")
	descWatching   = describe("watch_clients", "Callers that follow the stream of changes.")
	descBuild      = describe("build_info", "1, with what the daemon was built from.", "version", "commit", "go")
)

// Describe implements [prometheus.Collector].
func (s scrape) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descAddresses, descPoolSize, descPoolReady, descExhausted, descGeneration, descDraining, descOutside, descCap, descReady, descIdentity, descSilent, descUnreadable, descReadonly, descGrowing,
		descBytes, descRevision, descPorts, descBridge, descWithheld, descBlocked, descOldest, descAbsent, descHeld, descFindings, descConflicts, descWatching, descBuild, descRefused, descForeign, descRepairs, descRules, descUnanswered, descCopies, descIdle, descQuiet, descSlots, descSlotsWanted, descWarmHelper} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (s scrape) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	s.pools(gauge)
	s.bookFile(gauge)
	s.releases(gauge)
	s.lastPassed(gauge)
	gauge(descConflicts, float64(s.Reconciler.Conflicts()))

	gauge(descReady, one(len(s.Server.NotReady()) == 0))
	foreign := s.Book.CheckIdentity() != nil
	gauge(descIdentity, one(!foreign), "own")
	gauge(descIdentity, one(foreign), "foreign")
	witnesses := s.Board.About(netip.Addr{})
	for _, w := range witnesses.Answered {
		gauge(descSilent, 0, string(w))
	}
	silent := make(map[census.Witness]bool) // on any bridge
	for _, s := range witnesses.Silent {
		if !silent[s.Witness] {
			silent[s.Witness] = true
			gauge(descSilent, 1, string(s.Witness))
		}
	}
	gauge(descWatching, float64(s.Server.Watching()))
	ports := 0
	for _, b := range s.Bridges.Statuses() {
		ports += b.Ports
		gauge(descBridge, one(b.Ready), b.Name)
	}
	gauge(descPorts, float64(ports))
	gauge(descWithheld, float64(len(s.Book.Withheld())))
	s.rules(ch)
	s.sleeps(ch)
	s.slots(ch)
	gauge(descBuild, 1, s.Version.Version, s.Version.Commit, s.Version.Go)
}

// A gauger sends one sample of a gauge.
type gauger func(d *prometheus.Desc, v float64, labels ...string)

func one(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

func (s scrape) pools(gauge gauger) {
	usage, rev := s.Book.Usage()
	for _, u := range usage {
		family := u.Pool.FamilyName()
		gauge(descPoolSize, float64(u.Size), u.Pool.Name, family)
		exhausted, _ := s.Server.Exhausted(u.Pool.UID)
		drains := u.Pool.State == ipam.PoolDraining
		gauge(descExhausted, one(exhausted && !drains), u.Pool.Name, family)
		gauge(descPoolReady, one(s.Unready(&u.Pool) == nil), u.Pool.Name, family)
		gauge(descGeneration, float64(u.Pool.Generation), u.Pool.Name, family)
		gauge(descDraining, one(drains), u.Pool.Name, family)
		gauge(descOutside, float64(u.Outside), u.Pool.Name, family)
		gauge(descCap, float64(u.QuarantineCap), u.Pool.Name, family)
		gauge(descAddresses, float64(u.Free), u.Pool.Name, family, string(ipam.Free))
		gauge(descAddresses, float64(u.Kept), u.Pool.Name, family, "kept")
		for state, n := range u.ByState {
			gauge(descAddresses, float64(n), u.Pool.Name, family, string(state))
		}
	}
	gauge(descRevision, float64(rev))
}

func (s scrape) bookFile(gauge gauger) {
	info := s.Book.Info()
	gauge(descUnreadable, float64(len(info.Unreadable)))
	gauge(descReadonly, one(info.ReadOnly != nil))
	gauge(descGrowing, one(info.Growing != nil))
	gauge(descBytes, float64(info.Bytes), "book")
	gauge(descBytes, float64(info.WALBytes), "wal")
}

func (s scrape) releases(gauge gauger) {
	for blocker, n := range s.Watchdog.Blocked() {
		gauge(descBlocked, float64(n), blocker)
	}
	var oldest time.Duration
	now := s.Book.Now()
	for _, l := range s.Book.InState(ipam.Releasing) {
		oldest = max(oldest, now.Since(l.Since))
	}
	gauge(descOldest, oldest.Seconds())
}

func (s scrape) lastPassed(gauge gauger) {
	last := s.Reconciler.Last()
	if last == nil {
		gauge(descAbsent, 0)
		gauge(descHeld, 0)
		return
	}
	gauge(descAbsent, float64(last.Absent))
	held := 0
	if last.Held != nil {
		held = last.Held.Releases
	}
	gauge(descHeld, float64(held))
	kinds := make(map[string]int)
	for _, f := range last.Findings {
		kinds[f.Kind]++
	}
	for kind, n := range kinds {
		gauge(descFindings, float64(n), kind)
	}
}
