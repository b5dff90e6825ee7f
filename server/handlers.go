package server

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/feed"
	"github.com/ipamd/ipamd/internal/share"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/server/admission"
	"github.com/ipamd/ipamd/workload"
)

// The verbs of the socket are methods of a type for each noun, which has what its verbs ask.

// A view spells leases and pools of the book as the socket does.
type view struct {
	book        Book
	lastTraffic func(*ipam.Lease) (time.Time, bool)
	mtu         func(bridge string) int
	slots       func(ipam.Usage) *api.PoolSlots
	unready     func(*ipam.Pool) error
	policy      ipam.Policy
}

// leases has the verbs on a lease and on a sandbox's leases.
type leases struct {
	*view
	allocator Allocator
	releaser  Releaser
	witnesses Witnesses
	compare   func(context.Context, *ipam.Lease, ipam.Binding) []workload.BindDifference
	ports     *ports // an allocation may have its port made
	deadline  time.Duration
}

// addresses has an operator's verbs on one address.
type addresses struct {
	*view
	witnesses Witnesses
}

// pools has the verbs on pools, and lists what they keep: slots, and what removed pools left.
type pools struct {
	*view
	bridges    func() []api.BridgeStatus
	follow     func(context.Context) error
	slotsEnded func() func(pool string, after *ipam.Pool) int
	vacate     func(ctx context.Context, change func() error) error
	profile    func(bridge string) ipam.Profile
}

// ports has attach and detach, and the calls of the helpers that make ports for them.
type ports struct {
	*view
	releaser   Releaser
	checkNetns func(ctx context.Context, path string) error
	netnsInode func(ctx context.Context, path string) (uint64, error)
	desk       *Desk
	slotDesk   *Desk
	slotOwner  func(netns, host string) string
	plugging   *share.Keyed[string] // one attach or detach of an interface at a time, by its owner
	log        *slog.Logger
}

// sleepers has the verbs on paused sandboxes.
type sleepers struct {
	*view
	sleeper Sleeper
}

// books has the verbs on the book as a whole, and its history.
type books struct {
	*view
	adoption Adoption
	deadline time.Duration
}

// watches has the stream of changes.
type watches struct {
	book    Book
	feed    *feed.Feed
	sleeper Sleeper
	log     *slog.Logger
}

// daemon has the verbs that say how the daemon is, and those on all that it compares.
type daemon struct {
	*view
	ports     *ports
	releaser  Releaser
	witnesses Witnesses
	bridges   func() []api.BridgeStatus
	lacking   func() []string

	examine  func(context.Context) []api.Finding
	findings func() []api.Finding
	compare  func(ctx context.Context, lease string) (*api.RulesReply, error)
	scrape   http.Handler

	pass           Reconcile
	last           func() *api.Report
	confirmOrphans func(set string) error

	build   api.VersionReply
	started time.Time
	require string
	log     *slog.Logger

	doctors, statuses, compared *admission.Shared
}

func newView(c *Config) *view {
	return &view{book: c.Book, lastTraffic: c.LastTraffic, mtu: c.MTU, slots: c.Slots, unready: c.Unready, policy: c.Policy}
}

func newPorts(c *Config, v *view) *ports {
	return &ports{view: v, releaser: c.Releaser, checkNetns: c.CheckNetns, netnsInode: c.NetnsInode, desk: c.Desk, slotDesk: c.SlotDesk, slotOwner: c.SlotOwner, plugging: new(share.Keyed[string]), log: c.Log}
}

// makeHandlers makes the types of the nouns from the parts that the server has.
func (s *Server) makeHandlers() {
	c := &s.cfg
	v := newView(c)
	s.ports = newPorts(c, v)
	s.leases = &leases{view: v, allocator: c.Allocator, releaser: c.Releaser, witnesses: c.Witnesses, compare: c.Compare, ports: s.ports, deadline: c.Deadline}
	s.addresses = &addresses{v, c.Witnesses}
	s.pools = &pools{v, c.Bridges, c.Follow, c.SlotsEnded, c.Vacate, c.SlotProfile}
	s.sleepers = &sleepers{v, c.Sleeper}
	s.books = &books{v, c.Adoption, c.Deadline}
	s.watches = &watches{c.Book, feed.New(c.Book, lineOf), c.Sleeper, c.Log}
	s.daemon = &daemon{view: v, ports: s.ports, releaser: c.Releaser, witnesses: c.Witnesses, bridges: c.Bridges, lacking: c.NotReady,
		examine: c.Doctor, findings: c.Findings, compare: c.Rules, scrape: c.Metrics,
		pass: c.Reconcile, last: c.LastPass, confirmOrphans: c.ConfirmOrphans,
		build: c.Version, started: c.Started, require: c.Require, log: c.Log}
	d := s.daemon
	d.doctors, d.statuses, d.compared = s.shared(d.diagnose), s.shared(d.summarize), s.shared(d.compareRules)
}

// A handler decodes, makes one call, and returns what is to be encoded, with
// its HTTP status. The status 0 means that it has answered by itself.
type handler func(c *call) (status int, reply any, err error)

// handlers has the function of each verb; its method and path are in [api.Endpoints].
func (s *Server) handlers() map[api.Verb]handler {
	return map[api.Verb]handler{
		api.VerbAllocate:   s.leases.allocate,
		api.VerbBind:       s.leases.bind,
		api.VerbPause:      s.sleepers.pause,
		api.VerbResume:     s.sleepers.resume,
		api.VerbWake:       s.sleepers.wake,
		api.VerbWakeAck:    s.sleepers.wakeAck,
		api.VerbAttach:     s.ports.attach,
		api.VerbDetach:     s.ports.detach,
		api.VerbPlumbWork:  s.ports.plumbWork,
		api.VerbPlumbDone:  s.ports.plumbDone,
		api.VerbRelease:    s.leases.release,
		api.VerbForce:      s.leases.forceRelease,
		api.VerbCancel:     s.leases.cancel,
		api.VerbLeases:     s.leases.leases,
		api.VerbLease:      s.leases.lease,
		api.VerbWhois:      s.addresses.whois,
		api.VerbQuarantine: s.addresses.quarantine,
		api.VerbClear:      s.addresses.clear,
		api.VerbAdopt:      s.addresses.adopt,
		api.VerbChanges:    s.books.changes,
		api.VerbWatch:      s.watches.watch,
		api.VerbPools:      s.pools.pools,
		api.VerbWithheld:   s.pools.withheld,
		api.VerbWarm:       s.pools.warm,
		api.VerbPool:       s.pools.onePool,
		api.VerbApply:      s.pools.applyPool,
		api.VerbDrain:      s.pools.drainPool,
		api.VerbUndrain:    s.pools.undrainPool,
		api.VerbRemove:     s.pools.removePool,
		api.VerbReconcile:  s.daemon.reconcile,
		api.VerbAdoptBook:  s.books.adoptBook,
		api.VerbBackup:     s.books.backup,
		api.VerbCheckBook:  s.books.checkBook,
		api.VerbRules:      s.daemon.rules,
		api.VerbStatus:     s.daemon.status,
		api.VerbDoctor:     s.daemon.doctor,
		api.VerbVersion:    s.daemon.version,
		api.VerbHealth:     s.daemon.health,
		api.VerbReady:      s.daemon.ready,
		api.VerbMetrics:    s.daemon.metrics,
	}
}
