package catch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ipamd/ipamd/internal/broadcast"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/nft"
	"github.com/ipamd/ipamd/workload"
)

// Book is what is asked of the lease book; *netdb.Book is one.
type Book interface {
	At(addr netip.Addr) (*ipam.Lease, bool)
	Lease(id string) (*ipam.Lease, error)
	InState(s ipam.State) []*ipam.Lease
	Sleep(leaseID string) *ipam.Sleep
	Touched(states ...ipam.State) <-chan struct{}
}

// Waker begins a flight; *wake.Flights is one.
type Waker interface {
	Wake(ctx context.Context, who ipam.Who, id string, cause ipam.Cause, evidence json.RawMessage) (*ipam.Lease, *ipam.Flight, error)
}

// Ports are those of the bridges; *bridge.Group has them.
type Ports interface {
	PortIndexes() map[string]int // of the ports' links, by their names
	Changed() <-chan struct{}
	Inside(f func() error) error // calls f in the bridge's network namespace
}

// A Config has what a [Catcher] needs.
type Config struct {
	Book   Book
	Waker  Waker
	Ports  Ports
	Ignore []netip.Prefix // whose packets wake no sandbox, whatever its policy says
	Log    *slog.Logger
}

// A Catcher keeps the rules for all that sleep, and wakes by what they report. All methods
// are safe for concurrent use.
type Catcher struct {
	cfg     Config
	conn    *nft.Conn
	reader  *reader // nil while none can be had
	watch   *nft.Watch
	again   broadcast.Signal      // the rules are to be looked at
	lost    atomic.Bool           // copies may have been lost: what the rules counted is looked at
	unbound atomic.Pointer[error] // why there is no reader

	mu sync.Mutex // held while rules are changed

	lateMu sync.Mutex
	late   map[string]*arrival // by lease: traffic that is to wake it, once that may be tried

	malformed, overruns, suppressed atomic.Int64
}

// Open binds the group of nflog, and tries whether the kernel has what the rules need. The
// rules of a daemon before this one stay until [Catcher.Sync], and what they counted while none
// listened wakes once [Catcher.Run] begins. A group that cannot be bound, as another program has it,
// is no error: the rules are kept all the same, and Run tries again. See [Catcher.Unbound].
//
// After an error there are no rules: those of a daemon before this one would hold back what comes
// for a sandbox that is awake by now.
func Open(ctx context.Context, cfg Config) (*Catcher, error) {
	c := &Catcher{cfg: cfg, late: make(map[string]*arrival)}
	c.lost.Store(true)
	err := cfg.Ports.Inside(func() (err error) {
		if c.conn, err = nft.Open(); err != nil {
			return err
		}
		if err = try(c.conn, nft.Egress); err != nil {
			return err
		}
		if c.watch, err = nft.OpenWatch(); err != nil {
			return err
		}
		return nil
	})
	if err != nil {
		left := cfg.Ports.Inside(func() error { _, err := Remove(ctx); return err })
		return nil, errors.Join(fmt.Errorf("watch the traffic to paused sandboxes: %w", err), c.Close(), left)
	}
	c.bind()
	return c, nil
}

// bind has a reader, or notes why there is none.
func (c *Catcher) bind() {
	err := c.cfg.Ports.Inside(func() (err error) { c.reader, err = listen(Group); return err })
	if err != nil {
		err = fmt.Errorf("this daemon cannot watch the traffic to paused sandboxes: %w", err)
		c.unbound.Store(&err)
		return
	}
	c.unbound.Store(nil)
}

// Unbound is why no copy of a packet can be received just now, nil where they are.
func (c *Catcher) Unbound() error {
	if why := c.unbound.Load(); why != nil {
		return *why
	}
	return nil
}

// try makes a rule like ours at a hook of the loopback, which sends no packet of a sandbox, and
// takes it away again: a kernel may have nftables, and lack the egress of a device.
func try(c *nft.Conn, at nft.Hook) error {
	like := &nft.Table{Family: nft.Netdev, Name: tryName, Chains: []*nft.Chain{{Name: "egress",
		Base: &nft.Base{Hook: at, Device: "lo"}, Rules: []nft.Rule{{Do: []nft.Statement{nft.Is(nft.L4Proto, uint8(255)), nft.Limit(1, 1), nft.Log(Group, snap)}}}}}}
	ctx := context.Background() // some milliseconds of the start
	if err := c.Remove(ctx, like.Family, like.Name); err != nil {
		return err
	}
	if err := c.Apply(ctx, nil, like); err != nil {
		return fmt.Errorf("a rule with limit and log at the egress of a device (Linux 5.16, NETFILTER_EGRESS): %w", err)
	}
	return c.Remove(ctx, like.Family, like.Name)
}

// Close leaves the rules: what reaches a sleeper meanwhile is copied again once a reader
// listens, and what is held back stays so.
func (c *Catcher) Close() error {
	var errs []error
	if c.reader != nil {
		errs = append(errs, c.reader.close())
	}
	if c.watch != nil {
		_ = c.watch.Close() // the end of Run has closed it
	}
	if c.conn != nil {
		errs = append(errs, c.conn.Close())
	}
	c.reader, c.watch, c.conn = nil, nil, nil
	return errors.Join(errs...)
}

// tryName is the table of try, which a process that was killed may have left.
const tryName = TableName + "-try"

// Remove takes the rules away, where there are any.
func Remove(ctx context.Context) (removed bool, err error) {
	_, tried := nft.RemoveTable(ctx, nft.Netdev, tryName)
	removed, err = nft.RemoveTable(ctx, nft.Netdev, TableName)
	return removed, errors.Join(err, tried)
}

// Sync makes the rules those that the book's sleepers need now.
func (c *Catcher) Sync(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	paused := c.cfg.Book.InState(ipam.Paused)
	want := Table(Sleepers(paused, c.cfg.Book.Sleep, c.portOf()), c.cfg.Ignore)
	like := cmp.Or(want, &nft.Table{Family: nft.Netdev, Name: TableName})
	lost := c.lost.Swap(false) // before the reading: what is lost behind it is read once more
	if want == nil && !lost {
		return c.conn.Remove(ctx, like.Family, like.Name)
	}
	have, err := c.conn.Read(ctx, like)
	if err == nil && lost {
		// Also for those whose port is not known, as where their bridge cannot be read yet: their rules end here.
		c.missed(have, Sleepers(paused, c.cfg.Book.Sleep, recordedPort))
	}
	switch {
	case err != nil:
	case want == nil:
		err = c.conn.Remove(ctx, like.Family, like.Name)
	default:
		err = c.conn.Apply(ctx, have, want)
	}
	if err != nil && lost {
		c.lost.Store(true)
	}
	return err
}

// recordedPort is the port that a lease records, there or not.
func recordedPort(l *ipam.Lease) (port Link, is bool) { return Link{Name: l.HostInterface}, true }

// missed notes for whom packets came whose copies may not have been received.
func (c *Catcher) missed(have *nft.Table, sleepers []Sleeper) {
	if have == nil {
		return
	}
	came := make(map[string]bool)
	for _, chain := range have.Chains {
		for _, r := range chain.Rules {
			if n, counts := r.Counted(); counts && n > 0 {
				came[r.Why] = true
			}
		}
	}
	c.lateMu.Lock()
	defer c.lateMu.Unlock()
	for _, s := range sleepers {
		if known := c.late[s.Lease]; came[s.why()] && (known == nil || !known.since.Same(s.Since)) {
			c.late[s.Lease] = &arrival{cause: ipam.Cause{By: ipam.ByTraffic, Rule: s.Wake.String()}, since: s.Since,
				evidence: seen(s.Addr.Addr(), s.Port.Name, "the rules counted it while no copy was received", s.Wake)}
		}
	}
}

// portOf finds the port of a lease as it is named now, see [workload.Recorded.Has].
func (c *Catcher) portOf() func(*ipam.Lease) (port Link, is bool) {
	var all []*ipam.Lease
	for _, state := range []ipam.State{ipam.Bound, ipam.Paused, ipam.Releasing} {
		all = append(all, c.cfg.Book.InState(state)...)
	}
	recorded, ports := workload.RecordedBy(all, ipam.Now().BootID), c.cfg.Ports.PortIndexes()
	return func(l *ipam.Lease) (Link, bool) {
		for name, index := range ports {
			if recorded.Has(l, index, name) {
				return Link{Name: name, Index: index}, true
			}
		}
		return Link{}, false
	}
}

// Watches reports whether the traffic to a lease can be watched, as an [ipam.FieldError]
// when it cannot.
func (c *Catcher) Watches(l *ipam.Lease) error {
	if why := c.Unwatched()(l); why != nil {
		return &ipam.FieldError{Field: "wake", Reason: why.Error()}
	}
	return nil
}

// Unwatched returns what says why the traffic to a lease cannot be watched, nil where it can, by the
// ports that are there now.
func (c *Catcher) Unwatched() func(*ipam.Lease) error {
	portOf, unbound := c.portOf(), c.Unbound()
	return func(l *ipam.Lease) error {
		switch {
		case unbound != nil:
			return unbound
		case l.HostInterface == "":
			return errors.New("the lease records no port whose traffic could be watched: bind its host_interface")
		}
		if _, is := portOf(l); !is {
			return fmt.Errorf("%s is no port of the bridge: there is no traffic to watch", l.HostInterface)
		}
		return nil
	}
}

const (
	// retry is how long after an error the rules are tried again, the group of nflog, and a wake that
	// may not begin yet.
	retry = time.Second
	// mostRest bounds how long a wake is put off that the book does not take: it doubles.
	mostRest = 8 * time.Second
)

// Run keeps the rules, and wakes by what is copied, until ctx ends.
func (c *Catcher) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx) // to listen must not wait for the rules
	g.Go(func() error { return c.keep(ctx) })
	g.Go(func() error { return c.listen(ctx) })
	g.Go(func() error { return c.follow(ctx) })
	return g.Wait()
}

func (c *Catcher) keep(ctx context.Context) error {
	for {
		changed, ports, asked := c.cfg.Book.Touched(ipam.Paused), c.cfg.Ports.Changed(), c.again.Next()
		err := c.Sync(ctx)
		wait := c.wakeLate(ctx)
		if err != nil && ctx.Err() == nil {
			c.cfg.Log.Warn("rules that watch for traffic to paused sandboxes", "err", err)
			wait = retry
		}
		var again <-chan time.Time
		if wait > 0 {
			again = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-ports:
		case <-asked:
		case <-again:
		}
	}
}

// follow has the rules made again that another program changed.
func (c *Catcher) follow(ctx context.Context) error {
	ours := nft.TableID(nft.Netdev, TableName)
	return c.watch.Run(ctx, func(n nft.News) {
		switch {
		case n.Lost:
			c.again.Send()
		case n.Tables[ours] && !c.conn.Ours(n.Port):
			c.cfg.Log.Warn("another program changed the rules that watch for traffic to paused sandboxes",
				"table", ours, "program", n.Program, "thread", n.Process, "gone", n.Gone)
			c.again.Send()
		}
	})
}

func (c *Catcher) listen(ctx context.Context) error {
	if err := c.Unbound(); err != nil {
		c.cfg.Log.Warn("traffic wakes no sandbox", "err", err)
		for c.Unbound() != nil {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(retry):
				c.bind()
			}
		}
		c.cfg.Log.Info("traffic wakes sandboxes again")
		c.lost.Store(true)
		c.again.Send()
	}
	reader := c.reader
	defer context.AfterFunc(ctx, func() { _ = reader.conn.SetReadDeadline(time.Unix(1, 0)) })()
	for {
		frames, overrun, err := reader.next()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("receive from nflog: %w", err)
		}
		if overrun {
			c.overruns.Add(1)
			c.lost.Store(true)
			c.again.Send()
		}
		for _, frame := range frames {
			c.arrived(ctx, frame)
		}
	}
}

// Counts are what a Catcher met since it was opened.
type Counts struct {
	Malformed  int64 // copies that could not be read, and were ignored
	Overruns   int64 // times that copies were lost because they were not read in time
	Suppressed int64 // copies that began no flight at once: one was under way, or failed a moment ago
}

// Counts returns what was met since it was opened.
func (c *Catcher) Counts() Counts {
	return Counts{c.malformed.Load(), c.overruns.Load(), c.suppressed.Load()}
}
