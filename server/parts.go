package server

import (
	"context"
	"encoding/json"
	"net/netip"
	"time"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/feed"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/watchdog"
)

// Book is what the socket asks of the lease book; *netdb.Book is one. The daemon puts
// a book between (package binding): its Bind, Adopt, Cancel and ClearAt also ask
// or inform the bridge, the watchdog and the allocator. What is returned is shared and
// not changed here.
type Book interface {
	Now() ipam.Stamp
	Epoch() string
	CheckIdentity() error
	Backup(ctx context.Context, path string, replace bool) (netdb.Backup, error)
	CheckNow(ctx context.Context) (netdb.Checked, error)
	Rev() int64
	Leases() ([]*ipam.Lease, int64)
	Lease(id string) (*ipam.Lease, error)
	At(addr netip.Addr) (*ipam.Lease, bool)
	Place(addr netip.Addr) ipam.Place
	HostName(uid, iface string) string
	Sleep(leaseID string) *ipam.Sleep
	Slot(leaseID string) *ipam.Slot
	Slots() []*ipam.Slot
	Pools() []*ipam.Pool
	Outside(l *ipam.Lease) string
	Withheld() []ipam.Withheld
	Usage() ([]ipam.Usage, int64)
	Available(poolUID string, policy ipam.Policy) (n uint64, next time.Duration)
	History(ctx context.Context, q ipam.Query) ([]ipam.Change, error)
	feed.Book
	LastConflict(ctx context.Context) (*ipam.Change, error)
	Info() netdb.Info
	Identity() ipam.BookIdentity
	Touched(states ...ipam.State) <-chan struct{}

	Bind(ctx context.Context, who ipam.Who, id string, ifRev int64, b ipam.Binding) (*ipam.Lease, error)
	// BindEach returns the leases beside an error that comes after they were bound.
	BindEach(ctx context.Context, who ipam.Who, ids []string, ifRev int64, where ipam.Binding) ([]*ipam.Lease, error)
	Pause(ctx context.Context, who ipam.Who, id string, ifRev int64) (*ipam.Lease, error)
	ForceRelease(ctx context.Context, who ipam.Who, id string, ifRev int64, evidence json.RawMessage) (*ipam.Lease, error)
	Cancel(ctx context.Context, who ipam.Who, uid string, attempt int64) ([]*ipam.Lease, error)
	Hold(ctx context.Context, who ipam.Who, addr netip.Addr, evidence json.RawMessage) (*ipam.Lease, error)
	Adopt(ctx context.Context, who ipam.Who, a ipam.Adoption) (*ipam.Lease, error)
	SetPool(ctx context.Context, who ipam.Who, c netdb.PoolChange) (*ipam.PoolOutcome, error)
	PreviewSetPool(c netdb.PoolChange) (*ipam.PoolOutcome, error)
	DrainPool(ctx context.Context, who ipam.Who, uid string, generation int64) (*ipam.PoolOutcome, error)
	RemovePool(ctx context.Context, who ipam.Who, uid string, force bool) (*ipam.PoolOutcome, error)
	PreviewRemovePool(uid string, force bool) (*ipam.PoolOutcome, error)
	ClearAt(ctx context.Context, who ipam.Who, id string, rev int64, unseen func() error) (*ipam.Lease, error)
}

// Allocator hands out addresses; *allocator.Allocator is one.
type Allocator interface {
	Allocate(ctx context.Context, r allocator.Request) (*allocator.Result, error)
}

// Releaser begins a lease's release and reports what keeps its address from being
// reused. A lease that is free at once comes back in state ipam.Free. Asked
// again it answers the present blockers.
type Releaser interface {
	Release(ctx context.Context, who ipam.Who, id, uid string, ifRev int64) (*ipam.Lease, []watchdog.Blocker, error)
	// Blockers answers from memory what keeps the address of a releasing lease
	// from being reused.
	Blockers(l *ipam.Lease) []watchdog.Blocker
}

// Reconcile makes a pass and reports what it planned and did. A preview does
// nothing; confirm also releases what would be held for being too much. It is
// not called with both. An error means that no pass was made; a step that
// failed is in the report.
type Reconcile func(ctx context.Context, preview, confirm bool) (api.Report, error)

// Witnesses is what was seen on the wire; *census.Board is one.
type Witnesses interface {
	About(addr netip.Addr) census.Answer
	AboutRange(from, to netip.Addr) census.Answer
	Silent() []census.Silence
}
