package warm

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/ipamd/ipamd/internal/broadcast"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/plumb"
)

// A Book knows pools, leases and slots; *netdb.Book is one.
type Book interface {
	Usage() ([]netdb.Usage, int64)
	Leases() ([]*netdb.Lease, int64)
	Lease(id string) (*netdb.Lease, error)
	Withheld() []netdb.Withheld
	Slots() []*netdb.Slot
	Slot(leaseID string) *netdb.Slot
	At(netip.Addr) (*netdb.Lease, bool)
	Holding() netdb.Holding
	Changed() <-chan struct{}
	BreakSlot(ctx context.Context, who netdb.Who, leaseID, why string) (*netdb.Lease, error)
	Release(ctx context.Context, who netdb.Who, id, uid string, ifRev int64) (*netdb.Lease, error)
}

// A Helper makes and takes down namespaces, in another process that has the rights.
type Helper interface {
	Present() bool            // it asks for work
	Arrived() <-chan struct{} // has a value after one came

	// Make makes a slot, or finishes what was begun of it, and binds its lease by what was
	// made. After an error nothing of it is left, or what is left is listed.
	Make(ctx context.Context, who netdb.Who, l *netdb.Lease, s *netdb.Slot, p *netdb.Pool) error
	// Check returns how a slot differs from what it was made as.
	Check(ctx context.Context, l *netdb.Lease, s *netdb.Slot, p *netdb.Pool) ([]string, error)
	// Remove takes a namespace down. One that is not there is no error.
	Remove(ctx context.Context, netns string) error
	// List returns the namespaces that are named as this runner's slots are.
	List(ctx context.Context) ([]string, error)
}

// Config of a [Keeper]. Every field is needed unless it says otherwise.
type Config struct {
	Book      Book
	Helper    Helper
	Profile   func(bridge string) netdb.Profile // of slots, beside what their pools say
	Allocator Allocator                         // gives slots their addresses
	Board     Board                             // what is seen in a namespace that the book does not know: a book that was lost knows none
	Ports     Ports                             // a slot whose port has left its bridge is not given
	Watchdog  Watchdog                          // what a sandbox's release waits for: its port goes with its slot
	// NoHelper is why nothing is done while no helper is there, in a sentence; every error for
	// that reason wraps it.
	NoHelper error
	Log      *slog.Logger

	OnMade   func(took time.Duration) // a slot was made. May be nil.
	OnFailed func(pool string)        // one could not be made. May be nil.
}

// Bounds of what is done at once, and of how often.
const (
	most     = 24                     // pieces of work under way: some wait for a commit while others are with the kernel
	downs    = 4                      // namespaces that are taken down at once: the kernel's lock is held for long by each
	gentle   = 4                      // slots of a pool that are made at once while it has many: claims wait for the same lock
	gather   = 100 * time.Millisecond // between looks while slots are claimed: most claims meet no work
	patience = time.Minute
	every    = 30 * time.Second // between readings of the namespaces that are there
	soon     = time.Second      // between looks at what brings no news: releases of sandboxes, bridges
	again    = 10 * time.Second // until a namespace is taken down once more, whose lease did not end
)

// A Keeper has the slots be as the pools want them, as far as addresses, helper and kernel
// allow. Its memory can be thrown away: the next one reads all from the book and the namespaces.
type Keeper struct {
	cfg  Config
	kick chan struct{} // one slot: work ended

	mu      sync.Mutex
	busy    map[string]bool      // namespaces that work is under way on
	ending  map[string]bool      // leases that are being ended
	giving  map[string]int       // calls that wait for the address of a slot, by pool
	vacated map[string]int       // changes that wait for the slots of a pool to end, by pool
	begun   map[string]int       // slots of each pool whose address is being reserved
	making  map[string]int       // slots of each pool that are being reserved or made
	hurry   map[string]bool      // pools that have less than half of their slots, until they are full
	ends    int                  // namespaces that are being taken down
	claims  int64                // revision of the claim that was seen last
	claimed time.Time            // when that was seen
	spaces  map[string]bool      // namespaces that may be there: listed, or of a slot once
	down    map[string]time.Time // when namespaces were taken down, or could not be
	left    map[string]bool      // namespaces that are in use, and of no slot that the book knows
	checked map[string]bool      // namespaces that were made or checked in this life
	listed  time.Time            // when a list was asked for last
	listing bool
	rests   map[string]*rest // of pools, by uid
	works   int
	absent  bool                     // of the helper, and it is in the log
	looked  time.Time                // at all leases, last
	bridges map[string]netdb.Profile // of pools that keep slots; Run's own
	ports   portWatch                // Run's own
}

// New returns a Keeper that does nothing yet.
func New(cfg Config) *Keeper {
	return &Keeper{cfg: cfg, kick: make(chan struct{}, 1), busy: make(map[string]bool), ending: make(map[string]bool),
		giving: make(map[string]int), vacated: make(map[string]int), left: make(map[string]bool), begun: make(map[string]int), making: make(map[string]int), hurry: make(map[string]bool), spaces: make(map[string]bool), down: make(map[string]time.Time), checked: make(map[string]bool),
		rests: make(map[string]*rest), ports: portWatch{book: cfg.Book, ports: cfg.Ports, board: cfg.Board}}
}

// Run keeps the slots until ctx ends. Work that is under way then ends with it: what was begun
// of it is finished, or taken down, in the next life.
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
		// Of a large book no more than a twentieth of the time goes into looks at it.
		least := 20 * time.Since(began)
		if k.gathers() {
			least = max(least, gather)
		}
		pause := time.NewTimer(least)
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
		for until, waits := time.Now().Add(next), true; waits; {
			timer.Reset(min(time.Until(until), soon))
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
				clear(k.down)
				for _, r := range k.rests {
					r.until = time.Now() // another helper may have what the last one lacked
				}
				k.mu.Unlock()
			}
		}
	}
	return nil
}

// bridgesDiffer says whether the bridges of pools that keep slots are others than at the last call,
// as far as slots are made by them: the book does not change with a bridge.
func (k *Keeper) bridgesDiffer() bool {
	now := make(map[string]netdb.Profile)
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

// step begins what is to be done now, and returns when it is to be looked again if nothing
// has changed by then.
func (k *Keeper) step(ctx context.Context, works *sync.WaitGroup) (next time.Duration) {
	present := k.cfg.Helper.Present()
	k.mu.Lock()
	defer k.mu.Unlock()
	if present && !k.listing && time.Since(k.listed) > every {
		k.listing, k.listed = true, time.Now()
		works.Go(func() { k.list(ctx) })
	}
	next = every
	if !present {
		next = soon
	}
	if k.idle() && time.Since(k.looked) < every {
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
		next = min(next, soon)
	}
	now := time.Now()
	for _, r := range k.rests {
		if r.until.After(now) {
			next = min(next, r.until.Sub(now))
		}
	}
	begun := maps.Clone(k.begun) // those that the book has by now are counted twice, and made a step later
	k.pace(view)
	for _, a := range Plan(view) {
		if k.works >= most && a.Verb != End || a.Verb == TakeDown && k.ends >= downs {
			continue
		}
		if a.Verb == Make && begun[a.Pool.UID] > 0 {
			begun[a.Pool.UID]--
			continue
		}
		if a.Verb == Make && k.making[a.Pool.UID] >= gentle && !k.hurry[a.Pool.UID] {
			continue
		}
		if a.Verb == Make && k.rests[a.Pool.UID] != nil {
			if k.rests[a.Pool.UID].tried {
				continue // after a failure one is tried, and not all
			}
			k.rests[a.Pool.UID].tried = true
		}
		if a.Verb == TakeDown && a.Lease == nil && k.inUse(a.Netns) {
			if !k.left[a.Netns] {
				k.left[a.Netns] = true
				k.cfg.Log.Warn("a namespace of no known warm slot has an address in use, and stays", "netns", a.Netns)
			}
			continue
		}
		if at, tried := k.down[a.Netns]; a.Verb == TakeDown && tried && now.Sub(at) < again {
			next = min(next, again-now.Sub(at))
			continue
		}
		k.begin(ctx, works, a)
	}
	if present {
		k.check(ctx, works, view)
	}
	return max(next, time.Millisecond)
}

// idle says that there are no slots and shall be none, as far as that is known without a look
// at all leases. What a book without its slots has left of them is looked for now and then.
func (k *Keeper) idle() bool {
	pools, _ := k.cfg.Book.Usage()
	return len(k.spaces) == 0 && len(k.cfg.Book.Slots()) == 0 && !wantsAny(pools)
}

func wantsAny(pools []netdb.Usage) bool {
	for _, u := range pools {
		if u.Pool.Warm != nil {
			return true
		}
	}
	return false
}

// view reads the book, after the namespaces that memory has; k.mu is held.
func (k *Keeper) view(present bool) View {
	v := View{Slots: make(map[string]*netdb.Slot), Profile: k.cfg.Profile, Hands: maps.Clone(k.busy), Resting: make(map[string]bool),
		Unplug: make(map[string]bool), Kept: make(map[string]bool), Portless: k.ports.lost, Helpless: !present}
	// A slot that is reserved behind this is in the book that is read next.
	for path := range k.spaces {
		v.Spaces = append(v.Spaces, path)
	}
	rows, _ := k.cfg.Book.Leases()
	for _, w := range k.cfg.Book.Withheld() {
		if w.Netns != "" && w.State == netdb.Quarantined && !netdb.IsSlotUID(w.UID) {
			v.Kept[w.Netns] = true
		}
	}
	there := make(map[string]bool)
	for _, s := range k.cfg.Book.Slots() {
		v.Slots[s.LeaseID] = s
		there[s.Netns] = true
		if !k.down[s.Netns].IsZero() && !k.spaces[s.Netns] {
			continue // taken down, and its lease is about to end
		}
		k.spaces[s.Netns] = true
	}
	for path := range k.down {
		if !there[path] && !k.spaces[path] {
			delete(k.down, path)
		}
	}
	for path := range k.checked {
		if !there[path] {
			delete(k.checked, path)
		}
	}
	for _, l := range rows {
		slot := v.Slots[l.ID]
		if slot == nil && !netdb.IsSlotUID(l.UID) && (l.Netns == "" || !k.isOurs(l.Netns)) {
			continue
		}
		v.Leases = append(v.Leases, l)
		if l.State == netdb.Releasing && !netdb.IsSlotUID(l.UID) {
			v.Unplug[l.ID] = k.holdsOnlyItsPort(l)
		}
	}
	// Pools last: what was given since counts as given.
	v.Pools, _ = k.cfg.Book.Usage()
	k.forgive(v.Pools)
	now := time.Now()
	for uid, r := range k.rests {
		v.Resting[uid] = r.until.After(now)
	}
	for uid := range k.vacated {
		v.Resting[uid] = true
	}
	return v
}

// begin does an action beside the loop; k.mu is held.
func (k *Keeper) begin(ctx context.Context, works *sync.WaitGroup, a Action) {
	switch a.Verb {
	case Make:
		id := newSlot()
		path := plumb.SlotPath(k.cfg.Book.Holding().RunnerUID, id)
		k.begun[a.Pool.UID]++
		k.making[a.Pool.UID]++
		k.work(works, path, func() {
			k.makeNew(ctx, a.Pool, netdb.NewSlot{ID: id, Netns: path, Profile: k.cfg.Profile(a.Pool.Bridge)})
			k.untry(a.Pool.UID)
		}, func() { k.making[a.Pool.UID]-- })
	case Finish:
		if r := k.rests[a.Lease.PoolUID]; r == nil || !r.until.After(time.Now()) {
			k.work(works, a.Netns, func() { k.make(ctx, a.Lease) }, nil)
		}
	case TakeDown:
		k.ends++
		k.work(works, a.Netns, func() { k.takeDown(ctx, a.Netns) }, func() { k.ends-- })
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

// gathers says that slots are being claimed, that no pool is in a hurry for others, and that no
// call waits for one to end.
func (k *Keeper) gathers() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.hurry) == 0 && len(k.giving) == 0 && len(k.vacated) == 0 && time.Since(k.claimed) < 10*gather
}

// pace notes which pools are in a hurry, and when a slot was claimed last; k.mu is held.
func (k *Keeper) pace(v View) {
	ready := make(map[string]int)
	for _, l := range v.Leases {
		switch s := v.Slots[l.ID]; {
		case s.Ready(l):
			ready[l.PoolUID]++
		case s != nil && s.Claimed && s.Rev > k.claims:
			k.claims, k.claimed = s.Rev, time.Now()
		}
	}
	for _, u := range v.Pools {
		switch n := ready[u.Pool.UID]; {
		case u.Pool.Warm == nil || n >= u.Pool.Warm.Size:
			delete(k.hurry, u.Pool.UID)
		case n < (u.Pool.Warm.Size+1)/2:
			k.hurry[u.Pool.UID] = true
		}
	}
}

// work does a piece on a namespace, and calls ended, which may be nil, with k.mu held; it is held
// now too.
func (k *Keeper) work(works *sync.WaitGroup, path string, do, ended func()) {
	k.works++
	k.busy[path] = true
	works.Go(func() {
		do()
		k.done(func() {
			k.works--
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
