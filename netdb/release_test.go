package netdb_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// inState brings a new lease of sandbox "a" into a state by the verbs that
// lead there.
func inState(t *testing.T, b *netdb.Book, s ipam.State) *ipam.Lease {
	t.Helper()
	l := Reserve(t, b, "a")
	step := func(next *ipam.Lease, err error) *ipam.Lease {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return next
	}
	if s != ipam.Reserved {
		l = step(b.Bind(ctx, client, l.ID, 0, ipam.Binding{Containers: []ipam.Container{{Namespace: "default", ID: "c1"}}, HostInterface: "veth1"}))
	}
	if s == ipam.Paused {
		return step(b.Pause(ctx, client, l.ID, 0))
	}
	if s == ipam.Releasing || s == ipam.Cooling || s == ipam.Quarantined {
		l = step(b.Release(ctx, client, l.ID, "", 0))
	}
	switch s {
	case ipam.Cooling:
		l = step(b.Confirm(ctx, watchdog, l.ID, l.Rev, nil))
	case ipam.Quarantined:
		l = step(b.QuarantineReleasing(ctx, watchdog, l.ID, l.Rev, evidence))
	}
	return l
}

// Each verb that acts on a lease as it was seen: from which states, by whom,
// and where to. Whatever is not here is refused and changes nothing, and so is
// an older revision, a lease that is gone, and a witness that objects.
func TestVerbsAtARevision(t *testing.T) {
	type verb func(b *netdb.Book, who ipam.Who, id string, rev int64, unseen func() error) (*ipam.Lease, error)
	for name, tt := range map[string]struct {
		do   verb
		from []ipam.State
		by   []ipam.Actor
		to   ipam.State
		asks bool
	}{
		"ReleaseAt": {func(b *netdb.Book, who ipam.Who, id string, rev int64, unseen func() error) (*ipam.Lease, error) {
			return b.ReleaseAt(ctx, who, id, rev, unseen)
		}, []ipam.State{ipam.Reserved, ipam.Bound, ipam.Paused},
			[]ipam.Actor{ipam.ByClient, ipam.ByWatchdog, ipam.ByReconciler, ipam.ByOperator}, ipam.Releasing, true},
		"Confirm": {func(b *netdb.Book, who ipam.Who, id string, rev int64, unseen func() error) (*ipam.Lease, error) {
			return b.Confirm(ctx, who, id, rev, unseen)
		}, []ipam.State{ipam.Releasing}, []ipam.Actor{ipam.ByWatchdog}, ipam.Cooling, true},
		"Expire": {func(b *netdb.Book, who ipam.Who, id string, rev int64, unseen func() error) (*ipam.Lease, error) {
			return b.Expire(ctx, who, id, rev, unseen)
		}, []ipam.State{ipam.Reserved}, []ipam.Actor{ipam.ByWatchdog}, ipam.Free, true},
		"QuarantineReleasing": {func(b *netdb.Book, who ipam.Who, id string, rev int64, _ func() error) (*ipam.Lease, error) {
			return b.QuarantineReleasing(ctx, who, id, rev, evidence)
		}, []ipam.State{ipam.Releasing}, []ipam.Actor{ipam.ByWatchdog, ipam.ByOperator}, ipam.Quarantined, false},
		"ClearAt": {func(b *netdb.Book, who ipam.Who, id string, rev int64, unseen func() error) (*ipam.Lease, error) {
			return b.ClearAt(ctx, who, id, rev, unseen)
		}, []ipam.State{ipam.Quarantined}, []ipam.Actor{ipam.ByReconciler, ipam.ByOperator}, ipam.Cooling, true},
	} {
		for _, from := range ipam.States() {
			t.Run(name+" from "+string(from), func(t *testing.T) {
				b := Open(t)
				l := inState(t, b, from)
				legal := func(a ipam.Actor) bool { return slices.Contains(tt.from, from) && slices.Contains(tt.by, a) }
				objects := errors.New("the netns witness sees it")
				asked := 0
				refuse := func(err error, want error) {
					t.Helper()
					wantErr(t, err, want)
					if now, ok := b.At(l.Addr); !ok || now != l || b.Rev() != l.Rev {
						t.Fatalf("a refusal left %+v, was %+v", now, l)
					}
				}
				for _, a := range ipam.Actors() {
					who := Who(a, "test")
					_, err := tt.do(b, who, l.ID, l.Rev-1, nil)
					refuse(err, ipam.ErrStale)
					_, err = tt.do(b, who, l.ID, l.Rev+1, nil)
					refuse(err, ipam.ErrStale)
					_, err = tt.do(b, who, foreignID, l.Rev, nil)
					refuse(err, ipam.ErrNotFound)
					if !legal(a) {
						_, err = tt.do(b, who, l.ID, l.Rev, nil)
						refuse(err, ipam.ErrState)
					} else if tt.asks {
						_, err = tt.do(b, who, l.ID, l.Rev, func() error { asked++; return objects })
						refuse(err, objects)
					}
				}
				for _, a := range ipam.Actors() {
					if !legal(a) {
						continue
					}
					now, err := tt.do(b, Who(a, "test"), l.ID, l.Rev, func() error { asked++; return nil })
					if err != nil || now.State != tt.to || now.ID != l.ID || now.Sandbox != "a" || now.Rev != l.Rev+1 || now.Reason != "test" {
						t.Fatalf("%+v, %v", now, err)
					}
					if tt.asks && asked == 0 {
						t.Error("the witnesses were not consulted")
					}
					last, err := b.History(ctx, ipam.Query{LeaseID: l.ID, Limit: 1})
					if err != nil || last[0].From != from || last[0].To != tt.to || last[0].Who.Actor != a {
						t.Errorf("the history says %+v, %v", last, err)
					}
					if tt.to == ipam.Quarantined && (string(now.Evidence) != string(evidence) || string(last[0].Evidence) != string(evidence)) {
						t.Errorf("the evidence is %s, recorded %s", now.Evidence, last[0].Evidence)
					}
					break
				}
			})
		}
	}
}

func second(_ *ipam.Lease, err error) error { return err }

// L3: a release of a lease that is already gone succeeds, changes nothing and
// does not restart the cooldown.
func TestL3ReleaseAgainDoesNotRestartTheCooldown(t *testing.T) {
	c := NewClock()
	b, p := openWith(t, c, "10.8.64.0/30")
	l := Reserve(t, b, "a")
	Cool(t, b, l)
	c.Pass(20 * time.Minute)
	rev := b.Rev()
	again, err := b.Release(ctx, client, l.ID, "a", 0)
	if err != nil || again.State != ipam.Cooling || b.Rev() != rev {
		t.Fatalf("released again: %+v, %v, revision %d after %d", again, err, b.Rev(), rev)
	}
	c.Pass(10 * time.Minute)
	next, err := TryReserve(b, p, "b", ipam.Policy{Cooldown: 30 * time.Minute, CooldownMin: time.Minute, Strict: true})
	if err != nil || next.Addr != l.Addr {
		t.Fatalf("after the first cooldown: %v, %v", next, err)
	}
	// An unbound lease that expired left no row at all; the same holds.
	gone, err := b.Expire(ctx, watchdog, next.ID, next.Rev, func() error { return nil })
	if err != nil || gone.State != ipam.Free {
		t.Fatal(gone, err)
	}
	if l, err := b.Release(ctx, client, next.ID, "", 0); err != nil || l.State != ipam.Free {
		t.Fatalf("release of an expired lease: %+v, %v", l, err)
	}
	if _, err := b.Release(ctx, client, "0190e0e0-0000-7000-8000-000000000000", "", 0); !errors.Is(err, ipam.ErrNotFound) {
		t.Fatalf("release of a lease that never was: %v", err)
	}
}

// L4: A owned an address, released it, B owns it. A's late release is refused
// and leaves B alone; so do all of A's late verbs.
func TestL4LateReleaseLeavesTheNextOwnerAlone(t *testing.T) {
	c := NewClock()
	b, p := openWith(t, c, "10.8.64.0/30")
	a := Reserve(t, b, "a")
	Cool(t, b, a)
	c.Pass(31 * time.Minute)
	next, err := TryReserve(b, p, "b", Policy)
	if err != nil || next.Addr != a.Addr {
		t.Fatal(next, err)
	}
	_, err = b.Release(ctx, client, a.ID, "", 0)
	wantErr(t, err, ipam.ErrGone)
	_, err = b.Bind(ctx, client, a.ID, 0, ipam.Binding{Netns: "/run/netns/a"})
	wantErr(t, err, ipam.ErrGone)
	_, err = b.Pause(ctx, client, a.ID, 0)
	wantErr(t, err, ipam.ErrGone)
	_, err = b.Confirm(ctx, watchdog, a.ID, a.Rev, nil)
	wantErr(t, err, ipam.ErrGone)
	_, err = b.Lease(a.ID)
	wantErr(t, err, ipam.ErrGone)
	if l, ok := b.At(a.Addr); !ok || l.ID != next.ID || l.State != ipam.Reserved {
		t.Fatalf("B's lease is %+v", l)
	}
}
