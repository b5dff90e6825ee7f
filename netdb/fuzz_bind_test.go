package netdb_test

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ipamd/ipamd/ipam"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// FuzzBind binds, pauses, resumes and releases a lease at random revisions and holds
// what is recorded against a plain model (F7, F22): a bind adds, and takes away what
// it names as gone, and nothing else does; what was seen at another revision changes
// nothing; what changes nothing succeeds whatever was seen.
func FuzzBind(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(bindsAgainstAModel(f)))
}

// TestF22BindsAgainstAModel is [FuzzBind] with what chance gives it.
func TestF22BindsAgainstAModel(t *testing.T) {
	rapid.Check(t, bindsAgainstAModel(t))
}

// A use is what the model knows of how a lease is used.
type use struct {
	state       ipam.State
	containers  []ipam.Container
	netns, host string
}

func (u use) same(o use) bool {
	return u.state == o.state && slices.Equal(u.containers, o.containers) && u.netns == o.netns && u.host == o.host
}

// bind is what a binding makes of it.
func (u use) bind(n ipam.Binding) (use, error) {
	named := func(c ipam.Container) bool { return slices.Contains(n.Gone, c) }
	if len(n.Containers)+len(n.Gone) == 0 && n.Netns+n.HostInterface == "" || slices.ContainsFunc(n.Containers, named) ||
		max(len(n.Containers), len(n.Gone)) > ipam.MaxContainers {
		return u, ipam.ErrInvalid
	}
	var now []ipam.Container
	seen := make(map[ipam.Container]bool)
	for _, c := range append(slices.Clone(u.containers), n.Containers...) {
		if !seen[c] && !named(c) {
			now = append(now, c)
		}
		seen[c] = true
	}
	next := use{u.state, now, cmp.Or(n.Netns, u.netns), cmp.Or(n.HostInterface, u.host)}
	switch {
	case len(now) > ipam.MaxContainers, u.state == ipam.Reserved && len(now) == 0 && next.netns+next.host == "":
		return u, ipam.ErrInvalid
	case u.state == ipam.Reserved:
		next.state = ipam.Bound
	case !u.state.Open():
		return u, ipam.ErrState
	}
	return next, nil
}

// set is what Pause and Resume make of it.
func (u use) set(s ipam.State) (use, error) {
	if u.state != ipam.Bound && u.state != ipam.Paused {
		return u, ipam.ErrState
	}
	u.state = s
	return u, nil
}

// someContainers are a few of those that many bindings name, or so many that the
// bound matters.
func someContainers(t *rapid.T, what string) (out []ipam.Container) {
	from, n := rapid.IntRange(0, 7).Draw(t, what+" from"), rapid.IntRange(0, 3).Draw(t, what)
	if rapid.IntRange(0, 3).Draw(t, "many "+what) == 0 {
		n += rapid.IntRange(100, ipam.MaxContainers).Draw(t, "and")
	}
	for i := range n {
		out = append(out, ipam.Container{Namespace: "default", ID: fmt.Sprint("c", from+i)})
	}
	return out
}

func bindsAgainstAModel(t testing.TB) func(*rapid.T) {
	clock, opts := NewClock(), Options()
	opts.Now, opts.Synchronous = clock.Now, "normal" // no power is lost here
	b := OpenAt(t, filepath.Join(t.TempDir(), "book.db"), opts)
	Pool(t, b, "default", "10.8.64.0/20")
	return func(t *rapid.T) {
		clock.Pass(time.Hour) // what the one before had has cooled
		l, err := TryReserve(b, b.Pools()[0], fmt.Sprint("s", b.Rev()), Policy)
		if err != nil {
			t.Fatal(err)
		}
		revs := []int64{l.Rev}
		model := use{state: ipam.Reserved}
		asOf := func(t *rapid.T) int64 {
			return rapid.OneOf(rapid.Just(int64(0)), rapid.Just(l.Rev), rapid.SampledFrom(revs), rapid.Int64Range(-1, l.Rev+2)).Draw(t, "if_revision")
		}
		change := func(t *rapid.T, ifRev int64, do func(ifRev int64) (*ipam.Lease, error), next use, want error) {
			if want == nil && !next.same(model) {
				switch {
				case ifRev < 0:
					want = ipam.ErrInvalid
				case ifRev != 0 && ifRev != l.Rev:
					want = ipam.ErrStale
				}
			}
			before := b.Rev()
			_, err := do(ifRev)
			var stale *ipam.StaleError
			switch {
			case !errors.Is(err, want) || (err == nil) != (want == nil):
				t.Fatalf("at revision %d, as of %d: %v, want %v", l.Rev, ifRev, err, want)
			case errors.As(err, &stale) && (stale.Seen != ifRev || stale.Lease.Rev != l.Rev):
				t.Fatalf("at revision %d, as of %d: %v", l.Rev, ifRev, err)
			case err == nil && !next.same(model):
				model = next
				before++
				revs = append(revs, before)
			}
			if b.Rev() != before {
				t.Fatalf("the book is at revision %d, want %d", b.Rev(), before)
			}
			if l, err = b.Lease(l.ID); err != nil {
				t.Fatal(err)
			}
			got := use{l.State, l.Containers, l.Netns, l.HostInterface}
			if !got.same(model) || l.Rev != revs[len(revs)-1] {
				t.Fatalf("at revision %d it is %+v, want %+v at %d", l.Rev, got, model, revs[len(revs)-1])
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"bind": func(t *rapid.T) {
				n := ipam.Binding{Containers: someContainers(t, "containers"), Gone: someContainers(t, "gone")}
				if rapid.Bool().Draw(t, "disjoint") {
					n.Gone = slices.DeleteFunc(n.Gone, func(c ipam.Container) bool { return slices.Contains(n.Containers, c) })
				}
				n.Netns = rapid.SampledFrom([]string{"", "", "/run/netns/a", "/run/netns/b"}).Draw(t, "netns")
				n.HostInterface = rapid.SampledFrom([]string{"", "", "veth1", "veth2"}).Draw(t, "host interface")
				next, want := model.bind(n)
				change(t, asOf(t), func(rev int64) (*ipam.Lease, error) { return b.Bind(ctx, client, l.ID, rev, n) }, next, want)
			},
			"pause": func(t *rapid.T) {
				next, want := model.set(ipam.Paused)
				change(t, asOf(t), func(rev int64) (*ipam.Lease, error) { return b.Pause(ctx, client, l.ID, rev) }, next, want)
			},
			"resume": func(t *rapid.T) {
				next, want := model.set(ipam.Bound)
				change(t, asOf(t), func(rev int64) (*ipam.Lease, error) { return b.Resume(ctx, client, l.ID, rev) }, next, want)
			},
			"release": func(t *rapid.T) {
				if rapid.IntRange(0, 3).Draw(t, "not yet") > 0 {
					t.Skip("most sequences have more before their end")
				}
				next := model
				next.state = ipam.Releasing
				change(t, 0, func(int64) (*ipam.Lease, error) { return b.Release(ctx, client, l.ID, "", 0) }, next, nil)
			},
		})
		past, err := b.History(ctx, ipam.Query{LeaseID: l.ID})
		for i, c := range past {
			if c.Rev != revs[len(revs)-1-i] {
				t.Errorf("change %d of the history is of revision %d; made were %v", i, c.Rev, revs)
			}
		}
		if err != nil || len(past) != len(revs) {
			t.Errorf("%d changes in the history, %d were made: %v", len(past), len(revs), err)
		}
		if model.state.Open() {
			if l, err = b.Release(ctx, client, l.ID, "", 0); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := b.Confirm(ctx, watchdog, l.ID, l.Rev, nil); err != nil {
			t.Fatal(err)
		}
	}
}
