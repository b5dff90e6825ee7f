package netdb_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// A panic reaches the caller whose request it was, no matter which one happened to
// commit; neighbours in the batch are answered and the book goes on.
func TestAPanicIsItsCallersOwn(t *testing.T) {
	b := OpenAt(t, filepath.Join(t.TempDir(), "book.db"), Options())
	p := Pool(t, b, "default", "10.8.64.0/24")
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			bad := i%4 == 0
			name := string(rune('a' + i))
			c, err := b.Pick(p.UID, Policy)
			if err != nil {
				t.Error(err)
				return
			}
			defer b.Drop(c)
			defer func() {
				reply, _ := recover().(string)
				if bad != strings.Contains(reply, "witness of "+name) {
					t.Errorf("%s: panic %.80q", name, reply)
				}
			}()
			r := netdb.Reservation{Candidate: c, Sandbox: name, UID: name, Interface: "eth0", Attempt: 1, BindWithin: time.Minute}
			if bad {
				r.Unseen = func() error { panic("witness of " + name) }
			}
			if _, err := b.Reserve(ctx, allocator, r); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	wg.Wait()
	if u, _ := b.Usage(); u[0].ByState[ipam.Reserved] != 12 {
		t.Errorf("usage %+v", u[0])
	}
}

// A lock holder walks away when its caller does, and the next one in the
// line takes over.
func TestTheWriterLockIsHandedOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.db")
	b := OpenAt(t, path, Options())
	p := Pool(t, b, "default", "10.8.64.0/24")
	unlock := lockOut(t, path)
	reserve := func(ctx context.Context, name string) error {
		c, err := b.Pick(p.UID, Policy)
		if err != nil {
			return err
		}
		defer b.Drop(c)
		_, err = b.Reserve(ctx, allocator, netdb.Reservation{Candidate: c, Sandbox: name, UID: name, Interface: "eth0", Attempt: 1, BindWithin: time.Minute})
		return err
	}
	// The hasty come first, so that one of them holds the lock.
	hasty, goAway := context.WithCancel(ctx)
	var left, done sync.WaitGroup
	for range 8 {
		left.Go(func() {
			if err := reserve(hasty, "hasty"); !errors.Is(err, context.Canceled) {
				t.Errorf("a locked book answered a request with %v", err)
			}
		})
	}
	realtest.Eventually(t, wait, "one of eight hasty callers to hold the lock", func() bool {
		return b.Committing() && b.Waiting() == 8
	})
	patient := make([]error, 8)
	for i := range patient {
		done.Go(func() { patient[i] = reserve(ctx, "patient-"+string(rune('a'+i))) })
	}
	realtest.Eventually(t, wait, "eight patient callers", func() bool { return b.Waiting() == 16 })
	goAway()
	left.Wait()
	unlock()
	done.Wait()
	for i, err := range patient {
		if err != nil {
			t.Errorf("patient caller %d: %v", i, err)
		}
	}
}

// lockOut takes the book's write lock from another connection, as another
// process would, and returns what gives it back.
func lockOut(t *testing.T, path string) (unlock func()) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	conn, err := db.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := conn.ExecContext(ctx, `BEGIN IMMEDIATE`); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if _, err := conn.ExecContext(ctx, `ROLLBACK`); err != nil {
			t.Error(err)
		}
	}
}

// Who waits for some states is woken by a commit that touches one of them, and by no
// other; who waits for any commit, by each.
func TestACommitWakesWhoWaitsForIt(t *testing.T) {
	b := Open(t)
	var l *ipam.Lease
	for _, step := range []struct {
		name  string
		do    func()
		wakes string // of b(ound), r(eleasing), f(ree)
	}{
		{"allocate", func() { l = Reserve(t, b, "a") }, "f"},
		{"bind", func() { l, _ = b.Bind(ctx, client, l.ID, 0, ipam.Binding{Netns: "/a"}) }, "b"},
		{"bind again, which commits nothing", func() { l, _ = b.Bind(ctx, client, l.ID, 0, ipam.Binding{Netns: "/a"}) }, "-"},
		{"release", func() { l, _ = b.Release(ctx, client, l.ID, "", 0) }, "br"},
		{"confirm", func() { l, _ = b.Confirm(ctx, watchdog, l.ID, l.Rev, nil) }, "r"},
		{"a pool", func() { Pool(t, b, "other", "10.8.65.0/24") }, ""},
	} {
		waiting := map[byte]<-chan struct{}{'b': b.Touched(ipam.Bound), 'r': b.Touched(ipam.Releasing), 'f': b.Touched(ipam.Free), '*': b.Changed()}
		step.do()
		want := map[byte]bool{'*': step.wakes != "-"}
		for _, s := range []byte(step.wakes) {
			want[s] = true
		}
		for s, ch := range waiting {
			select {
			case <-ch:
				if !want[s] {
					t.Errorf("%s wakes who waits for %c", step.name, s)
				}
			default:
				if want[s] {
					t.Errorf("%s does not wake who waits for %c", step.name, s)
				}
			}
		}
	}
	select {
	case <-b.Touched(ipam.Bound, ipam.Paused):
		t.Error("woken before any commit")
	default:
	}
}

// A commit's cost is the pages that it writes into the log: one for each B-tree that
// it changes, and a share of what splits. Every verb keeps to its bound, in a pool
// that fills up and in one that gives back what it was given.
func TestPagesPerCommit(t *testing.T) {
	const leases = 200 // below what folds the log
	b := OpenAt(t, t.TempDir()+"/book.db", Options())
	p := Pool(t, b, "default", "10.8.64.0/20")
	reserve := func(i int) *ipam.Lease {
		c, err := b.Pick(p.UID, Policy)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Drop(c)
		ls, err := b.Reserve(ctx, ipam.Who{Actor: ipam.ByAllocator, Peer: "uid=0 pid=4242 (runner)", Reason: "allocated"}, netdb.Reservation{
			Candidate: c, Sandbox: fmt.Sprintf("sandbox-%08d", i), UID: fmt.Sprintf("sandbox-%08d-incarnation", i), Interface: "eth0", Attempt: 1,
			BindWithin: 10 * time.Minute, Labels: map[string]string{"runtime": "runc", "tenant": "a-tenant-of-this-runner"}})
		if err != nil {
			t.Fatal(err)
		}
		return ls[0]
	}
	held := make([]*ipam.Lease, leases)
	bind := func(i int) (*ipam.Lease, error) {
		return b.Bind(ctx, client, held[i].ID, 0, ipam.Binding{
			Containers: []ipam.Container{{Namespace: "default", ID: fmt.Sprintf("container-%08d", i)}}, Netns: fmt.Sprintf("/run/netns/sandbox-%08d", i),
			HostInterface: fmt.Sprintf("veth%08d", i), MAC: fmt.Sprintf("02:00:00:00:%02x:%02x", i/256, i%256)})
	}
	for _, verb := range []struct {
		name string
		most float64 // pages a commit, on average
		do   func(i int) (*ipam.Lease, error)
	}{
		{"allocate", 4, func(i int) (*ipam.Lease, error) { return reserve(i), nil }},
		{"bind", 3, bind},
		{"bind again", 0, bind},
		{"release", 3, func(i int) (*ipam.Lease, error) { return b.Release(ctx, client, held[i].ID, "", 0) }},
		{"confirm", 4, func(i int) (*ipam.Lease, error) {
			return b.Confirm(ctx, watchdog, held[i].ID, held[i].Rev, nil)
		}},
		{"allocate once more", 4, func(i int) (*ipam.Lease, error) { return reserve(leases + i), nil }},
		{"expire", 6, func(i int) (*ipam.Lease, error) {
			return b.Expire(ctx, watchdog, held[i].ID, held[i].Rev, nil)
		}},
	} {
		written := 0
		for i := range leases {
			before, err := netdb.LogPages(ctx, b)
			if err != nil {
				t.Fatal(err)
			}
			if held[i], err = verb.do(i); err != nil {
				t.Fatal(verb.name, err)
			}
			after, err := netdb.LogPages(ctx, b)
			if err != nil {
				t.Fatal(err)
			}
			if after < before { // it has begun anew
				before = 0
			}
			written += after - before
		}
		mean := float64(written) / leases
		t.Logf("%s: %.2f pages a commit", verb.name, mean)
		if mean > verb.most {
			t.Errorf("%s writes %.2f pages a commit, more than %v", verb.name, mean, verb.most)
		}
	}
}

// Who reads a changed pool finds closed the channel that it took before, each time: by that channel calls know
// that a bridge has yet to follow.
func TestAChangeIsAnnouncedBeforeItIsRead(t *testing.T) {
	t.Parallel()
	b := Open(t)
	spec := ipam.PoolSpec{Name: "default", Prefix: netip.MustParsePrefix("10.8.64.0/24"), Bridge: "rt0"}
	generation := func() int64 {
		if all := b.Pools(); len(all) > 0 {
			return all[0].Generation
		}
		return 0
	}
	var over atomic.Bool
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for !over.Load() {
				changed, was := b.PoolsChanged(), generation()
				for generation() == was && !over.Load() {
				}
				select {
				case <-changed:
				default:
					if !over.Load() {
						t.Error("a pool has changed, and the channel from before is open")
						over.Store(true)
					}
				}
			}
		})
	}
	for i := 0; i < 1000 && !over.Load(); i++ {
		spec.Gateway = netip.AddrFrom4([4]byte{10, 8, 64, byte(1 + i%200)})
		if _, err := b.EnsurePool(t.Context(), Who(ipam.ByOperator, "pool_changed"), spec); err != nil {
			t.Fatal(err)
		}
	}
	over.Store(true)
	readers.Wait()
}
