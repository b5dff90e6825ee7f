package watchdog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/broadcast"
	"github.com/ipamd/ipamd/internal/share"
	"github.com/ipamd/ipamd/ipam"
)

// Book is what the watchdog needs of the lease book.
type Book interface {
	Lease(id string) (*ipam.Lease, error)
	Leases() (rows []*ipam.Lease, rev int64)
	InState(s ipam.State) []*ipam.Lease
	Rev() int64
	Touched(states ...ipam.State) <-chan struct{}
	Release(ctx context.Context, who ipam.Who, id, uid string, ifRev int64) (*ipam.Lease, error)
	ReleaseAt(ctx context.Context, who ipam.Who, id string, rev int64, unseen func() error) (*ipam.Lease, error)
	Expire(ctx context.Context, who ipam.Who, id string, rev int64, unseen func() error) (*ipam.Lease, error)
	Confirm(ctx context.Context, who ipam.Who, id string, rev int64, unseen func() error) (*ipam.Lease, error)
	QuarantineReleasing(ctx context.Context, who ipam.Who, id string, rev int64, evidence json.RawMessage) (*ipam.Lease, error)
}

// Config has what the watchdog asks, and how long it waits. Every field is needed unless it
// says otherwise.
type Config struct {
	Book    Book
	Board   *census.Board
	Runtime Runtime // nil: there is none, and a lease that records containers is never confirmed
	Kernel  Kernel
	// PortsChanged returns a channel that is closed when the bridges' set of
	// ports changes.
	PortsChanged func() <-chan struct{}
	Owner        Owner // nil: there is none to ask
	// Settle reads what the kernel has reported by now. Of its error, as of that of Kernel.Forget, census.ErrorAbout
	// tells what concerns one address: a bridge that cannot be read, or be opened, is in the way of no release on another.
	Settle func(ctx context.Context, about ...netip.Addr) error

	// ReleasingMax is how long an address may stay on the wire after its release;
	// then it is quarantined. A release that is unconfirmed for as long is logged.
	ReleasingMax time.Duration
	Timeout      time.Duration // of one attempt to confirm
	Parallel     int           // attempts under way at once

	Now func() ipam.Stamp
	Log *slog.Logger // nil discards
	// Making reports whether a port with the address of a lease may be made yet: its lease ends after that. It is
	// asked inside the book's transactions, and must not ask the book. nil: none is ever made.
	Making func(leaseID string) bool
	// OnConfirm is given each lease whose removal was confirmed, and how long
	// after the release. It may be nil.
	OnConfirm func(l *ipam.Lease, took time.Duration)
}

// A Watchdog ends leases. It is safe for concurrent use. What it remembers
// can be thrown away: a new one asks everything anew.
//
// The order of locks: the holder of mu asks neither the book nor the bridge nor
// the runtime, each of which may wait for a disk, the kernel or a process: a
// bridge that hangs would hold up the answers to all releases. The book asks the
// board, [snapshot], [awaiting] and Config.Making inside its transactions, so under their locks nothing
// is taken but the board's under that of snapshot. It may also be read itself there
// ([Watchdog.aboutToUse]): readers of the book wait for no transaction.
type Watchdog struct {
	cfg      Config
	wakeup   chan struct{} // one slot: Run shall look at what is due
	snapshot snapshot
	surveys  *share.Run[Tie, inventory]
	ownerAsk OwnerBackoff
	awaiting awaiting
	plumbed  plumbed
	pulse    broadcast.Pulse // of Run, when it sleeps

	mu           sync.Mutex
	running      bool
	tracks       map[string]*track // of the leases to be confirmed, by id
	justReleased []string          // ids of leases that were released just now
	toConclude   []*attempt        // attempts whose look-ups found nothing left; the second stage takes all at once
	concluding   bool              // the second stage is under way
	ended        broadcast.Signal  // at the end of the next attempt
	slots        int               // first stages under way
	slow         int               // of those, of leases whose last attempt ended by its timeout
}

// New checks cfg. It makes no call yet.
func New(cfg Config) (*Watchdog, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("configure the watchdog: %w", err)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	w := &Watchdog{cfg: cfg, wakeup: make(chan struct{}, 1), pulse: make(broadcast.Pulse), tracks: make(map[string]*track)}
	w.surveys = share.New(w.survey)
	return w, nil
}

func (c *Config) check() error {
	switch {
	case c.Book == nil || c.Board == nil:
		return errors.New("it needs a book and a board")
	case c.Kernel == nil || c.PortsChanged == nil || c.Settle == nil:
		return errors.New("it needs the bridge's ports, their changes and its news")
	case c.Now == nil:
		return errors.New("it needs to know the time")
	case c.ReleasingMax <= 0 || c.Timeout <= 0:
		return errors.New("the longest release and the timeout of an attempt must be above zero")
	case c.Parallel <= 0:
		return errors.New("at least one attempt must be allowed at once")
	}
	return nil
}

// A Blocker is one reason why a released address is not reusable yet.
type Blocker struct {
	Kind   string // one of the kinds below
	Detail string // what and where, for a person
}

// The kinds of blockers.
const (
	KindContainer   = "container"   // the runtime has its record
	KindTask        = "task"        // the record is gone, the task is not
	KindRuntime     = "runtime"     // the runtime could not be asked, or there is none to ask
	KindPort        = "port"        // its plumbing is still a port of the bridge, or there without being one, or the kernel could not say; or it was never seen on its bridge
	KindSighting    = "sighting"    // a witness sees the address, or it is in a namespace that no witness reads
	KindSilent      = "silent"      // a witness cannot answer
	KindOwner       = "owner"       // the owner oracle does not say that it is gone, or the owner of the lease has not bound it yet
	KindUnconfirmed = "unconfirmed" // nothing is known to be in the way; a port is being made, or the confirmation is still to come
)

// An obstacle is a blocker with what is needed to see that it may have gone.
type obstacle struct {
	Blocker
	container Container      // of KindContainer
	port      string         // of KindPort: its name; "" when the ports could not be read
	witness   census.Witness // of KindSighting and KindSilent; of KindContainer where the board alone shows it
}

func obstruct(kind, format string, args ...any) obstacle {
	return obstacle{Blocker: Blocker{kind, fmt.Sprintf(format, args...)}}
}

func plain(found []obstacle) []Blocker {
	out := make([]Blocker, len(found))
	for i, o := range found {
		out[i] = o.Blocker
	}
	return out
}
