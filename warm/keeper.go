package warm

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/ipamd/ipamd/internal/broadcast"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/plumb"
)

// A Book knows pools, leases and slots; *netdb.Book is one.
type Book interface {
	Usage() ([]ipam.Usage, int64)
	Leases() ([]*ipam.Lease, int64)
	Lease(id string) (*ipam.Lease, error)
	Withheld() []ipam.Withheld
	Slots() []*ipam.Slot
	Slot(leaseID string) *ipam.Slot
	At(netip.Addr) (*ipam.Lease, bool)
	Identity() ipam.BookIdentity
	Changed() <-chan struct{}
	BreakSlot(ctx context.Context, who ipam.Who, leaseID, why string) (*ipam.Lease, error)
	Release(ctx context.Context, who ipam.Who, id, uid string, ifRev int64) (*ipam.Lease, error)
}

// A Helper makes and takes down namespaces, in another process that has the rights.
type Helper interface {
	Present() bool            // it asks for work
	Arrived() <-chan struct{} // has a value after one came

	// Make makes a slot, or finishes what was begun of it, and binds its lease by what was
	// made. After an error nothing of it is left, or what is left is listed.
	Make(ctx context.Context, who ipam.Who, l *ipam.Lease, s *ipam.Slot, p *ipam.Pool) error
	// Check returns how a slot differs from what it was made as.
	Check(ctx context.Context, l *ipam.Lease, s *ipam.Slot, p *ipam.Pool) ([]string, error)
	// Remove takes a namespace down. One that is not there is no error.
	Remove(ctx context.Context, netns string) error
	// List returns the namespaces that are named as this runner's slots are.
	List(ctx context.Context) ([]string, error)
}

// Config of a [Keeper]. Every field is needed unless it says otherwise.
type Config struct {
	Book      Book
	Helper    Helper
	Profile   func(bridge string) ipam.Profile // of slots, beside what their pools say
	Allocator Allocator                        // gives slots their addresses
	Board     Board                            // shows whether a namespace that the book does not know is in use: after a lost book none is known
	Ports     Ports                            // show whether a slot's port has left its bridge
	Watchdog  Watchdog                         // says what a sandbox's release waits for: where it is the port alone, the slot is taken down
	// NoHelper is why nothing is done while no helper is there, in a sentence; every error for
	// that reason wraps it.
	NoHelper error
	Log      *slog.Logger

	OnMade   func(took time.Duration) // a slot was made. May be nil.
	OnFailed func(pool string)        // one could not be made. May be nil.
}

// Bounds of what is done at once, and of how often.
const (
	maxWork       = 24                     // pieces of work under way: some wait for a commit while others wait for the kernel
	maxTakeDown   = 4                      // namespaces that are taken down at once: each holds the kernel's RTNL lock for long
	maxMakeReady  = 4                      // slots of a pool that are made at once while half of them are ready: claims wait for the same lock
	claimDebounce = 100 * time.Millisecond // between looks while slots are claimed, so that most claims meet no work
	workWithin    = time.Minute            // the deadline of one piece of work
	listEvery     = 30 * time.Second       // between readings of the namespaces that are there
	lookEvery     = time.Second            // between looks at what sends no news: releases of sandboxes, bridges
	retryTakeDown = 10 * time.Second       // before a namespace is taken down once more, because its lease did not end
)

// A Keeper has the slots made and taken down as [Plan] decides, as far as addresses, helper and
// kernel allow. Its memory can be thrown away: the next one reads all from the book and the
// namespaces. It is safe for concurrent use; Run is called once.
type Keeper struct {
	cfg  Config
	kick chan struct{} // one slot: work ended

	mu         sync.Mutex
	busy       map[string]bool      // namespaces that work is under way on
	ending     map[string]bool      // leases that are being ended
	giving     map[string]int       // GiveWay calls that wait for the address of a slot, by pool
	vacating   map[string]int       // Vacate calls that wait for the slots of a pool to end, by pool
	begun      map[string]int       // slots of each pool whose address is being reserved
	making     map[string]int       // slots of each pool that are being reserved or made
	behind     map[string]bool      // pools with fewer than half of their slots ready, until all are
	takingDown int                  // namespaces that are being taken down
	claimRev   int64                // revision of the latest claim
	claimedAt  time.Time            // when that was read
	spaces     map[string]bool      // namespaces that may be there: listed, or of a slot once
	takenDown  map[string]time.Time // when a removal of the namespace was last tried, or was found to be none to try
	reported   map[string]bool      // namespaces of no known slot, of which the log says that they stay
	checked    map[string]bool      // namespaces that were made or checked by this Keeper
	listed     time.Time            // when a list was asked for last
	listing    bool
	backoffs   map[string]*backoff     // of pools, by uid
	working    int                     // pieces of work under way, at most maxWork
	absent     bool                    // the log says that there is no helper
	looked     time.Time               // when all leases were read last
	bridges    map[string]ipam.Profile // of pools that keep slots; Run's own
	ports      portWatch               // Run's own
}

// New returns a Keeper that does nothing yet.
func New(cfg Config) *Keeper {
	return &Keeper{
		cfg: cfg, kick: make(chan struct{}, 1),
		busy: make(map[string]bool), ending: make(map[string]bool),
		giving: make(map[string]int), vacating: make(map[string]int),
		begun: make(map[string]int), making: make(map[string]int), behind: make(map[string]bool),
		spaces: make(map[string]bool), takenDown: make(map[string]time.Time),
		reported: make(map[string]bool), checked: make(map[string]bool),
		backoffs: make(map[string]*backoff),
		ports:    portWatch{book: cfg.Book, ports: cfg.Ports, board: cfg.Board},
	}
}

// Run keeps the slots until ctx ends, and returns nil. Work that is under way then is cancelled
// and waited for; what it left half made is finished, or taken down, by the next Run.
func (k *Keeper) Run(ctx context.Context) error {
	var works sync.WaitGroup
	defer works.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	arrived := k.cfg.Helper.Arrived()
	for ctx.Err() == nil {
		changed := k.cfg.Book.Changed()
		began := time.Now()
		k.ports.look(ctx)
		next := k.step(ctx, &works)
		// A step reads the whole book: it may take a twentieth of the time.
		least := 20 * time.Since(began)
		if k.debounces() {
			least = max(least, claimDebounce)
		}
		pause := time.NewTimer(least)
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
		for until, waits := time.Now().Add(next), true; waits; {
			timer.Reset(min(time.Until(until), lookEvery))
			waits = false
			select {
			case <-ctx.Done():
			case <-changed:
			case <-k.kick:
			case <-timer.C:
				waits = time.Now().Before(until) && !k.bridgesDiffer() && !k.ports.look(ctx)
			case <-arrived:
				k.mu.Lock()
				k.listed, k.looked = time.Time{}, time.Time{}
				clear(k.takenDown)
				for _, r := range k.backoffs {
					r.until = time.Now() // another helper may have what the last one lacked
				}
				k.mu.Unlock()
			}
		}
	}
	return nil
}

// bridgesDiffer reports whether a bridge of a pool that keeps slots has changed since the last
// call, in what slots are made by (its MTU, for example): no change of the book says so.
func (k *Keeper) bridgesDiffer() bool {
	now := make(map[string]ipam.Profile)
	pools, _ := k.cfg.Book.Usage()
	for _, u := range pools {
		if u.Pool.Warm != nil {
			now[u.Pool.Bridge] = k.cfg.Profile(u.Pool.Bridge)
		}
	}
	same := maps.Equal(k.bridges, now)
	k.bridges = now
	return !same
}

// step begins what is to be done now, and returns how long to wait for news before the next
// step.
func (k *Keeper) step(ctx context.Context, works *sync.WaitGroup) (next time.Duration) {
	present := k.cfg.Helper.Present()
	k.mu.Lock()
	defer k.mu.Unlock()
	if present && !k.listing && time.Since(k.listed) > listEvery {
		k.listing, k.listed = true, time.Now()
		works.Go(func() { k.list(ctx) })
	}
	next = listEvery
	if !present {
		next = lookEvery
	}
	if k.idle() && time.Since(k.looked) < listEvery {
		k.absent = false
		return next
	}
	k.looked = time.Now()
	view := k.view(present)
	if len(view.Slots) == 0 && len(view.Spaces) == 0 && !wantsAny(view.Pools) {
		k.absent = false
		return next
	}
	k.report(present)
	if len(view.Unplug) > 0 {
		next = min(next, lookEvery)
	}
	now := time.Now()
	for _, r := range k.backoffs {
		if r.until.After(now) {
			next = min(next, r.until.Sub(now))
		}
	}
	// A plan counts a slot once the book has its lease. One whose address is being reserved may not
	// be there yet, so as many Make are passed over; a slot too few is made by the next step.
	begun := maps.Clone(k.begun)
	k.pace(view)
	for _, a := range Plan(view) {
		if k.working >= maxWork && a.Verb != End || a.Verb == TakeDown && k.takingDown >= maxTakeDown {
			continue
		}
		if a.Verb == Make && begun[a.Pool.UID] > 0 {
			begun[a.Pool.UID]--
			continue
		}
		if a.Verb == Make && k.making[a.Pool.UID] >= maxMakeReady && !k.behind[a.Pool.UID] {
			continue
		}
		if a.Verb == Make && k.backoffs[a.Pool.UID] != nil {
			if k.backoffs[a.Pool.UID].tried {
				continue // after a failure one slot is tried, and not all
			}
			k.backoffs[a.Pool.UID].tried = true
		}
		if at, tried := k.takenDown[a.Netns]; a.Verb == TakeDown && tried && now.Sub(at) < retryTakeDown {
			next = min(next, retryTakeDown-now.Sub(at))
			continue
		}
		k.begin(ctx, works, a)
	}
	if present {
		k.check(ctx, works, view)
	}
	return max(next, time.Millisecond)
}

// idle reports that there are no slots and none are wanted, as far as that shows without a look at
// all leases. A book that lost its slots may have leases of them: these are looked for at each
// listEvery.
func (k *Keeper) idle() bool {
	pools, _ := k.cfg.Book.Usage()
	return len(k.spaces) == 0 && len(k.cfg.Book.Slots()) == 0 && !wantsAny(pools)
}

func wantsAny(pools []ipam.Usage) bool {
	for _, u := range pools {
		if u.Pool.Warm != nil {
			return true
		}
	}
	return false
}

// view reads the book, after the namespaces that memory has; k.mu is held.
func (k *Keeper) view(present bool) View {
	v := View{Slots: make(map[string]*ipam.Slot), Profile: k.cfg.Profile, Busy: maps.Clone(k.busy), BackingOff: make(map[string]bool),
		Unplug: make(map[string]bool), Withheld: make(map[string]bool), Portless: k.ports.lost, NoHelper: !present, Boot: ipam.Now().BootID}
	// A slot that is reserved after this line is in the book, which is read next.
	for path := range k.spaces {
		v.Spaces = append(v.Spaces, path)
	}
	rows, _ := k.cfg.Book.Leases()
	for _, w := range k.cfg.Book.Withheld() {
		if w.Netns != "" && w.State == ipam.Quarantined && !ipam.IsSlotUID(w.UID) {
			v.Withheld[w.Netns] = true
		}
	}
	there := make(map[string]bool)
	for _, s := range k.cfg.Book.Slots() {
		v.Slots[s.LeaseID] = s
		there[s.Netns] = true
		if !k.takenDown[s.Netns].IsZero() && !k.spaces[s.Netns] {
			continue // taken down, and its lease is about to end
		}
		k.spaces[s.Netns] = true
	}
	for path := range k.takenDown {
		if !there[path] && !k.spaces[path] {
			delete(k.takenDown, path)
		}
	}
	for path := range k.checked {
		if !there[path] {
			delete(k.checked, path)
		}
	}
	inodes := make(map[uint64]bool) // of the namespaces of slots
	for id := range v.Slots {
		if l, err := k.cfg.Book.Lease(id); err == nil {
			inodes[v.inode(l)] = true
		}
	}
	delete(inodes, 0)
	for _, l := range rows {
		slot := v.Slots[l.ID]
		if slot == nil && !ipam.IsSlotUID(l.UID) && !inodes[v.inode(l)] && (l.Netns == "" || !k.isOurs(l.Netns)) {
			continue
		}
		v.Leases = append(v.Leases, l)
		if l.State == ipam.Releasing && !ipam.IsSlotUID(l.UID) {
			v.Unplug[l.ID] = k.holdsOnlyItsPort(l)
		}
	}
	// Pools last: what was given since counts as given.
	v.Pools, _ = k.cfg.Book.Usage()
	k.resetBackoffs(v.Pools)
	now := time.Now()
	for uid, r := range k.backoffs {
		v.BackingOff[uid] = r.until.After(now)
	}
	for uid := range k.vacating {
		v.BackingOff[uid] = true
	}
	return v
}

// begin has an action done by a goroutine of its own; k.mu is held.
func (k *Keeper) begin(ctx context.Context, works *sync.WaitGroup, a Action) {
	switch a.Verb {
	case Make:
		id := newSlot()
		path := plumb.SlotPath(k.cfg.Book.Identity().RunnerUID, id)
		k.begun[a.Pool.UID]++
		k.making[a.Pool.UID]++
		k.work(works, path, func() {
			k.makeNew(ctx, a.Pool, ipam.NewSlot{ID: id, Netns: path, Profile: k.cfg.Profile(a.Pool.Bridge)})
			k.triedOne(a.Pool.UID)
		}, func() { k.making[a.Pool.UID]-- })
	case Finish:
		if r := k.backoffs[a.Lease.PoolUID]; r == nil || !r.until.After(time.Now()) {
			k.work(works, a.Netns, func() { k.make(ctx, a.Lease) }, nil)
		}
	case TakeDown:
		k.takingDown++
		k.work(works, a.Netns, func() {
			if a.Lease != nil || !k.stays(ctx, a.Netns) {
				k.takeDown(ctx, a.Netns)
			}
		}, func() { k.takingDown-- })
	case End:
		if k.ending[a.Lease.ID] {
			return
		}
		k.ending[a.Lease.ID] = true
		works.Go(func() {
			err := k.end(ctx, a.Lease, a.Why)
			k.done(func() { delete(k.ending, a.Lease.ID) })
			if err != nil && ctx.Err() == nil {
				k.cfg.Log.Warn("a warm slot that is not to be given could not be ended", "addr", a.Lease.Addr, "lease", a.Lease.ID, "reason", a.Why, "err", err)
			}
		})
	}
}

// debounces reports that slots were claimed a moment ago, while no pool is behind and no call
// waits for a slot to end: the next step may come later, and serve several claims.
func (k *Keeper) debounces() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.behind) == 0 && len(k.giving) == 0 && len(k.vacating) == 0 && time.Since(k.claimedAt) < 10*claimDebounce
}

// pace notes which pools are behind, and when a slot was claimed last; k.mu is held.
func (k *Keeper) pace(v View) {
	ready := make(map[string]int)
	for _, l := range v.Leases {
		switch s := v.Slots[l.ID]; {
		case s.Ready(l):
			ready[l.PoolUID]++
		case s != nil && s.Claimed && s.Rev > k.claimRev:
			k.claimRev, k.claimedAt = s.Rev, time.Now()
		}
	}
	for _, u := range v.Pools {
		switch n := ready[u.Pool.UID]; {
		case u.Pool.Warm == nil || n >= u.Pool.Warm.Size:
			delete(k.behind, u.Pool.UID)
		case n < (u.Pool.Warm.Size+1)/2:
			k.behind[u.Pool.UID] = true
		}
	}
}

// work runs do, a piece of work on a namespace, in a goroutine of its own, and then calls ended
// (may be nil). k.mu is held by the caller, and by work around ended, but not around do.
func (k *Keeper) work(works *sync.WaitGroup, path string, do, ended func()) {
	k.working++
	k.busy[path] = true
	works.Go(func() {
		do()
		k.done(func() {
			k.working--
			delete(k.busy, path)
			if ended != nil {
				ended()
			}
		})
	})
}

// done notes the end of a piece of work, and has the loop look again.
func (k *Keeper) done(note func()) {
	k.mu.Lock()
	note()
	k.mu.Unlock()
	broadcast.Wake(k.kick)
}

// report says once that there is no helper, and once that there is one; k.mu is held.
func (k *Keeper) report(present bool) {
	switch {
	case !present && !k.absent:
		k.cfg.Log.Warn("warm slots are not made", "reason", k.cfg.NoHelper)
	case present && k.absent:
		k.cfg.Log.Info("the warm helper is there: warm slots are made")
	}
	k.absent = !present
}
