package netdb_test

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// FuzzChanges follows the changes of a book whose history is pruned by count and by
// age (F5): what comes is every change, in order, or the answer that some are gone,
// with the revision to go on behind; never a gap, and never more is called gone than
// may be.
func FuzzChanges(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(changesAreFollowed(f)))
}

// TestF5FollowersOfAPrunedHistory is [FuzzChanges] with what chance gives it.
func TestF5FollowersOfAPrunedHistory(t *testing.T) {
	realtest.Long(t)
	t.Parallel()
	rapid.Check(t, changesAreFollowed(t))
}

// A made change is what the model knows of one.
type made struct {
	subject ipam.Subject
	lease   string
	to      ipam.State
	at      time.Duration // by the uptime
}

func changesAreFollowed(tb testing.TB) func(*rapid.T) {
	dir, n := tb.TempDir(), 0
	return func(t *rapid.T) {
		n++
		clock, opts := NewClock(), Options()
		opts.Now, opts.Synchronous = clock.Now, "normal" // no power is lost here
		opts.KeepChanges, opts.KeepFor = rapid.IntRange(1, 40).Draw(t, "kept"), 6*time.Hour
		path := filepath.Join(dir, fmt.Sprint(n), "book.db")
		b, err := netdb.Open(path, opts)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { b.Close() }()
		prefix := netip.MustParsePrefix("10.8.64.0/24")
		pool, err := b.EnsurePool(ctx, Who(ipam.ByOperator, "test"), ipam.PoolSpec{
			Name: "default", Prefix: prefix, Gateway: ipam.FirstHost(prefix), Bridge: "rt0"})
		if err != nil {
			t.Fatal(err)
		}
		first, born := b.Rev(), clock.Boottime
		var all []made // behind first
		var open []*ipam.Lease
		note := func(m made) {
			m.at = clock.Boottime
			if all = append(all, m); b.Rev() != first+int64(len(all)) {
				t.Fatalf("the book is at revision %d behind %d changes", b.Rev(), len(all))
			}
		}
		// old is the last revision that may be gone.
		old := func() (rev int64) {
			rev = max(0, b.Rev()-int64(opts.KeepChanges))
			for ; rev+1 < b.Rev(); rev++ {
				at := born
				if rev >= first {
					at = all[rev-first].at
				}
				if clock.Boottime-at < opts.KeepFor {
					break
				}
			}
			return rev
		}
		// ask returns the revision to go on behind.
		ask := func(t *rapid.T, since int64, limit int) int64 {
			now := b.Rev()
			got, err := b.Changes(ctx, since, limit)
			var gone *ipam.PrunedError
			switch {
			case errors.As(err, &gone):
				if gone.Since != since || gone.Upto <= since || gone.Upto > old() {
					t.Fatalf("behind %d, at %d, where %d may be gone: %v", since, now, old(), err)
				}
				if got, err := b.Changes(ctx, gone.Upto, 1); err != nil || len(got) != 1 || got[0].Rev != gone.Upto+1 {
					t.Fatalf("behind %d are gone; behind that: %+v, %v", gone.Upto, got, err)
				}
				return gone.Upto
			case err != nil:
				t.Fatal(err)
			case int64(len(got)) != max(0, min(now-since, int64(limit))):
				t.Fatalf("behind %d, at %d, come %d of up to %d", since, now, len(got), limit)
			}
			for i, c := range got {
				if c.Rev != since+int64(i)+1 {
					t.Fatalf("behind %d, %d further: revision %d", since, i, c.Rev)
				}
				if c.Rev <= first {
					continue // the pool's and the book's
				}
				if want := all[c.Rev-first-1]; c.Subject != want.subject || c.LeaseID != want.lease || c.To != want.to {
					t.Fatalf("revision %d is %+v, and was made as %+v", c.Rev, c, want)
				}
			}
			return since + int64(len(got))
		}
		followers := make([]int64, 3)
		limit := rapid.IntRange(1, 20)
		t.Repeat(map[string]func(*rapid.T){
			"leases come and go": func(t *rapid.T) {
				for range rapid.IntRange(1, 20).Draw(t, "changes") {
					if len(open) < 100 && rapid.Bool().Draw(t, "comes") {
						l, err := TryReserve(b, pool, fmt.Sprint("s", b.Rev()), Policy)
						if err != nil {
							t.Fatal(err)
						}
						open = append(open, l)
						note(made{subject: ipam.OfLease, lease: l.ID, to: ipam.Reserved})
					} else if len(open) > 0 {
						l := open[0]
						if _, err := b.Expire(ctx, watchdog, l.ID, l.Rev, nil); err != nil {
							t.Fatal(err)
						}
						open = open[1:]
						note(made{subject: ipam.OfLease, lease: l.ID, to: ipam.Free})
					}
				}
			},
			"an attempt is cancelled": func(t *rapid.T) {
				if _, err := b.Cancel(ctx, client, fmt.Sprint("never", b.Rev()), 1); err != nil {
					t.Fatal(err)
				}
				note(made{subject: ipam.OfAttempt, to: ipam.Cancelled})
			},
			"time passes": func(t *rapid.T) {
				clock.Pass(time.Duration(rapid.IntRange(1, 200).Draw(t, "minutes")) * time.Minute)
				b.Now()
			},
			"a look at the old end": func(t *rapid.T) {
				left, err := netdb.Prune(ctx, b)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := b.Changes(ctx, 0, 1); !left && old() > 0 && !errors.Is(err, ipam.ErrPruned) {
					t.Fatalf("what is too old, up to %d, stays: %v", old(), err)
				}
			},
			"a follower goes on": func(t *rapid.T) {
				f := rapid.IntRange(0, len(followers)-1).Draw(t, "follower")
				followers[f] = ask(t, followers[f], limit.Draw(t, "limit"))
			},
			"anybody asks": func(t *rapid.T) {
				ask(t, rapid.Int64Range(0, b.Rev()+1).Draw(t, "since"), limit.Draw(t, "limit"))
			},
			"restart": func(t *rapid.T) {
				if rapid.IntRange(0, 5).Draw(t, "not now") > 0 {
					t.Skip("it takes long")
				}
				if err := b.Close(); err != nil {
					t.Fatal(err)
				}
				if b, err = netdb.Open(path, opts); err != nil {
					t.Fatal(err)
				}
			},
		})
	}
}
