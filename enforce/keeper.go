package enforce

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
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
	PortsInto(ctx context.Context, of ...Namespace) []Into
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

	touched atomic.Bool // by another program, since the table was read

	mu        sync.Mutex
	grants    map[string][]Grant // by lease
	revs      map[string]int64   // of the leases that grants were made from
	read      map[string]uint64  // which reading of the ports they were made by; see readings
	withdrawn map[string]int64   // leases whose end is being recorded, and their revisions
	ports     map[int]Port
	fresh     map[int]bool     // ports that were in no set, and may have had the bridge learn a lease's MAC
	users     map[int][]string // the leases that have grants of each port
	gateways  []netip.Addr     // of the pools
	bridges   []Bridge
	own       map[string][]netip.Addr // of bridges, as ownAddrs has it
	want      tally                   // of all of these
	before    map[member]int          // what want had of each, before the change that is being made
	held      bool                    // the kernel's table is as want says, as far as is known
	mark      nft.Element
	made      bool // by this process, once
	writes    int  // of the kernel's table, by us
	refused   counter

	status  sync.Mutex // of what follows
	foreign uint64
	repairs uint64
	err     error
	since   time.Time // of err
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
	return &Keeper{cfg: cfg, conn: conn, look: look, watch: watch, started: make(chan struct{}), kick: make(chan struct{}, 1), news: make(chan struct{}, 1), bound: make(chan struct{}, 1),
		grants: map[string][]Grant{}, revs: map[string]int64{}, read: map[string]uint64{}, withdrawn: map[string]int64{}, ports: map[int]Port{}, fresh: map[int]bool{}, users: map[int][]string{},
		want: tally{}, before: map[member]int{}, refused: counter{conn: conn, counts: counts{}, came: map[int]bool{}}}, nil
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

// set takes in what a lease is, and where by a reading of the ports. What memory has of a
// later revision, or of the same by a later reading, stays: Run compares beside binds, and
// would take away the rules of one that is answered. What a busy kernel does not say in time takes
// no port from a lease: its sandbox may live behind it.
func (k *Keeper) set(l *ipam.Lease, at place, reading uint64) {
	if had := k.revs[l.ID]; had > l.Rev || had == l.Rev && k.read[l.ID] > reading {
		return
	}
	if rev, off := k.withdrawn[l.ID]; off {
		if rev >= l.Rev {
			return
		}
		delete(k.withdrawn, l.ID)
	}
	if at.err != nil && len(at.ports) == 0 {
		at.ports = slices.DeleteFunc(portsOf(k.grants[l.ID]), func(i int) bool { _, is := k.ports[i]; return !is })
	}
	next := Grants(l, at.ports)
	if !slices.Equal(next, k.grants[l.ID]) {
		k.drop(l.ID)
		for _, g := range next {
			k.count(g, 1)
			if g.Port != 0 {
				k.refused.came[g.Port] = true
			}
		}
	}
	if len(next) > 0 {
		k.grants[l.ID], k.revs[l.ID], k.read[l.ID] = next, l.Rev, reading
	}
}

func (k *Keeper) drop(id string) {
	for _, g := range k.grants[id] {
		k.count(g, -1)
	}
	delete(k.grants, id)
	delete(k.revs, id)
	delete(k.read, id)
}

// count adds a grant, or takes it away.
func (k *Keeper) count(g Grant, n int) {
	for _, m := range k.cfg.Policy.members(g) {
		k.add(m, n)
	}
	if g.Port == 0 {
		return
	}
	before := len(k.users[g.Port])
	if n > 0 {
		k.users[g.Port] = append(k.users[g.Port], g.Lease)
	} else if i := slices.Index(k.users[g.Port], g.Lease); i >= 0 {
		k.users[g.Port] = slices.Delete(k.users[g.Port], i, i+1)
	}
	if p, is := k.ports[g.Port]; is && (before == 0) != (len(k.users[g.Port]) == 0) {
		k.addUnleased(p, -n)
	}
	if len(k.users[g.Port]) == 0 {
		delete(k.users, g.Port)
	}
}

func (k *Keeper) add(m member, n int) {
	if _, known := k.before[m]; !known {
		k.before[m] = k.want[m]
	}
	if k.want[m] += n; k.want[m] == 0 {
		delete(k.want, m)
	}
}

func (k *Keeper) addUnleased(p Port, n int) {
	for _, m := range k.cfg.Policy.unleased(p) {
		k.add(m, n)
	}
}

// takePort takes in a port, or that it has another name.
func (k *Keeper) takePort(p Port) {
	was, known := k.ports[p.Index]
	k.ports[p.Index] = p
	k.addOwn(p, 1)
	if known {
		k.addOwn(was, -1)
	} else {
		k.fresh[p.Index] = true
	}
	if was == p || len(k.users[p.Index]) > 0 {
		return
	}
	k.addUnleased(p, 1)
	if known {
		k.addUnleased(was, -1)
	}
}

func (k *Keeper) takePorts() {
	now := make(map[int]Port, len(k.ports))
	for _, p := range k.cfg.Kernel.Ports() {
		now[p.Index] = p
		k.takePort(p)
	}
	for i, p := range k.ports {
		if _, still := now[i]; still {
			continue
		}
		delete(k.fresh, i)
		k.addOwn(p, -1)
		if len(k.users[i]) == 0 {
			k.addUnleased(p, -1)
		}
	}
	k.ports = now
	// Whether a port that has grants counts as unleased without them follows from ports:
	// it is looked at when the last one goes.
}

// world is what the rules are made from, as memory has it.
func (k *Keeper) world() World {
	w := World{Epoch: k.cfg.Book.Epoch(), Revision: k.cfg.Book.Rev(), Ports: slices.Collect(maps.Values(k.ports)), Gateways: k.gateways, Bridges: k.bridges}
	for _, g := range k.grants {
		w.Grants = append(w.Grants, g...)
	}
	sortGrants(w.Grants)
	return w
}

// compare takes in book and ports as they are now; rev is the revision of leases, and
// reading that of the ports by which at was found.
func (k *Keeper) compare(leases []*ipam.Lease, rev int64, at map[string]place, reading uint64) {
	k.takePorts()
	k.takeBridges()
	there := make(map[string]bool, len(leases))
	for _, l := range leases {
		if l.ID != "" && workload.MayUse(l.State) {
			there[l.ID] = true
			k.set(l, at[l.ID], reading)
		}
	}
	for id := range k.grants {
		if !there[id] && k.revs[id] <= rev {
			k.drop(id)
		}
	}
	for id, was := range k.withdrawn {
		if !there[id] && was <= rev {
			delete(k.withdrawn, id)
		}
	}
}

// takeBridges takes in what no port may use: the gateways of the pools, and what the bridges are.
func (k *Keeper) takeBridges() {
	var gateways []netip.Addr
	for _, p := range k.cfg.Book.Pools() {
		if p.Gateway.IsValid() {
			gateways = append(gateways, p.Gateway)
		}
	}
	bridges := k.cfg.Kernel.Bridges()
	same := func(a, b Bridge) bool { return a.Name == b.Name && a.MAC == b.MAC && slices.Equal(a.Addrs, b.Addrs) }
	if slices.Equal(gateways, k.gateways) && slices.EqualFunc(bridges, k.bridges, same) {
		return
	}
	count := func(gateways []netip.Addr, bridges []Bridge, n int) {
		all, at := ownAddrs(bridges)
		for _, a := range slices.Concat(gateways, all) {
			k.add(gateway(a), n)
		}
		for _, b := range bridges {
			for _, m := range bridgeMAC(b) {
				k.add(m, n)
			}
		}
		if k.own = at; len(at) > 0 {
			for _, p := range k.ports {
				k.addOwn(p, n)
			}
		}
	}
	count(k.gateways, k.bridges, -1)
	count(gateways, bridges, 1)
	k.gateways, k.bridges = gateways, bridges
}

func (k *Keeper) addOwn(p Port, n int) {
	for _, m := range own(p.Index, k.own[p.Bridge]) {
		k.add(m, n)
	}
}
