package enforce

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ipamd/ipamd/internal/broadcast"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/nft"
	"github.com/ipamd/ipamd/workload"
)

// ErrNotHeld means that the kernel does not have the rules that the book asks for. The book
// has what was asked of it; ask again.
var ErrNotHeld = errors.New("the rules of nftables do not hold")

// A Book is what the rules are made from; *netdb.Book is one.
type Book interface {
	Epoch() string
	Rev() int64
	Leases() ([]*ipam.Lease, int64)
	Lease(id string) (*ipam.Lease, error)
	Pools() []*ipam.Pool
	Changed() <-chan struct{}
}

// A Kernel knows the ports.
type Kernel interface {
	// Ports are those of our bridges, as of the last Changed.
	Ports() []Port
	// PortNamed is the one of that name, in a time that does not grow with their number.
	PortNamed(name string) (Port, bool)
	Changed() <-chan struct{}
	// Settle takes in what the kernel has reported up to now.
	Settle(ctx context.Context, about ...netip.Addr) error
	// PortsInto says of each namespace which ports lead into it, as the kernel has them now, in the same order. So many
	// are asked about side by side.
	PortsInto(ctx context.Context, of ...RecordedNetns) []Into
	// IsPort reports whether the link of an index, or where that is 0 of a name, is a port of one
	// of our bridges, as the kernel has it now.
	IsPort(ctx context.Context, name string, index int) (bool, error)
	// SetGroups has a port's frames to the group addresses 01-80-C2-00-00-00 to -0F go the
	// way of all others, or as the kernel has it. A port that is gone is no error.
	SetGroups(ctx context.Context, index int, on bool) error
	// Bridges are ours, as of the last Changed.
	Bridges() []Bridge
	// LearnNoGroups has a bridge not learn where the senders of such frames are. One that is
	// gone is no error.
	LearnNoGroups(ctx context.Context, index int) error
	// Unlearn has a bridge forget which MACs it has learned to be at a port. One that is gone
	// is no error.
	Unlearn(ctx context.Context, index int) error
}

// Config of a [Keeper]. All fields but OnForeign and OnRepair are needed.
type Config struct {
	Policy Policy // its mode is not Off
	Book   Book
	Kernel Kernel
	Boot   string        // the kernel's id of this boot
	Every  time.Duration // between readings of the whole table, beside those on news
	Log    *slog.Logger

	OnForeign func() // another program changed the table
	OnRepair  func() // what it changed was repaired
}

// A Keeper keeps our table as the book has it. All methods are safe for concurrent use.
type Keeper struct {
	cfg     Config
	conn    *nft.Conn
	look    *nft.Conn // who asks for a comparison reads by this one, and no bind waits for it
	watch   *nft.Watch
	started chan struct{} // closed by Start
	kick    chan struct{}
	news    chan struct{} // another program changed the table
	bound   chan struct{} // a port came to a lease, and its counters were not read since

	readings atomic.Uint64 // of the ports, as they begin: of two the later one counts

	// unverified: the table has to be read again, because another program changed it, news was lost, or Config.Every is over.
	unverified atomic.Bool

	mu sync.Mutex // guards what follows but status; held while the table is written, and while the book is read for that
	desired
	held    bool // the kernel's table is as want says, as far as is known
	mark    nft.Element
	made    bool // by this process, once
	writes  int  // of the kernel's table, by us
	refused refusals

	status trouble
}

// Open checks that the kernel has what our table needs, and subscribes to its news in the
// network namespace of the calling thread. Our table is as it was.
func Open(ctx context.Context, cfg Config) (*Keeper, error) {
	conn, err := nft.Open()
	if err != nil {
		return nil, err
	}
	if err := try(ctx, conn, cfg.Policy); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	look, err := nft.Open()
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	watch, err := nft.OpenWatch()
	if err != nil {
		return nil, errors.Join(err, look.Close(), conn.Close())
	}
	k := &Keeper{cfg: cfg, conn: conn, look: look, watch: watch, started: make(chan struct{}), kick: make(chan struct{}, 1), news: make(chan struct{}, 1), bound: make(chan struct{}, 1),
		desired: newDesired(cfg.Policy), status: trouble{log: cfg.Log}}
	k.refused = refusals{conn: conn, counts: counts{}, came: k.came}
	return k, nil
}

// try makes a table like ours that no packet sees, and takes it away again: a kernel may
// have nftables and lack a part of what we need.
func try(ctx context.Context, conn *nft.Conn, p Policy) error {
	like := frame(p)
	like.Name = tryName
	for _, c := range like.Chains {
		c.Base = nil
	}
	if err := conn.Remove(ctx, like.Family, like.Name); err != nil {
		return err
	}
	if err := conn.Apply(ctx, nil, like); err != nil {
		return err
	}
	return conn.Remove(ctx, like.Family, like.Name)
}

// Close ends the subscription. The table stays: what is refused does not depend on us.
func (k *Keeper) Close() error { return errors.Join(k.watch.Close(), k.look.Close(), k.conn.Close()) }

// tryName is the table of try, which a process that was killed may have left.
const tryName = TableName + "-try"

// Remove takes our table away, where there is one. It is what the mode off asks for.
func Remove(ctx context.Context) (removed bool, err error) {
	_, tried := nft.RemoveTable(ctx, nft.Bridge, tryName)
	removed, err = nft.RemoveTable(ctx, nft.Bridge, TableName)
	return removed, errors.Join(err, tried)
}

// Start makes the kernel's table what book and ports say; the ports must have been read. A
// table that an earlier process left is changed where it differs, in one transaction: no
// port is without its rules meanwhile. After an error Run tries again.
func (k *Keeper) Start(ctx context.Context) error {
	err := k.follow(ctx)
	select {
	case <-k.started:
	default:
		close(k.started)
	}
	return err
}

// Again has Run compare book, ports and rules.
func (k *Keeper) Again() {
	broadcast.Wake(k.kick)
}

// near are ports among which a lease's are: the one that has the name and the link which
// the lease records, or else all. A port that got another name since is among all.
func (k *Keeper) near(l *ipam.Lease) []Port {
	if p, is := k.cfg.Kernel.PortNamed(l.HostInterface); is && (workload.ByName(l, k.cfg.Boot) || p.Index == l.Plug.Index) {
		return []Port{p}
	}
	return k.cfg.Kernel.Ports()
}

// whereAmong finds a lease's ports. It may ask the kernel, and is called without the lock.
func (k *Keeper) whereAmong(ctx context.Context, l *ipam.Lease, ports []Port, recorded workload.Recorded) (at place) {
	at.ports = Where(l, ports, recorded, func(l *ipam.Lease) []int {
		into := k.locator().into(ctx, l)
		at.err = into.Err
		return into.Ports
	})
	return at
}
