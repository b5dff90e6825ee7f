package rebuild

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/netdb/netdbtest"
	"github.com/ipamd/ipamd/reconciler"
)

// bare opens a book on a machine where every witness answers, nothing is seen, and the
// configuration names no pool.
func bare(_ context.Context, cfg config.Config) (*Parts, error) {
	b, err := netdb.Open(cfg.Book.Path, cfg.BookOptions())
	if err != nil {
		return nil, err
	}
	return &Parts{Book: b, Board: census.NewBoard(), Close: b.Close, Follow: nothing, Refresh: nothing,
		Pass: func(context.Context, reconciler.Book) (*reconciler.Report, error) { return &reconciler.Report{}, nil }}, nil
}

// A tenant is a sandbox that lives, whether a book knows it or not.
type tenant struct {
	name, id   string
	place      netip.Prefix
	hibernates bool
}

// A runner does random things to a book, and knows what is true.
type runner struct {
	*rand.Rand
	book *netdb.Book
	live []tenant
	sent map[string]int64 // the last generation of each pool's name
	log  []string
}

func (r *runner) say(format string, args ...any) { r.log = append(r.log, fmt.Sprintf(format, args...)) }

func (r *runner) steps(n int, name string) error {
	var err error
	for i := 0; i < n && err == nil; i++ {
		switch pools := r.book.Pools(); {
		case len(pools) == 0 || r.IntN(6) == 0:
			r.setPool()
		case r.IntN(12) == 0:
			p, force := pools[r.IntN(len(pools))], r.IntN(2) == 0
			_, refused := r.book.RemovePool(context.Background(), operator, p.UID, force)
			r.say("pool %s is removed, force %v: %v", p.Name, force, refused)
		case r.IntN(2) == 0:
			err = r.give(pools[r.IntN(len(pools))], fmt.Sprint(name, i))
		case r.IntN(3) == 0:
			err = r.rest(pools)
		case len(r.live) > 0:
			err = r.end(r.IntN(len(r.live)))
		}
	}
	return err
}

var operator = ipam.Who{Actor: ipam.ByOperator, Peer: "an operator", Reason: "asked", Note: "a test"}

func (r *runner) setPool() {
	name, bits := []string{"a", "b"}[r.IntN(2)], 25+r.IntN(4)
	prefix, _ := netip.AddrFrom4([4]byte{10, 8, 64, byte(r.IntN(128))}).Prefix(bits)
	spec := ipam.PoolSpec{Name: name, Prefix: prefix, Gateway: ipam.FirstHost(prefix), Bridge: "rt0", MTU: 1300 + r.IntN(3)}
	if out, err := r.book.SetPool(context.Background(), operator, netdb.PoolChange{Spec: spec, Drain: true}); err == nil {
		r.sent[name] = max(r.sent[name], out.Pool.Generation)
		r.say("pool %s is %s, generation %d", name, prefix, out.Pool.Generation)
	}
}

// give leases an address of a pool, or a prefix.
func (r *runner) give(p *ipam.Pool, name string) error {
	ctx := context.Background()
	pick := r.book.Pick
	if r.IntN(3) == 0 {
		bits := p.Prefix.Bits() + 1 + r.IntN(31-p.Prefix.Bits())
		pick = func(uid string, policy ipam.Policy) (netdb.Candidate, error) {
			return r.book.PickPrefix(uid, bits, policy)
		}
	}
	c, err := pick(p.UID, netdbtest.Policy)
	if err != nil || c.Pool == nil {
		return nil // it is full, or drains
	}
	got, err := r.book.Reserve(ctx, netdbtest.Who(ipam.ByAllocator, "allocated"), netdb.Reservation{Candidate: c, Sandbox: name, UID: name, Interface: "eth0", Attempt: 1, BindWithin: time.Minute})
	r.book.Drop(c)
	if err != nil {
		return nil
	}
	l, err := r.book.Bind(ctx, netdbtest.Who(ipam.ByClient, "bound"), got[0].ID, 0, ipam.Binding{HostInterface: "veth-" + name})
	if err != nil {
		return err
	}
	t := tenant{name: name, id: l.ID, place: l.Prefix(), hibernates: r.IntN(4) == 0}
	if t.hibernates {
		_, err = r.book.PauseAs(ctx, netdbtest.Who(ipam.ByClient, "paused"), l.ID, l.Rev, ipam.Sleep{Mode: ipam.Hibernate})
	}
	r.live = append(r.live, t)
	r.say("%s has %s of pool %s, hibernates %v", name, l.Text(), p.Name, t.hibernates)
	return err
}

// end ends a sandbox, and its lease where the book has it.
func (r *runner) end(i int) error {
	t := r.live[i]
	r.live = slices.Delete(r.live, i, i+1)
	r.say("%s ends", t.name)
	l, err := r.book.Lease(t.id)
	if err != nil || !l.State.Open() {
		return nil
	}
	rel, err := r.book.Release(context.Background(), netdbtest.Who(ipam.ByClient, "released"), l.ID, "", 0)
	if err == nil {
		_, err = r.book.Confirm(context.Background(), netdbtest.Who(ipam.ByWatchdog, "removal_confirmed"), rel.ID, rel.Rev, nil)
	}
	return err
}

// rest has what no workload lives with be cleared, and what cools be free.
func (r *runner) rest(pools []*ipam.Pool) error {
	ctx := context.Background()
	leases, _ := r.book.Leases()
	for _, l := range leases {
		lives := slices.ContainsFunc(r.live, func(t tenant) bool { return t.place.Overlaps(l.Prefix()) })
		if l.State != ipam.Quarantined || lives {
			continue
		}
		if _, err := r.book.ClearAt(ctx, netdbtest.Who(ipam.ByOperator, "cleared"), l.ID, l.Rev, nil); err != nil {
			return err
		}
		r.say("%s is cleared", l.Text())
	}
	for _, p := range pools {
		cooled := r.book.Cooled(p.UID, time.Nanosecond, nil, 3)
		if _, err := r.book.Free(ctx, netdbtest.Who(ipam.ByReconciler, "rested"), cooled, func(*ipam.Lease) error { return nil }); err != nil {
			return err
		}
	}
	return nil
}

// Random things happen to a book before a backup and after it, or after it to an empty book
// that was begun when the first was lost. Behind a restore the book is whole, no address of a
// sandbox that lives cools or is free, whichever book gave it, also after more such things,
// leases of the present book have their ids, and what was sent to a pool before stays old. The
// machine's witnesses see nothing.
func TestRestoreOfRandomBooks(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	end, runs := time.Now().Add(1500*time.Millisecond), 0
	for ; !t.Failed() && (runs == 0 || time.Now().Before(end)); runs++ {
		r := &runner{Rand: rand.New(rand.NewPCG(seed, uint64(runs))), sent: make(map[string]int64)}
		if err := r.restored(t.Context(), t.TempDir()); err != nil {
			t.Errorf("run %d: %v", runs, err)
			for _, line := range r.log {
				t.Log(line)
			}
		}
	}
	t.Log(runs, "restores")
}

func (r *runner) restored(ctx context.Context, dir string) (err error) {
	cfg := config.Default()
	cfg.Book.RunnerUID, cfg.Book.Synchronous = "one", "normal" // no power is lost here
	open := func(name string) (err error) {
		cfg.Book.Path = filepath.Join(dir, name)
		r.book, err = netdb.Open(cfg.Book.Path, cfg.BookOptions())
		return err
	}
	if err := open("book.db"); err != nil {
		return err
	}
	defer func() {
		if r.book != nil {
			err = errors.Join(err, r.book.Close())
		}
	}()
	if err := r.steps(30, "old"); err != nil {
		return err
	}
	file := filepath.Join(dir, "older.db")
	if _, err := r.book.Backup(ctx, file, false); err != nil {
		return err
	}
	var before []tenant
	if r.IntN(2) == 0 {
		r.say("the book is lost")
		before, r.live = r.live, nil
		if err := cmp.Or(r.book.Close(), open("new.db")); err != nil {
			return err
		}
	}
	r.say("behind the backup:")
	if err := r.steps(30, "new"); err != nil {
		return err
	}
	leased := make(map[string]bool) // by id
	for _, t := range r.live {
		l, err := r.book.Lease(t.id)
		leased[t.id] = err == nil && l.State.Open()
	}
	if err := r.book.Close(); err != nil {
		return err
	}
	k := TakeIn{Config: cfg, Open: bare, File: file, Confirm: true}
	report, err := k.Run(ctx)
	if err = cmp.Or(open(filepath.Base(cfg.Book.Path)), err); err != nil {
		return err
	}
	for _, o := range report.Became {
		r.say("%s %s %s %s %s: %s", o.Address, o.Sandbox, o.From, o.Was, o.Outcome, o.Why)
	}
	r.log = append(r.log, report.Unexplained...)
	if err := r.whole(ctx, slices.Concat(r.live, before)); err != nil {
		return err
	}
	for _, t := range r.live {
		if l, err := r.book.Lease(t.id); leased[t.id] && (err != nil || t.hibernates && l.State != ipam.Paused) {
			return fmt.Errorf("%s (hibernates: %v) had lease %s of %s; there is %+v, %w", t.name, t.hibernates, t.id, t.place, l, err)
		}
	}
	for name, sent := range r.sent {
		spec := ipam.PoolSpec{Name: name, Prefix: netip.MustParsePrefix("10.99.0.0/24"), Bridge: "rt0"}
		if sent == 1 {
			continue
		}
		if _, err := r.book.SetPool(ctx, operator, netdb.PoolChange{Spec: spec, Generation: sent - 1, Drain: true}); !errors.Is(err, ipam.ErrStaleGeneration) {
			return fmt.Errorf("pool %s was at generation %d, and of %d the answer is: %w", name, sent, sent-1, err)
		}
	}
	r.say("behind the restore:")
	all := slices.Concat(r.live, before)
	r.live = slices.DeleteFunc(slices.Clone(all), func(t tenant) bool { // the end of one of two would be that of both
		return slices.ContainsFunc(all, func(o tenant) bool { return o.id != t.id && o.place.Overlaps(t.place) })
	})
	return cmp.Or(r.steps(20, "later"), r.whole(ctx, r.live))
}

// whole refuses a book that is not whole, or could give an address of a sandbox that lives.
func (r *runner) whole(ctx context.Context, live []tenant) error {
	if found, err := r.book.Check(ctx); err != nil || len(found) > 0 {
		return fmt.Errorf("%v, %w", found, err)
	}
	for _, t := range live {
		for a := t.place.Addr(); t.place.Contains(a); a = a.Next() {
			l, there := r.book.At(a)
			w := r.book.Place(a).Withheld
			if (!there || l.State == ipam.Cooling) && (w == nil || w.State != ipam.Quarantined) {
				return fmt.Errorf("%s of %s, who lives, is %+v", a, t.name, l)
			}
		}
	}
	return nil
}
