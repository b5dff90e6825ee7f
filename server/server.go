package server

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/server/admission"
	"github.com/ipamd/ipamd/workload"
)

// Config is what a server is made of. Every field is needed unless it says
// otherwise.
type Config struct {
	Book      Book
	Allocator Allocator
	Sleeper   Sleeper
	Releaser  Releaser
	Adoption  Adoption
	Witnesses Witnesses

	// Compare says what a bind, which is recorded by then, names and the kernel
	// shows otherwise.
	Compare func(context.Context, *ipam.Lease, ipam.Binding) []workload.BindDifference

	// LastTraffic is when a lease had traffic last, where that is known.
	LastTraffic func(*ipam.Lease) (time.Time, bool)

	// CheckNetns says why a path can name no network namespace, as an [ipam.FieldError].
	CheckNetns func(ctx context.Context, path string) error
	// NetnsInode is that of the namespace at a path; 0: there is none. An error means that it is not known.
	NetnsInode func(ctx context.Context, path string) (uint64, error)
	Desk       *Desk // where the helper gets its work
	SlotDesk   *Desk // where the helper that makes warm slots gets its; see [NewSlotDesk]

	// Slots counts the warm slots of a pool; nil: there are none, and shall be none.
	Slots func(ipam.Usage) *api.PoolSlots
	// SlotsEnded counts, by the slots as they are when it is called, those that a pool gives up
	// once it is as after says; nil: it is removed.
	SlotsEnded func() func(pool string, after *ipam.Pool) int
	// Vacate makes a change of a pool, once the slots that no sandbox has are out of its way.
	Vacate func(ctx context.Context, change func() error) error
	// SlotProfile is what slots are made by, beside their pools. nil: nothing.
	SlotProfile func(bridge string) ipam.Profile
	// SlotOwner names the owner that the port is marked by which a lease in a namespace records, where
	// that is the port of a warm slot, which the book need not know any more; "": it is none. nil: none is.
	SlotOwner func(netns, host string) string

	NotReady  func() []string                     // why mutations cannot be served, a sentence each; empty: ready
	Bridges   func() []api.BridgeStatus           // the daemon's own first
	Follow    func(context.Context) error         // has the bridges be as the pools are now
	Unready   func(*ipam.Pool) error              // why a pool cannot give, as far as its bridge goes
	MTU       func(bridge string) int             // bytes
	Doctor    func(context.Context) []api.Finding // after the latest news of the kernel
	Findings  func() []api.Finding                // the same from memory, for the status
	Reconcile Reconcile                           // a pass now
	// Rules are those of nftables; for a lease, where one is named, those of its ports.
	Rules func(ctx context.Context, lease string) (*api.RulesReply, error)
	// ConfirmOrphans lets the orphans be ended that are held, if they are that set. An
	// error is a sentence for the caller.
	ConfirmOrphans func(set string) error
	LastPass       func() *api.Report                                   // of the last pass that was no preview; nil before the first
	Metrics        http.Handler                                         // answers /metrics
	Observe        func(verb string, code api.Code, took time.Duration) // after every call; code "" is success

	Version api.VersionReply
	Started time.Time
	Require string // allocation.require: "kernel" or "all"

	// RuntimeUIDs and RuntimeGIDs may change leases, beside root. A gid may be
	// a supplementary group of the peer's. Both may be empty.
	RuntimeUIDs, RuntimeGIDs []uint32

	// Policy says when a cooling address is room again, for /readyz. It is the
	// allocator's.
	Policy ipam.Policy

	Deadline time.Duration // of every call; a release's wait comes on top
	MaxConns int           // open connections; beyond it one without a call is closed, of the peer with the most
	Limits   admission.Limits
	Log      *slog.Logger
}

// A Server answers on any number of listeners. It owns a call from its head to its answer:
// who may, how much, and how it is encoded. What a verb does is a method of the type of its
// noun, in handlers.go. All methods are safe for concurrent use.
type Server struct {
	cfg       Config
	mux       *http.ServeMux
	peers     *admission.Judge
	admission *admission.Control
	buffers   sync.Pool // of *bytes.Buffer

	leases    *leases
	addresses *addresses
	pools     *pools
	ports     *ports
	sleepers  *sleepers
	books     *books
	watches   *watches
	daemon    *daemon
}

// New makes a server. It refuses a Config with a part missing.
func New(cfg Config) (*Server, error) {
	v := reflect.ValueOf(cfg)
	for i := range v.NumField() {
		switch name := v.Type().Field(i).Name; name {
		case "RuntimeUIDs", "RuntimeGIDs", "Policy", "SlotProfile", "SlotOwner":
		default:
			if v.Field(i).IsZero() {
				return nil, fmt.Errorf("make the server: %s is missing", name)
			}
		}
	}
	if cfg.SlotProfile == nil {
		cfg.SlotProfile = func(string) ipam.Profile { return ipam.Profile{} }
	}
	if cfg.SlotOwner == nil {
		cfg.SlotOwner = func(string, string) string { return "" }
	}
	if cfg.Deadline < 0 || cfg.MaxConns < 0 || cfg.Limits.Rate < 0 || cfg.Limits.ReaderRate < 0 {
		return nil, fmt.Errorf("make the server: Deadline, MaxConns and rates cannot be negative")
	}
	if cfg.Limits.InFlight < 1 {
		return nil, fmt.Errorf("make the server: Limits.InFlight is below 1")
	}
	peers, err := admission.NewJudge(cfg.RuntimeUIDs, cfg.RuntimeGIDs, cfg.Log)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, peers: peers, admission: admission.New(cfg.Limits, cfg.Log)}
	s.makeHandlers()
	s.buffers.New = func() any { return new(bytes.Buffer) }
	if s.mux, err = s.routes(); err != nil {
		return nil, err
	}
	return s, nil
}
