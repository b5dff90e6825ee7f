package bridge

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/nspath"
	"github.com/ipamd/ipamd/bridge/probe"
	"github.com/ipamd/ipamd/bridge/remains"
	"github.com/ipamd/ipamd/bridge/rtnl"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/share"
)

// A Config describes a bridge and where its witnesses post.
type Config struct {
	Name    string  // of the bridge: "rt0"
	Netns   string  // path of the network namespace to work in; "" is the process's own
	Manage  bool    // make the bridge and repair it; else only look
	Desired Desired // at first; see [Bridge.Set]
	// NetnsFolders are where callers may name network namespaces, beside /run/netns
	// and /proc/PID/ns/net: absolute paths, without links.
	NetnsFolders []string
	Every        time.Duration // between whole readings, the backstop of Run; 0 is 30 s
	Board        Board         // where the witnesses post; *census.Board and *census.Part are one
	// ProbeWindow is how long an address that answered a probe once may keep silent after
	// a later one; 0 is 1 s.
	ProbeWindow time.Duration
	Log         *slog.Logger // nil is silence
	// OnPorts is called whenever [Bridge.Changed] wakes its subscribers. It must not call
	// the Bridge. May be nil.
	OnPorts func()
}

// A Board is where the witnesses of a bridge post. See [census.Board].
type Board interface {
	Replace(w census.Witness, scopes map[string][]census.Sighting, incomplete error)
	ReplaceScope(w census.Witness, scope string, seen []census.Sighting)
	Silence(w census.Witness, reason error)
}

// A Bridge watches one Linux bridge, and keeps it as it should be when it
// manages it. All methods are safe for concurrent use.
//
// Nothing that it remembers is needed: whatever is in memory is read from the
// kernel again by [Bridge.Refresh].
type Bridge struct {
	lookups
	cfg    Config
	lock   *lock
	wakeup *wakeup
	recent *recentlySeen

	tables      *rtnl.Cached // of neighbours
	outside     *rtnl.Cached // of what Run asks without the lock
	connections connections  // that are tracked

	running    sync.Mutex // held by Run
	refreshing sync.Mutex // held by Refresh, which releases mu in between
	crowding   sync.Mutex // held by readCrowd, likewise
	searching  sync.Mutex // held by searchStacked, likewise

	mu     fairMutex // guards all below; see doc.go
	closed bool
	lost   bool // everything is to be read anew
	sockets
	device  device
	reports []*report // of the witnesses

	netns     namespaces
	host      hostAddresses
	neighbour neighbours
	answers   answers
}

// errUnread is the silence before the first whole reading.
var errUnread = errors.New("the bridge has not been read yet")

// Open takes the lock of the bridge's name in its namespace and opens the
// sockets. The bridge need not exist. When another process looks after it
// already the error names that process and wraps [ErrLocked].
//
// The witnesses are silent until [Bridge.Refresh] has read everything once.
func Open(cfg Config) (*Bridge, error) {
	b := newBridge(cfg)
	var err error
	if b.inside, err = openNetns(cfg.Netns); err != nil {
		return nil, fmt.Errorf("open bridge %s: %w", cfg.Name, err)
	}
	b.device.inside = b.inside
	err = b.inside.do(func() (err error) {
		b.lock, err = lockBridge(cfg.Name)
		return err
	})
	if err == nil {
		b.wakeup, err = newWakeup()
	}
	if err == nil {
		err = b.openSockets()
	}
	if err != nil {
		b.release()
		return nil, fmt.Errorf("open bridge %s: %w", cfg.Name, err)
	}
	err = b.connections.find()
	b.cfg.Log.Debug("connection tracking", "there", b.connections.answer.Load(), "answer", err)
	return b, nil
}

// newBridge makes a Bridge that knows of nothing, without sockets.
func newBridge(cfg Config) *Bridge {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Every == 0 {
		cfg.Every = 30 * time.Second
	}
	if cfg.ProbeWindow == 0 {
		cfg.ProbeWindow = time.Second
	}
	b := &Bridge{
		cfg: cfg, lookups: lookups{bridge: cfg.Name, paths: nspath.New(cfg.NetnsFolders)}, mu: newFairMutex(), recent: &recentlySeen{since: time.Now()},
		device: device{name: cfg.Name, manage: cfg.Manage, log: cfg.Log, want: cfg.Desired},
	}
	witness := func(name census.Witness) *report {
		r := newReport(cfg, name, b.recent)
		b.reports = append(b.reports, r)
		return r
	}
	wake := func() { b.wakeup.wake() }
	b.netns.report, b.netns.bridge, b.netns.wake = witness(census.Netns), cfg.Name, wake
	b.netns.notice, b.netns.portGone = b.notice, b.portGone
	b.netns.shown.Store(new(portList))
	b.netns.onPorts = cfg.OnPorts
	b.host.report, b.host.bridge = witness(census.Host), cfg.Name
	b.neighbour.report, b.neighbour.bridge, b.neighbour.wake = witness(census.Neighbour), cfg.Name, wake
	b.neighbour.portOf = b.answers.portOf
	b.answers.report, b.answers.bridge, b.answers.window = witness(census.Probe), cfg.Name, cfg.ProbeWindow
	b.answers.ask, b.answers.listen = b.askNow, b.openIngress
	b.answers.known, b.answers.byPort = make(map[netip.Addr]answer), make(map[int]*list.List)
	b.tables, b.outside, b.plugs = b.keep(unix.NETLINK_ROUTE), b.keep(unix.NETLINK_ROUTE), b.keep(unix.NETLINK_ROUTE)
	b.connections.Cached = b.keep(unix.NETLINK_NETFILTER)
	b.connections.walks = share.New(b.connections.walk)
	b.machine = remains.New(func(ctx context.Context) (*rtnl.Socket, error) { return b.dial(ctx, unix.NETLINK_ROUTE) }, b.paths)
	b.device.unready(cfg.Name+" has not been looked at yet", nil)
	return b
}

// forget drops what is remembered of the bridge; the sightings on the board
// stand until they are replaced.
func (b *Bridge) forget() {
	b.lost = true
	b.device.set(nil)
	b.device.addrs = nil
	s := &b.netns
	s.moved = s.moved || len(s.ports) != 0
	s.ports, s.linksAgain = make(map[int]*port), make(map[int]bool)
	s.spaces, s.again, s.crowds = make(map[int]*space), make(map[int]bool), make(map[int]bool)
	s.stacked = newStackedLinks(s.stacked.again)
	s.stock = &stock{most: mostKnown}
	s.gapsMoved = true
	n := &b.neighbour
	n.entries, n.byMAC, n.again = make(map[netip.Addr]*neighbour), make(map[string]map[netip.Addr]bool), make(map[netip.Addr]bool)
	n.lost = false // of this bridge nothing is known
	n.more.Store(false)
	b.answers.doubts = make(map[netip.Addr]time.Time) // answers that come now are not received
	b.answers.unlocated = make(map[netip.Addr]probe.Reply)
}

// notice has the other witnesses look again at an address that came to a namespace, or went.
func (b *Bridge) notice(addr netip.Addr) {
	b.neighbour.notice(addr)
	b.answers.notice(addr)
}

// portGone has them look again at what was behind a port.
func (b *Bridge) portGone(index int) {
	b.neighbour.portGone(index)
	b.answers.removeFrom(b.wire(), func(o origin) bool { return o.port == index })
}

// wire is what a witness may see of the others.
func (b *Bridge) wire() wire { return wire{b.kernel, b.device.link, b.netns.ports, b.news.Self} }

// isKnown reports that there is a bridge, and that memory is about it.
func (b *Bridge) isKnown() bool { return !b.lost && b.device.isThere() }

// locked calls f with the lock held, unless there is nothing to read with, or ctx
// ends first.
func (b *Bridge) locked(ctx context.Context, f func() error) error {
	if err := b.mu.LockContext(ctx); err != nil {
		return err
	}
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return ErrClosed
	case b.trouble != nil:
		return b.trouble
	}
	return f()
}

// Close gives the lock and the sockets back and waits for Run to return. The
// witnesses are silent from then on; the bridge itself stays as it is. Twice
// is fine.
func (b *Bridge) Close() error {
	b.mu.Lock()
	was := b.closed
	b.closed = true
	b.mu.Unlock()
	if was {
		return nil
	}
	for _, k := range []*rtnl.Cached{b.tables, b.outside, b.plugs, b.connections.Cached} {
		k.Close()
	}
	b.machine.Close()
	b.wakeup.wake()
	b.running.Lock() // Run polls the sockets, so it must end before they do
	defer b.running.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.device.unready(b.cfg.Name+" is no longer watched", ErrClosed)
	b.silence(ErrClosed)
	b.release()
	return nil
}

func (b *Bridge) release() {
	b.closeSockets()
	if b.wakeup != nil {
		b.wakeup.close()
	}
	if b.lock != nil {
		b.lock.close()
	}
	b.inside.close()
}
