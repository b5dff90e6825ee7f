package gateways

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ipamd/ipamd/bridge"
	"github.com/ipamd/ipamd/ipam"
)

// Config says what follows what. Every field is needed.
type Config struct {
	Book interface {
		CheckIdentity() error
		Pools() []*ipam.Pool
		Leases() ([]*ipam.Lease, int64)
		Withheld() []ipam.Withheld
		PoolsChanged() <-chan struct{}
	}
	// Configured are the pools of the configuration. Beside another runner's book the bridges
	// are for those, as that one says nothing of this machine.
	Configured func() ([]ipam.PoolSpec, error)
	Bridge     string // the daemon's own, which is looked after without a pool too
	MTU        int    // of each bridge, where it is managed; 0 leaves it alone
	Manage     bool   // the bridges are ipamd's to make and change
	// Missing are those of some bridges that the kernel does not have.
	Missing func(names ...string) ([]string, error)
	Every   time.Duration // between looks at gateways that stay while a sandbox needs them
	Log     *slog.Logger
}

// A Follower has the bridges follow the pools. It is safe for concurrent use.
type Follower struct {
	Config
	bridges atomic.Pointer[bridge.Group]

	mu       sync.Mutex // held by Follow
	is       map[string]bridge.Desired
	followed atomic.Pointer[<-chan struct{}] // closed when the pools have changed since
	again    atomic.Bool                     // not only a change of the pools changes what is wanted
}

// New returns one that follows nothing yet: see [Follower.Open].
func New(c Config) *Follower { return &Follower{Config: c} }

// Open opens the bridges of the pools as they are now. before are the pools as an earlier daemon
// left them: what they have no more is former for the first look of Run. Of what else is on
// a bridge it is not known whose it was, so it stays.
func (f *Follower) Open(ctx context.Context, before []*ipam.Pool, open func(context.Context, ...bridge.Want) (*bridge.Group, error)) (*bridge.Group, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed := f.Book.PoolsChanged()
	wants, _, err := f.wants(nil)
	if err != nil {
		return nil, err
	}
	g, err := open(ctx, wants...)
	if err != nil {
		return nil, err
	}
	f.bridges.Store(g)
	f.note(wants, nil, changed)
	if g.Unopened() != nil {
		f.again.Store(true)
	}
	for _, p := range before {
		if gw := netip.PrefixFrom(p.Gateway, p.Prefix.Bits()); p.Gateway.IsValid() && !slices.Contains(f.is[p.Bridge].Gateways, gw) {
			is := f.is[p.Bridge]
			is.Gateways = append(slices.Clone(is.Gateways), gw)
			f.is[p.Bridge] = is
			f.again.Store(true)
		}
	}
	return g, nil
}

// Follow has the bridges be as the pools want them. It returns at once where no pool has
// changed since the last time and no gateway waits for a sandbox to end.
func (f *Follower) Follow(ctx context.Context) error {
	if f.Current() {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Current() { // another did it meanwhile
		return nil
	}
	return f.follow(ctx)
}

// Current reports whether the bridges follow the pools as they are now. It never waits.
func (f *Follower) Current() bool {
	changed := f.followed.Load()
	if changed == nil {
		return false
	}
	select {
	case <-*changed:
		return false
	default:
		return true
	}
}

// follow is Follow, whatever is current. Call it with mu held.
func (f *Follower) follow(ctx context.Context) error {
	changed := f.Book.PoolsChanged()
	wants, waiting, err := f.wants(f.is)
	if err != nil {
		return err
	}
	err = f.bridges.Load().SetAll(ctx, wants...)
	var staying []error
	left := func(w bridge.Want) bool {
		if w.Name == f.Bridge || len(w.Pools) > 0 {
			return false
		}
		err := f.staying(ctx, w.Name)
		staying = append(staying, err)
		return err == nil
	}
	// The gateways of a bridge that no pool is on any more are gone, and it is not ipamd's to make again.
	if rest := slices.DeleteFunc(slices.Clone(wants), left); len(rest) < len(wants) {
		wants = rest
		err = f.bridges.Load().SetAll(ctx, wants...)
	}
	err = errors.Join(append(staying, err)...)
	f.note(wants, waiting, changed) // last: a caller that finds it current finds the bridges set, or not ready
	if err != nil {
		f.again.Store(true) // by Run
	}
	return err
}

// staying is why a bridge that no pool is on any more cannot be left yet: its former gateways are still
// on it, or that is not known.
func (f *Follower) staying(ctx context.Context, name string) error {
	stay, err := f.bridges.Load().Staying(ctx, name)
	if err == nil && len(stay) > 0 {
		err = fmt.Errorf("the former gateways %v are still on bridge %s, which no pool is on", stay, name)
	}
	return err
}

// note takes in what the bridges have to be, and what those had to be that are left as they are
// while a sandbox may need it.
func (f *Follower) note(wants []bridge.Want, waiting map[string]bridge.Desired, changed <-chan struct{}) {
	f.is = make(map[string]bridge.Desired, len(wants))
	again := len(waiting) > 0
	maps.Copy(f.is, waiting)
	own := f.ownGateways()
	for _, w := range wants {
		f.is[w.Name] = w.Desired
		again = again || !slices.Equal(w.Desired.Gateways, own[w.Name])
	}
	f.again.Store(again)
	f.followed.Store(&changed)
}

// ownGateways are those of the pools themselves, by bridge.
func (f *Follower) ownGateways() map[string][]netip.Prefix {
	own := make(map[string][]netip.Prefix)
	if specs, err := f.specs(); err == nil {
		for _, s := range specs {
			if s.Gateway.IsValid() {
				own[s.Bridge] = append(own[s.Bridge], netip.PrefixFrom(s.Gateway, s.Prefix.Bits()))
			}
		}
	}
	return own
}

// specs are the pools that the bridges are for.
func (f *Follower) specs() (specs []ipam.PoolSpec, err error) {
	if f.Book.CheckIdentity() != nil {
		return f.Configured()
	}
	for _, p := range f.Book.Pools() {
		specs = append(specs, p.PoolSpec)
	}
	return specs, nil
}

// wants is what each bridge has to be, after what it had to be before; waiting are those that no
// pool is on any more, and that a sandbox may need as they were.
func (f *Follower) wants(before map[string]bridge.Desired) (out []bridge.Want, waiting map[string]bridge.Desired, err error) {
	foreign := f.Book.CheckIdentity() != nil
	specs, err := f.specs()
	if err != nil {
		return nil, nil, err
	}
	bridges := map[string][]ipam.PoolSpec{f.Bridge: nil}
	for _, s := range specs {
		bridges[s.Bridge] = append(bridges[s.Bridge], s)
	}
	held, leased, left, others := f.held(specs, len(before) > 0)
	leaving, err := f.leaving(before, bridges)
	if err != nil {
		return nil, nil, err
	}
	waiting = make(map[string]bridge.Desired)
	for name, old := range leaving {
		// One that no pool is on any more is wanted once more, without its gateways: the host had two
		// ways into a prefix that moved to another bridge, and took the first. Where a sandbox may
		// live there yet it is left as it is.
		if foreign {
			waiting[name] = old
			continue
		}
		needed, former := Of(nil, old, slices.Concat(left, others[name]), leased)
		if len(needed) == 0 {
			out = append(out, bridge.Want{Name: name, Desired: bridge.Desired{Former: former}})
		} else {
			waiting[name] = old
		}
	}
	for name, pools := range bridges {
		w := bridge.Want{Name: name, Desired: bridge.Desired{MTU: f.MTU}, Others: others[name]}
		w.Desired.Gateways, w.Desired.Former = Of(pools, before[name], held, leased)
		if foreign { // sandboxes may live with a pool that is in neither
			w.Desired.Former = nil
		}
		for _, p := range pools {
			w.Pools = append(w.Pools, p.Prefix)
		}
		out = append(out, w)
	}
	place := func(w bridge.Want) int { // those that pools have left are last
		i := slices.Index(order(specs), w.Name)
		if i < 0 && w.Name != f.Bridge {
			return len(specs)
		}
		return i
	}
	slices.SortFunc(out, func(a, b bridge.Want) int { return cmp.Or(place(a)-place(b), strings.Compare(a.Name, b.Name)) })
	return out, waiting, nil
}

// leaving are those former bridges that no pool is on any more, where ipamd may take their
// gateways away. One that is gone took them with it, and is not made again.
func (f *Follower) leaving(before map[string]bridge.Desired, bridges map[string][]ipam.PoolSpec) (map[string]bridge.Desired, error) {
	left := make(map[string]bridge.Desired)
	for name, old := range before {
		if _, is := bridges[name]; !is && f.Manage {
			left[name] = old
		}
	}
	gone, err := f.Missing(slices.Collect(maps.Keys(left))...)
	for _, name := range gone {
		delete(left, name)
	}
	return left, err
}

// order is that of the bridges: the one of the first pool is the first.
func order(specs []ipam.PoolSpec) (names []string) {
	for _, s := range specs {
		if !slices.Contains(names, s.Bridge) {
			names = append(names, s.Bridge)
		}
	}
	return names
}

// held lists the addresses that a sandbox may be using, where that matters; those of them that
// are leased; those that may be in use on a bridge that their pool has left; and by bridge those
// leases that lie in no pool of theirs.
func (f *Follower) held(specs []ipam.PoolSpec, matters bool) (held, leased, left []netip.Addr, others map[string][]netip.Addr) {
	others = make(map[string][]netip.Addr)
	bridgeOf := make(map[string]string)
	for _, p := range f.Book.Pools() {
		bridgeOf[p.UID] = p.Bridge
	}
	leases, _ := f.Book.Leases()
	for _, l := range leases {
		if matters && l.State != ipam.Cooling {
			held = append(held, l.Addr)
		}
		if l.State.Open() || l.State == ipam.Releasing {
			leased = append(leased, l.Addr)
		}
		if matters && l.State == ipam.Quarantined { // of a pool that was removed by force, and is there again
			left = append(left, l.Addr)
		}
		if !slices.ContainsFunc(specs, func(s ipam.PoolSpec) bool { return s.Prefix.Contains(l.Addr) }) {
			if on := bridgeOf[l.PoolUID]; on != "" {
				others[on] = append(others[on], l.Addr)
			}
		}
	}
	if !matters {
		return held, leased, left, others
	}
	for _, w := range f.Book.Withheld() {
		if w.State != ipam.Cooling {
			held, left = append(held, w.Addr), append(left, w.Addr)
		}
	}
	return held, leased, left, others
}

// Run follows the pools until ctx ends. A gateway goes only if a pool had it in this life of the
// daemon, or as it started, and no pool needs it any more. While there is such a gateway it looks again
// every Config.Every, and while a bridge could not be opened or made as it is wanted.
func (f *Follower) Run(ctx context.Context) error {
	var err error
	for {
		changed := f.Book.PoolsChanged()
		f.mu.Lock()
		if err != nil || f.again.Load() || !f.Current() {
			err = f.follow(ctx)
		}
		f.mu.Unlock()
		if err != nil && ctx.Err() == nil {
			f.Log.Warn("the bridges do not follow the pools yet", "err", err)
		}
		var again <-chan time.Time
		if f.again.Load() || err != nil {
			again = time.After(f.Every)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-again:
		}
	}
}
