package bridge

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/broadcast"
)

// A Group looks after several bridges of one network namespace as a [Bridge] does after one: it
// holds the lock of each, watches it, and keeps it as it should be where it is managed.
//
// An address is on the bridge whose Want has it, in Pools or in Others. A question about an address
// goes to that bridge, and the witnesses of the other bridges need not answer about it: see
// [census.Board.LocateBy]. About an address that is on no bridge all are asked. So a bridge that is
// missing, or that another process has, silences its own witnesses and keeps back its own pools only.
//
// All methods are safe for concurrent use.
type Group struct {
	cfg     Config // of each; Name is the daemon's own, which is always a member
	board   *census.Board
	changed broadcast.Signal // the ports of a bridge have changed: see Changed

	setting sync.Mutex // held by SetAll, Staying and Close
	now     atomic.Pointer[members]

	loops  sync.Mutex      // guards what follows
	run    context.Context // that Run gives to each Bridge.Run; nil while Run does not run
	ended  chan error      // what each Bridge.Run returned
	active int             // how many of them have not ended
}

// A Want is what one bridge of a [Group] has to be, and which addresses are on it.
type Want struct {
	Name    string
	Desired Desired
	Pools   []netip.Prefix
	Others  []netip.Addr // on it too, though in none of its pools: leases that a changed pool left outside
}

// A member is one bridge of a Group. One that could not be opened has err and no Bridge.
type member struct {
	*Bridge
	name   string
	part   *census.Part
	err    error       // why it could not be opened
	since  time.Time   // since when it could not be opened
	looped atomic.Bool // its Bridge.Run runs
}

// members are the bridges of a Group as the last SetAll left them. They are replaced as a whole, and
// all but desired is read without a lock.
type members struct {
	all     []*member              // the daemon's own is the first
	spans   []span                 // of the pools, in the order of their addresses: they do not overlap
	others  map[netip.Addr]*member // see Want.Others
	desired map[*member]Desired    // what each was set to, without those whose Set failed; guarded by Group.setting
}

// A span is the prefix of a pool, and the bridge that it is on.
type span struct {
	prefix netip.Prefix
	on     *member
}

// OpenGroup opens the bridges that are wanted. cfg.Name is the daemon's own one, which is opened
// without a Want too. An error is about that one alone: another that cannot be opened, as while
// another process has its lock, is not ready (see [Group.Unopened]), and each [Group.SetAll] tries it
// again. cfg.Board is not used: each bridge reports on a part of board.
func OpenGroup(ctx context.Context, cfg Config, board *census.Board, wants ...Want) (*Group, error) {
	g := &Group{cfg: cfg, board: board, ended: make(chan error)}
	g.cfg.OnPorts = g.changed.Send
	g.now.Store(&members{})
	if err := g.SetAll(ctx, wants...); len(g.now.Load().all) == 0 {
		return nil, err // nothing is open
	}
	board.LocateBy(func(addr netip.Addr) string {
		if m := g.now.Load().of(addr); m != nil {
			return m.name
		}
		return ""
	})
	return g, nil
}

// SetAll has the bridges be these, each as it is wanted: see [Bridge.Set]. One that is
// wanted no more is left as it is, and looked after no more. One that could not be opened before is
// tried again. The error names each bridge that cannot be opened or made as it is wanted; the others
// are set all the same.
func (g *Group) SetAll(ctx context.Context, wants ...Want) error {
	g.setting.Lock()
	defer g.setting.Unlock()
	if !slices.ContainsFunc(wants, func(w Want) bool { return w.Name == g.cfg.Name }) {
		wants = append([]Want{{Name: g.cfg.Name}}, wants...)
	}
	slices.SortStableFunc(wants, func(a, b Want) int { // the daemon's own first
		switch {
		case a.Name == g.cfg.Name && b.Name != g.cfg.Name:
			return -1
		case b.Name == g.cfg.Name && a.Name != g.cfg.Name:
			return 1
		}
		return 0
	})
	before := g.now.Load()
	next := &members{others: make(map[netip.Addr]*member), desired: make(map[*member]Desired)}
	var made []*member
	for _, w := range wants {
		m := before.named(w.Name)
		if m == nil || m.Bridge == nil {
			m = g.open(w, m)
			made = append(made, m)
		}
		if next.add(m, w); next.all[0].Bridge == nil {
			return m.err // it is the first, and nothing else is open yet
		}
	}
	g.now.Store(next)
	for _, m := range made {
		g.start(m)
	}
	left := false
	for _, m := range before.all {
		if next.named(m.name) == nil {
			left = true
			if m.Bridge != nil {
				_ = m.Close() // it has no error
			}
			m.part.Leave()
		}
	}
	if left { // its ports are no longer among those of the group
		g.changed.Send()
	}
	var failed []error
	for _, w := range wants {
		if m := next.named(w.Name); m.Bridge == nil {
			failed = append(failed, m.err)
		} else if !slices.Contains(made, m) {
			if !before.desired[m].equal(w.Desired) {
				err := m.Set(ctx, w.Desired)
				if err != nil {
					delete(next.desired, m) // it may not be the wanted one: the next call sets it again
				}
				failed = append(failed, err)
			}
		} else if g.running() {
			failed = append(failed, m.Refresh(ctx))
		}
	}
	return errors.Join(failed...)
}

// open opens a bridge that is new in the group, where before is nil, or that could not be opened before.
func (g *Group) open(w Want, before *member) *member {
	m := before
	if m == nil {
		m = &member{name: w.Name, part: g.board.Part(w.Name)}
	} else {
		m = &member{name: m.name, part: m.part, since: m.since}
	}
	cfg := g.cfg
	cfg.Name, cfg.Desired, cfg.Board = w.Name, w.Desired, m.part
	if m.Bridge, m.err = Open(cfg); m.err != nil {
		if m.Bridge = nil; m.since.IsZero() {
			m.since = time.Now()
		}
		// Of an address on it nothing is known then. Probe need not be silent too: it has seen nothing
		// on this bridge, and one silent witness is enough for an address not to count as unseen.
		for _, witness := range []census.Witness{census.Netns, census.Host, census.Neighbour} {
			m.part.Silence(witness, m.err)
		}
	}
	if g.cfg.Log != nil {
		switch {
		case m.err != nil && before == nil && m.name != g.cfg.Name:
			g.cfg.Log.Warn("a bridge cannot be looked after", "bridge", m.name, "err", m.err)
		case m.err == nil && before != nil:
			g.cfg.Log.Info("a bridge can be looked after again", "bridge", m.name)
		}
	}
	return m
}

func (ms *members) add(m *member, w Want) {
	ms.all = append(ms.all, m)
	ms.desired[m] = w.Desired
	for _, p := range w.Pools {
		at, _ := slices.BinarySearchFunc(ms.spans, p.Addr(), func(s span, a netip.Addr) int { return s.prefix.Addr().Compare(a) })
		ms.spans = slices.Insert(ms.spans, at, span{p.Masked(), m})
	}
	for _, a := range w.Others {
		ms.others[a] = m
	}
}

func (ms *members) named(name string) *member {
	for _, m := range ms.all {
		if m.name == name {
			return m
		}
	}
	return nil
}

// of is the bridge that an address is on, nil where it is on none.
func (ms *members) of(addr netip.Addr) *member {
	addr = addr.Unmap().WithZone("")
	at, found := slices.BinarySearchFunc(ms.spans, addr, func(s span, a netip.Addr) int { return s.prefix.Addr().Compare(a) })
	if !found {
		at--
	}
	if at >= 0 && ms.spans[at].prefix.Contains(addr) {
		return ms.spans[at].on
	}
	return ms.others[addr]
}

// asked are the bridges that have to be asked about some addresses, each with those that it is asked
// about. About an address that is on no bridge, all of them are.
func (ms *members) asked(about []netip.Addr) map[*member][]netip.Addr {
	out := make(map[*member][]netip.Addr)
	for _, a := range about {
		if m := ms.of(a); m != nil {
			out[m] = append(out[m], a)
			continue
		}
		for _, m := range ms.all {
			out[m] = append(out[m], a)
		}
	}
	return out
}

// Run keeps the board current for all bridges, also for those that SetAll adds meanwhile: see
// [Bridge.Run]. It blocks until ctx ends and returns nil then. Where a bridge cannot go on it stops
// the others and returns that error. Each bridge waits in a poll(2) of its own, so each has a
// goroutine; Run waits for them.
func (g *Group) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g.loops.Lock()
	g.run = ctx
	g.loops.Unlock()
	for _, m := range g.now.Load().all {
		g.start(m)
	}
	var failed error
	stop := ctx.Done()
	for {
		select {
		case err := <-g.ended:
			g.loops.Lock()
			g.active--
			g.loops.Unlock()
			if err != nil && failed == nil {
				failed = err
				cancel()
			}
		case <-stop:
			stop = nil
		}
		g.loops.Lock()
		over := ctx.Err() != nil && g.active == 0
		if over {
			g.run = nil
		}
		g.loops.Unlock()
		if over {
			return failed
		}
	}
}

func (g *Group) running() bool {
	g.loops.Lock()
	defer g.loops.Unlock()
	return g.run != nil && g.run.Err() == nil
}

// start starts the Bridge.Run of a member, if Run runs and the member's own does not yet.
func (g *Group) start(m *member) {
	g.loops.Lock()
	defer g.loops.Unlock()
	if g.run == nil || g.run.Err() != nil || m.Bridge == nil || m.looped.Swap(true) {
		return
	}
	g.active++
	ctx := g.run
	go func() { // it ends with Run, which waits for it
		err := m.Run(ctx)
		m.looped.Store(false)
		g.ended <- err
	}()
}

// Close closes every bridge. Twice is fine.
func (g *Group) Close() error {
	g.setting.Lock()
	defer g.setting.Unlock()
	var errs []error
	for _, m := range g.now.Load().all {
		if m.Bridge != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(errs...)
}

// Ready returns nil when the addresses of a pool with that gateway may be handed out on a
// bridge, else a [NotReadyError]: see [Bridge.ReadyFor].
func (g *Group) Ready(bridge string, gateway netip.Addr) error {
	m := g.now.Load().named(bridge)
	switch {
	case m == nil:
		return &NotReadyError{Bridge: bridge, Reason: bridge + " is not looked after yet", Since: time.Now()}
	case m.Bridge == nil:
		return &NotReadyError{Bridge: bridge, Reason: fmt.Sprintf("%s cannot be looked after (%v)", bridge, m.err), Since: m.since, cause: m.err}
	}
	return m.ReadyFor(gateway)
}

// Staying lists the former gateways that are still on a bridge of the group. An address that a person
// put there is none. An error means that it is not known: the bridge could not be opened, or the last
// SetAll could not make it as it is wanted. On a bridge that another process has, none is ipamd's.
func (g *Group) Staying(ctx context.Context, bridge string) ([]netip.Prefix, error) {
	g.setting.Lock()
	ms := g.now.Load()
	m := ms.named(bridge)
	_, set := ms.desired[m]
	g.setting.Unlock()
	switch {
	case m == nil || errors.Is(m.err, ErrLocked):
		return nil, nil
	case m.Bridge == nil || !set:
		return nil, fmt.Errorf("it is not known which former gateways are on bridge %s", bridge)
	}
	if err := m.mu.LockContext(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	return m.device.staying(), nil
}

// Unopened says why bridges could not be opened; nil: all are open.
func (g *Group) Unopened() error {
	var errs []error
	for _, m := range g.now.Load().all {
		errs = append(errs, m.err)
	}
	return errors.Join(errs...)
}

// Unready lists the bridges that are not ready, each with the reason: see [Bridge.Ready].
func (g *Group) Unready() (out []*NotReadyError) {
	for _, m := range g.now.Load().all {
		var not *NotReadyError
		if m.Bridge == nil {
			errors.As(g.Ready(m.name, netip.Addr{}), &not)
		} else {
			errors.As(m.Bridge.Ready(), &not)
		}
		if not != nil {
			out = append(out, not)
		}
	}
	return out
}

// Statuses describes every bridge, the daemon's own first.
func (g *Group) Statuses() (out []Status) {
	for _, m := range g.now.Load().all {
		if m.Bridge == nil {
			out = append(out, Status{Name: m.name, Reason: g.Ready(m.name, netip.Addr{}).(*NotReadyError).Reason, Managed: g.cfg.Manage})
			continue
		}
		out = append(out, m.Status())
	}
	return out
}

// MTU returns that of a bridge, in bytes; 0 when the group has none of the name, or it is not there.
func (g *Group) MTU(bridge string) int {
	if m := g.now.Load().named(bridge); m != nil && m.Bridge != nil {
		return m.MTU()
	}
	return 0
}

// ask calls f for each bridge that has to be asked about some addresses, all at once, and waits for all. A
// bridge that is not open answers with the reason.
func (ms *members) ask(about []netip.Addr, f func(*Bridge, []netip.Addr) error) error {
	asked := ms.asked(about)
	var mu sync.Mutex
	var failed map[netip.Addr]error
	askOne := func(m *member, addrs []netip.Addr) {
		err := m.err
		if m.Bridge != nil {
			err = f(m.Bridge, addrs)
		}
		if err == nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if failed == nil {
			failed = make(map[netip.Addr]error)
		}
		for _, a := range addrs {
			failed[a] = errors.Join(failed[a], census.ErrorAbout(a, err))
		}
	}
	var others sync.WaitGroup
	for m, addrs := range asked {
		if len(asked) == 1 { // so it is with most
			askOne(m, addrs)
			break
		}
		others.Go(func() { askOne(m, addrs) })
	}
	others.Wait()
	return census.NewAddrErrors(failed)
}
