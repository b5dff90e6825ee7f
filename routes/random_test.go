package routes

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
)

// An owner puts sandboxes on runners, each time by a higher attempt, or as the next incarnation,
// whose attempts count from 1.
type owner struct {
	mu    sync.Mutex
	of    map[string]placement
	lease int // of the latest one
}

type placement struct {
	life    int
	attempt int64
	runner  *runner
}

func (p placement) uid() string { return fmt.Sprint("uid", p.life) }

// next is the id of another lease. Locked.
func (o *owner) next() string {
	o.lease++
	return fmt.Sprintf("%09d", o.lease)
}

// A runner is a book and what follows it: one stream, and peers that push.
type runner struct {
	name   string
	owner  *owner
	table  *Table
	clock  atomic.Int64
	lists  sync.RWMutex // held for writing by a restore: lists are taken in as they were asked for
	mu     sync.Mutex
	epoch  int
	leases map[netip.Addr]Route
	truly  map[string]placement // with attempts, which a restore may lose
	past   [][]Route            // by epoch; the last is the present one

	known   sync.Mutex
	of      string               // the epoch of highest
	highest map[netip.Addr]int64 // revisions that the table has taken in
}

// took takes in that the table was given a revision of an address, and reports whether it had
// a later one.
func (r *runner) took(epoch string, c *Route) (old bool) {
	r.known.Lock()
	defer r.known.Unlock()
	if r.of != epoch {
		r.of, r.highest = epoch, make(map[netip.Addr]int64)
	}
	old = c.Revision < r.highest[c.Addr]
	r.highest[c.Addr] = max(c.Revision, r.highest[c.Addr])
	return old
}

// guard checks each step that the joined tables take by this one.
func (r *runner) guard(t *testing.T, f *Federated) {
	look := r.table.notify
	r.table.notify = func(sandbox string, has []Route) {
		look(sandbox, has)
		for i := range has {
			if r.took(r.table.epoch, &has[i]) {
				t.Errorf("%s resolves to %s by revision %d, which is old", sandbox, has[i].Addr, has[i].Revision)
			}
		}
		if twice := f.twice(); twice != "" {
			t.Error(twice)
		}
	}
}

func (r *runner) epochOf(i int) string { return fmt.Sprint(r.name, "-", i) }

// commit appends a change. Locked.
func (r *runner) commit(c Route) {
	h := &r.past[r.epoch]
	c.Revision = int64(len(*h) + 1)
	*h = append(*h, c)
	delete(r.leases, c.Addr)
	if Kept(c.State) {
		r.leases[c.Addr] = c
	}
}

// end ends what the runner has of a sandbox. Locked.
func (r *runner) end(sandbox string) {
	for _, l := range r.leases {
		if l.Sandbox == sandbox {
			l.State = api.Cooling
			r.commit(l)
		}
	}
	delete(r.truly, sandbox)
}

// change makes one: a sandbox ends, is frozen, or is put here.
func (r *runner) change(rng *rand.Rand) {
	sandbox := fmt.Sprint("s", rng.IntN(12))
	r.owner.mu.Lock()
	defer r.owner.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch rng.IntN(4) {
	case 0:
		r.end(sandbox)
	case 1:
		for _, l := range r.leases {
			if l.Sandbox == sandbox {
				l.State = []api.State{api.Bound, api.Paused}[rng.IntN(2)]
				r.commit(l)
				return
			}
		}
	default:
		addr := netip.AddrFrom4([4]byte{10, r.name[0], 0, byte(rng.IntN(16))})
		if l, taken := r.leases[addr]; taken {
			r.end(l.Sandbox)
		}
		r.end(sandbox)
		p := r.owner.of[sandbox]
		if p.runner = r; rng.IntN(4) == 0 {
			p.life, p.attempt = p.life+1, 0
		}
		p.attempt++
		r.owner.of[sandbox], r.truly[sandbox] = p, p
		c := placed(sandbox, addr.String(), p.attempt, api.Reserved, 0)
		c.UID, c.Lease = p.uid(), r.owner.next()
		r.commit(c)
		c.State = api.Bound
		r.commit(c)
	}
}

// restore begins another epoch: leases stay, of attempts that are lower. Where the owner has put the
// sandbox nowhere else since, its lease may have another id, as in a book that was rebuilt.
func (r *runner) restore(rng *rand.Rand) {
	r.lists.Lock()
	defer r.lists.Unlock()
	r.owner.mu.Lock()
	defer r.owner.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.epoch++
	r.past = append(r.past, nil)
	for _, l := range r.leases {
		l.Attempt = 1 + rng.Int64N(l.Attempt)
		if r.truly[l.Sandbox] == r.owner.of[l.Sandbox] && rng.IntN(2) == 0 {
			l.Lease = r.owner.next()
		}
		r.commit(l)
	}
}

// list is what the daemon answers.
func (r *runner) list() List {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := List{Epoch: r.epochOf(r.epoch), Revision: int64(len(r.past[r.epoch]))}
	for _, lease := range r.leases {
		l.Routes = append(l.Routes, lease)
	}
	return l
}

// relist takes in a list, which is on its way for a moment.
func (r *runner) relist(t *testing.T) {
	r.lists.RLock()
	defer r.lists.RUnlock()
	l := r.list()
	time.Sleep(rand.N(100 * time.Microsecond))
	if err := r.table.Replace(l); err != nil && !errors.Is(err, ErrOldList) {
		t.Error(err)
	}
}

// follow brings one step of the stream, and reports whether there is no more.
func (r *runner) follow(t *testing.T, honest bool) (done bool) {
	s := r.table.Status()
	r.mu.Lock()
	epoch, history := r.epochOf(r.epoch), r.past[r.epoch]
	r.mu.Unlock()
	var err error
	switch {
	case s.Epoch != epoch:
		err = ErrList
	case s.Revision < int64(len(history)):
		err = r.table.Apply(epoch, history[s.Revision])
	default:
		done = s.Ahead == 0
		err = r.table.Bookmark(epoch, s.Revision)
	}
	if err != nil {
		r.mu.Lock()
		restored := epoch != r.epochOf(r.epoch) // meanwhile, and a list has given the table its epoch
		r.mu.Unlock()
		if honest && s.Epoch == epoch && !restored {
			t.Errorf("what is true is doubted: %+v", s)
		}
		r.relist(t)
		return false
	}
	return done
}

// push brings what peers may bring, at any time: what is true, of this epoch or a past one,
// what is of an epoch that is not, and seldom what is not true.
func (r *runner) push(t *testing.T, rng *rand.Rand, honest bool) {
	r.mu.Lock()
	epoch := r.epoch
	if rng.IntN(3) == 0 {
		epoch = rng.IntN(epoch + 1)
	}
	history := r.past[epoch]
	r.mu.Unlock()
	if len(history) == 0 {
		return
	}
	name, c := r.epochOf(epoch), history[max(rng.IntN(len(history)), len(history)-1-rng.IntN(30))]
	switch n := rng.IntN(40); {
	case n == 0:
		name = fmt.Sprint("unknown", rng.IntN(1000))
	case n == 1 && !honest:
		c.State, c.Revision = api.Cooling, 1<<40+rng.Int64N(1000)
	case n == 2 && !honest:
		c.State, c.Revision = api.Cooling, int64(len(history)+1+rng.IntN(20)) // another's change, as it turns out
	}
	if newer, err := r.table.Push(name, c); err != nil {
		t.Error(err)
	} else if newer && honest {
		r.lists.RLock() // of this epoch, or there was a restore: then it is gone
		if name == r.epochOf(r.epoch) {
			r.took(name, &c)
		}
		r.lists.RUnlock()
	}
}

// twice is an address of a runner that resolves for two sandboxes, if there is one.
func (f *Federated) twice() string {
	f.mu.RLock()
	defer f.mu.RUnlock()
	of := make(map[string]string)
	for sandbox, is := range f.by {
		for _, c := range is.claims {
			at := c.Runner + " " + c.Addr.String()
			if other, has := of[at]; has && other != sandbox {
				return fmt.Sprintf("%s and %s have %s", other, sandbox, at)
			}
			of[at] = sandbox
		}
	}
	return ""
}

// T2, T5, T7: books of several runners change, are restored and lose attempts, while each
// table is written by its stream, by lists and by peers that are early, late, of other epochs
// and wrong. No address has two sandboxes meanwhile; and once the streams are through, each
// table is as its book, and each sandbox where its owner put it last.
func TestRacingWritersOverRestores(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	own := &owner{of: make(map[string]placement)}
	var f Federated
	var runners []*runner
	for _, name := range []string{"a", "b", "c"} {
		r := &runner{name: name, owner: own, table: &Table{}, leases: make(map[netip.Addr]Route), truly: make(map[string]placement), past: make([][]Route, 1)}
		r.table.Now = func() time.Time { return time.Unix(0, r.clock.Add(int64(time.Millisecond))) }
		runners = append(runners, r)
		f.Join(name, r.table)
		r.guard(t, &f)
	}
	checked := 0
	for phase := range uint64(24) {
		var cut *runner // does not follow in this phase
		if phase%8 == 4 {
			cut = runners[phase/8]
		}
		restores, honest := phase%2 == 1, phase%6 < 4
		var stop atomic.Bool
		var writers, others sync.WaitGroup
		for i, r := range runners {
			rngs := make([]*rand.Rand, 2)
			for w := range rngs {
				rngs[w] = rand.New(rand.NewPCG(seed, phase<<16|uint64(i)<<8|uint64(w)))
			}
			writers.Go(func() {
				if restores {
					time.Sleep(time.Millisecond)
					r.restore(rngs[0])
					time.Sleep(5 * time.Millisecond)
					return
				}
				for range 60 {
					r.change(rngs[0])
					time.Sleep(10 * time.Microsecond)
				}
			})
			if r == cut {
				continue
			}
			for _, step := range []func(){
				func() { r.follow(t, honest) },
				func() { r.push(t, rngs[1], honest) },
				func() { r.relist(t) },
			} {
				others.Go(func() {
					for !stop.Load() {
						step()
						time.Sleep(rand.N(200 * time.Microsecond))
					}
				})
			}
		}
		writers.Wait()
		stop.Store(true)
		others.Wait()
		for _, r := range runners {
			if r == cut {
				continue
			}
			for steps := 0; !r.follow(t, honest); steps++ {
				if !honest {
					r.clock.Add(int64(doubtAfter / 10))
				}
				if steps > 10_000 {
					t.Fatalf("%s does not come to an end: %+v", r.name, r.table.Status())
				}
			}
			want := listed(t, 0)
			if err := want.Replace(r.list()); err != nil {
				t.Fatal(err)
			}
			if got, want := r.table.Status().String(), want.Status().String(); got != want {
				t.Errorf("%s is\n%s, and should be\n%s", r.name, got, want)
			}
		}
		for sandbox, p := range own.of {
			want, of := "", f.by[sandbox]
			known := of != nil && of.lives[0].uid == p.uid() && of.lives[0].attempt == p.attempt
			for _, l := range p.runner.leases {
				if l.Sandbox == sandbox && p.runner.truly[sandbox] == p {
					want = p.runner.name + " " + l.Addr.String()
					known = known || l.UID == p.uid() && l.Attempt == p.attempt
				}
			}
			if known && p.runner != cut { // an attempt that began and was lost unseen is not
				where(t, &f, sandbox, want)
				checked++
			}
		}
		if t.Failed() {
			t.Fatalf("phase %d", phase)
		}
	}
	if checked < 100 {
		t.Errorf("where a sandbox is was known %d times", checked)
	}
}
