package bridge

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/probe"
	"github.com/ipamd/ipamd/bridge/rtnl"
	"github.com/ipamd/ipamd/census"
)

// A Config describes a bridge and who wants to know about it.
type Config struct {
	Name    string  // of the bridge: "rt0"
	Netns   string  // path of the network namespace to work in; "" is the process's own
	Manage  bool    // make the bridge and repair it; else only look
	Desired Desired // at first; see [Bridge.Set]
	// NetnsFolders are where callers may name network namespaces, beside /run/netns
	// and /proc/PID/ns/net: absolute paths, without links.
	NetnsFolders []string
	Every        time.Duration // between whole readings, the backstop of Run; 0 is 30 s
	Board        *census.Board // where the witnesses post
	// ProbeWindow is how long who answered a probe once may keep silent after
	// a later one; 0 is 1 s.
	ProbeWindow time.Duration
	Log         *slog.Logger // nil is silence
}

// A Bridge watches one Linux bridge, and keeps it as it should be when it
// manages it. All methods are safe for concurrent use.
//
// Nothing that it remembers is needed: whatever is in memory is read from the
// kernel again by [Bridge.Refresh].
type Bridge struct {
	cfg   Config
	place place
	paths *netnsPaths
	lock  *lock
	alarm *alarm
	ready atomic.Pointer[NotReadyError]
	shown atomic.Pointer[rtnl.Link] // the bridge's own, as last looked up
	want  atomic.Pointer[Desired]   // never changed in place

	tables      *rtnl.Kept  // of neighbours
	outside     *rtnl.Kept  // of crowded namespaces
	plugs       *rtnl.Kept  // of single links
	connections *rtnl.Kept  // that are tracked
	tracked     *sweeper    // of those
	tracks      atomic.Bool // the kernel answered about those, or may
	unread      atomic.Pointer[[]Gap]
	recent      *recentlySeen
	missed      atomic.Pointer[time.Time] // when an answer may have been lost last
	moves       moves

	running    sync.Mutex // held by Run
	refreshing sync.Mutex // held by Refresh, which releases mu in between
	crowding   sync.Mutex // held by who lists a crowded namespace, likewise

	mu        fairMutex // guards all below, for at most some ms at a time
	closed    bool
	opened    bool // the sockets below are open
	kernel    *rtnl.Socket
	news      *rtnl.News
	probe     *probe.Prober
	ingress   *probe.Ingress // nil while no answer is suspected
	suspected time.Time      // when one was last
	trouble   error          // why news cannot be read; the sockets are to be opened again

	// What is known of the bridge.
	link          *rtnl.Link // nil when there is none
	own           prefixes
	hosts         []rtnl.Address // all the host's, in the kernel's order
	hostLinks     map[int]bool   // of those that can collide with a lease's
	broken        error          // why the bridge could not be repaired
	pinned        int            // index of the bridge whose MAC we set by name
	ports         map[int]*port
	spaces        map[int]*space
	neighbours    map[netip.Addr]*neighbour
	byMAC         map[string]map[netip.Addr]bool
	unnamed       bool                       // a namespace came since names were looked up
	heard         map[netip.Addr]answering   // whose answers to probes are on the board
	shares        map[int]*list.List         // of those, by port; 0 is an unknown one
	unplaced      map[netip.Addr]probe.Reply // answers since, of which the port is to be found
	doubts        map[netip.Addr]time.Time   // of those, who was asked again since, and when
	moved         bool                       // a port did, which is to be told
	childrenAgain bool                       // links on the bridge are to be searched for
	partly        map[int]error              // by nsid, why not all links there were listed
	strangers     map[int]bool               // by nsid, others that got an address since the last search began
	nests         map[int]*nest              // by nsid, of those that were found
	nestsAgain    map[int]bool
	crowds        map[int]bool       // by nsid, what Run is to list
	stock         *stock             // of the addresses in all of those
	listeners     []net.HardwareAddr // on the bridge, for links that were not found
	hidden        map[Gap]time.Time  // what cannot be read of those, and since when; the gaps without a date
	gapsMoved     bool               // what cannot be read did
	spacesMade    int

	// What must be read again before memory is as of now.
	lost            bool // everything
	lookAgain       bool // the bridge's own link
	hostAgain       bool
	linksAgain      map[int]bool
	spacesAgain     map[int]bool
	neighboursAgain map[netip.Addr]bool
	neighboursLost  bool        // any of them: more is told than is remembered
	neighboursMore  atomic.Bool // news of them was left unread

	// The witnesses.
	netns, host, neighbour, answers *report
}

// errUnread is the silence before the first whole reading.
var errUnread = errors.New("the bridge has not been read yet")

// Open takes the lock of the bridge's name in its namespace and opens the
// sockets. The bridge need not exist. When another process looks after it
// already the error names that process and wraps [ErrLocked].
//
// The witnesses are silent until [Bridge.Refresh] has read everything once.
func Open(cfg Config) (*Bridge, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Every == 0 {
		cfg.Every = 30 * time.Second
	}
	if cfg.ProbeWindow == 0 {
		cfg.ProbeWindow = time.Second
	}
	memory := &recentlySeen{since: time.Now()}
	b := &Bridge{
		cfg:       cfg,
		paths:     newNetnsPaths(cfg.NetnsFolders),
		recent:    memory,
		heard:     make(map[netip.Addr]answering),
		shares:    make(map[int]*list.List),
		mu:        newFairMutex(),
		netns:     newReport(cfg, census.Netns, memory),
		host:      newReport(cfg, census.Host, memory),
		neighbour: newReport(cfg, census.Neighbour, memory),
		answers:   newReport(cfg, census.Probe, memory),
	}
	b.tables = rtnl.NewKept(func(ctx context.Context) (*rtnl.Socket, error) { return b.dial(ctx, unix.NETLINK_ROUTE) })
	b.outside = rtnl.NewKept(func(ctx context.Context) (*rtnl.Socket, error) { return b.dial(ctx, unix.NETLINK_ROUTE) })
	b.plugs = rtnl.NewKept(func(ctx context.Context) (*rtnl.Socket, error) { return b.dial(ctx, unix.NETLINK_ROUTE) })
	b.connections = rtnl.NewKept(func(ctx context.Context) (*rtnl.Socket, error) { return b.dial(ctx, unix.NETLINK_NETFILTER) })
	b.tracked = newSweeper(b.forgetConnections)
	b.want.Store(&cfg.Desired)
	b.unready(cfg.Name+" has not been looked at yet", nil)
	var err error
	if b.place, err = openPlace(cfg.Netns); err != nil {
		return nil, fmt.Errorf("open bridge %s: %w", cfg.Name, err)
	}
	err = b.place.do(func() (err error) {
		b.lock, err = lockBridge(cfg.Name)
		return err
	})
	if err == nil {
		b.alarm, err = newAlarm()
	}
	if err == nil {
		err = b.openSockets()
	}
	if err != nil {
		b.release()
		return nil, fmt.Errorf("open bridge %s: %w", cfg.Name, err)
	}
	b.findTracking()
	return b, nil
}

// openSockets opens everything that listens or asks. What was missed before
// then is unknown, so all is to be read.
func (b *Bridge) openSockets() error {
	err := b.place.do(func() error {
		kernel, err := rtnl.Dial(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		news, err := rtnl.Subscribe()
		if err != nil {
			kernel.Close()
			return err
		}
		probe, err := probe.Open()
		if err != nil {
			kernel.Close()
			news.Close()
			return err
		}
		kernel.Redial = func() (k *rtnl.Socket, err error) {
			err = b.place.do(func() error { k, err = rtnl.Dial(unix.NETLINK_ROUTE); return err })
			return k, err
		}
		b.kernel, b.news, b.probe = kernel, news, probe
		return nil
	})
	if err != nil {
		return err
	}
	b.opened, b.trouble = true, nil
	b.missAnswers() // those to the sockets before
	b.forget()
	b.silence(errUnread)
	return nil
}

func (b *Bridge) closeSockets() {
	if !b.opened {
		return
	}
	b.opened = false
	b.kernel.Close()
	b.news.Close()
	b.probe.Close()
	if b.ingress != nil {
		b.ingress.Close()
		b.ingress = nil
	}
}

// forget drops what is remembered of the bridge; the sightings on the board
// stand until they are replaced.
func (b *Bridge) forget() {
	b.setLink(nil)
	b.own = make(prefixes)
	b.moved = b.moved || len(b.ports) != 0
	b.ports = make(map[int]*port)
	b.gapsMoved = true
	b.nests, b.hidden, b.listeners, b.partly = make(map[int]*nest), nil, nil, nil
	b.strangers = make(map[int]bool)
	b.nestsAgain = make(map[int]bool)
	b.crowds = make(map[int]bool)
	b.stock = &stock{most: mostKnown}
	b.spaces = make(map[int]*space)
	b.neighbours = make(map[netip.Addr]*neighbour)
	b.byMAC = make(map[string]map[netip.Addr]bool)
	b.linksAgain = make(map[int]bool)
	b.spacesAgain = make(map[int]bool)
	b.neighboursAgain = make(map[netip.Addr]bool)
	b.doubts = make(map[netip.Addr]time.Time) // answers that come now are not received
	b.unplaced = make(map[netip.Addr]probe.Reply)
	b.neighboursLost = false // of this bridge nothing is known
	b.neighboursMore.Store(false)
	b.lost = true
}

// fail makes all witnesses silent because the kernel could not be asked.
// The next caller reads everything.
func (b *Bridge) fail(err error) error {
	b.lost = true
	b.silence(err)
	return err
}

// silence makes all witnesses of the bridge silent.
func (b *Bridge) silence(reason error) {
	for _, r := range b.reports() {
		r.whole = reason
		_ = r.tell(false) // it returns the reason
	}
}

func (b *Bridge) reports() []*report {
	return []*report{b.netns, b.host, b.neighbour, b.answers}
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
	b.tables.Close()
	b.outside.Close()
	b.plugs.Close()
	b.connections.Close()
	b.alarm.ring()
	b.running.Lock() // Run polls the sockets, so it must end before they do
	defer b.running.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unready(b.cfg.Name+" is no longer watched", ErrClosed)
	b.silence(ErrClosed)
	b.release()
	return nil
}

func (b *Bridge) release() {
	b.closeSockets()
	if b.alarm != nil {
		b.alarm.close()
	}
	if b.lock != nil {
		b.lock.close()
	}
	b.place.close()
}
