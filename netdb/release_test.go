package netdb_test

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// inState brings a new lease of sandbox "a" into a state by the verbs that
// lead there.
func inState(t *testing.T, b *netdb.Book, s netdb.State) *netdb.Lease {
	t.Helper()
	l := Reserve(t, b, "a")
	step := func(next *netdb.Lease, err error) *netdb.Lease {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return next
	}
	if s != netdb.Reserved {
		l = step(b.Bind(ctx, client, l.ID, 0, netdb.Binding{Containers: []netdb.Container{{Namespace: "default", ID: "c1"}}, HostInterface: "veth1"}))
	}
	if s == netdb.Paused {
		return step(b.Pause(ctx, client, l.ID, 0))
	}
	if s == netdb.Releasing || s == netdb.Cooling || s == netdb.Quarantined {
		l = step(b.Release(ctx, client, l.ID, "", 0))
	}
	switch s {
	case netdb.Cooling:
		l = step(b.Confirm(ctx, watchdog, l.ID, l.Rev, nil))
	case netdb.Quarantined:
		l = step(b.Withhold(ctx, watchdog, l.ID, l.Rev, evidence))
	}
	return l
}

// Each verb that acts on a lease as it was seen: from which states, by whom,
// and where to. Whatever is not here is refused and changes nothing, and so is
// an older revision, a lease that is gone, and a witness that objects.
func TestVerbsAtARevision(t *testing.T) {
	type verb func(b *netdb.Book, who netdb.Who, id string, rev int64, unseen func() error) (*netdb.Lease, error)
	for name, tt := range map[string]struct {
		do   verb
		from []netdb.State
		by   []netdb.Actor
		to   netdb.State
		asks bool
	}{
		"ReleaseAt": {func(b *netdb.Book, who netdb.Who, id string, rev int64, unseen func() error) (*netdb.Lease, error) {
			return b.ReleaseAt(ctx, who, id, rev, unseen)
		}, []netdb.State{netdb.Reserved, netdb.Bound, netdb.Paused},
			[]netdb.Actor{netdb.ByClient, netdb.ByWatchdog, netdb.ByReconciler, netdb.ByOperator}, netdb.Releasing, true},
		"Confirm": {func(b *netdb.Book, who netdb.Who, id string, rev int64, unseen func() error) (*netdb.Lease, error) {
			return b.Confirm(ctx, who, id, rev, unseen)
		}, []netdb.State{netdb.Releasing}, []netdb.Actor{netdb.ByWatchdog}, netdb.Cooling, true},
		"Expire": {func(b *netdb.Book, who netdb.Who, id string, rev int64, unseen func() error) (*netdb.Lease, error) {
			return b.Expire(ctx, who, id, rev, unseen)
		}, []netdb.State{netdb.Reserved}, []netdb.Actor{netdb.ByWatchdog}, netdb.Free, true},
		"Withhold": {func(b *netdb.Book, who netdb.Who, id string, rev int64, _ func() error) (*netdb.Lease, error) {
			return b.Withhold(ctx, who, id, rev, evidence)
		}, []netdb.State{netdb.Releasing}, []netdb.Actor{netdb.ByWatchdog, netdb.ByOperator}, netdb.Quarantined, false},
		"ClearAt": {func(b *netdb.Book, who netdb.Who, id string, rev int64, unseen func() error) (*netdb.Lease, error) {
			return b.ClearAt(ctx, who, id, rev, unseen)
		}, []netdb.State{netdb.Quarantined}, []netdb.Actor{netdb.ByReconciler, netdb.ByOperator}, netdb.Cooling, true},
	} {
		for _, from := range netdb.States() {
			t.Run(name+" from "+string(from), func(t *testing.T) {
				b := Open(t)
				l := inState(t, b, from)
				legal := func(a netdb.Actor) bool { return slices.Contains(tt.from, from) && slices.Contains(tt.by, a) }
				objects := errors.New("the netns witness sees it")
				asked := 0
				refuse := func(err error, want error) {
					t.Helper()
					wantErr(t, err, want)
					if now, ok := b.At(l.Addr); !ok || now != l || b.Rev() != l.Rev {
						t.Fatalf("a refusal left %+v, was %+v", now, l)
					}
				}
				for _, a := range netdb.Actors() {
					who := Who(a, "test")
					_, err := tt.do(b, who, l.ID, l.Rev-1, nil)
					refuse(err, netdb.ErrStale)
					_, err = tt.do(b, who, l.ID, l.Rev+1, nil)
					refuse(err, netdb.ErrStale)
					_, err = tt.do(b, who, nobodys, l.Rev, nil)
					refuse(err, netdb.ErrNotFound)
					if !legal(a) {
						_, err = tt.do(b, who, l.ID, l.Rev, nil)
						refuse(err, netdb.ErrState)
					} else if tt.asks {
						_, err = tt.do(b, who, l.ID, l.Rev, func() error { asked++; return objects })
						refuse(err, objects)
					}
				}
				for _, a := range netdb.Actors() {
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
					last, err := b.History(ctx, netdb.Query{LeaseID: l.ID, Limit: 1})
					if err != nil || last[0].From != from || last[0].To != tt.to || last[0].Who.Actor != a {
						t.Errorf("the history says %+v, %v", last, err)
					}
					if tt.to == netdb.Quarantined && (string(now.Evidence) != string(evidence) || string(last[0].Evidence) != string(evidence)) {
						t.Errorf("the evidence is %s, recorded %s", now.Evidence, last[0].Evidence)
					}
					break
				}
			})
		}
	}
}

// A quarantine says why, or there is none.
func TestNoQuarantineWithoutEvidence(t *testing.T) {
	b := Open(t)
	l := inState(t, b, netdb.Releasing)
	for _, nothing := range []string{"", "seen", "[]", "null", `{"witness":"netns"}`, `"netns"`} {
		_, err := b.Withhold(ctx, watchdog, l.ID, l.Rev, json.RawMessage(nothing))
		wantErr(t, err, netdb.ErrInvalid)
		_, err = b.Quarantine(ctx, operator, two.Next().Next(), json.RawMessage(nothing))
		wantErr(t, err, netdb.ErrInvalid)
	}
	if b.Rev() != l.Rev {
		t.Error("something was written")
	}
}

// A lease that is withheld keeps its sandbox and its id. Once cleared it
// cools for its own sandbox alone, like any other, and the id ends with it.
func TestSetAsideAndCleared(t *testing.T) {
	c := NewClock()
	b, p := openWith(t, c, "10.8.64.0/30")
	q := inState(t, b, netdb.Quarantined)
	if q.Sandbox != "a" || q.HostInterface != "veth1" {
		t.Fatalf("it forgot whose it was: %+v", q)
	}
	// The share of the pool, one address of one, is used up by it, and does
	// not count against it; nor does a late release move it.
	if r, err := b.Release(ctx, client, q.ID, "", 0); err != nil || r != q {
		t.Errorf("released once more: %+v, %v", r, err)
	}
	_, err := TryReserve(b, p, "a", Policy)
	wantErr(t, err, netdb.ErrExhausted)
	cool, err := b.ClearAt(ctx, reconciler, q.ID, q.Rev, nil)
	if err != nil || cool.State != netdb.Cooling || cool.ID != q.ID {
		t.Fatal(cool, err)
	}
	_, err = TryReserve(b, p, "b", Policy)
	wantErr(t, err, netdb.ErrExhausted)
	own, ok := b.PickOwn(cool.Owner(), 0)
	if !ok {
		t.Fatal("its own sandbox is not offered it")
	}
	b.Drop(own)
	c.Pass(Policy.Cooldown)
	next, err := TryReserve(b, p, "b", Policy)
	if err != nil || next.Addr != q.Addr || next.ID == q.ID {
		t.Fatal(next, err)
	}
	for name, err := range map[string]error{
		"release": second(b.Release(ctx, client, q.ID, "", 0)),
		"confirm": second(b.Confirm(ctx, watchdog, q.ID, q.Rev, nil)),
		"look up": second(b.Lease(q.ID)),
	} {
		if !errors.Is(err, netdb.ErrGone) {
			t.Errorf("%s by the id that ended: %v", name, err)
		}
	}
	if now, _ := b.At(q.Addr); now != next {
		t.Errorf("the next owner's lease is %+v", now)
	}
}

func second(_ *netdb.Lease, err error) error { return err }

// Withholding ignores the quarantine's share of the pool: nobody was going to
// get the address anyway.
func TestSetAsideBeyondTheShare(t *testing.T) {
	b := OpenAt(t, t.TempDir()+"/book.db", Options())
	Pool(t, b, "default", "10.8.64.0/29")
	if _, err := b.Quarantine(ctx, reconciler, two.Next().Next(), evidence); err != nil {
		t.Fatal(err)
	}
	_, err := b.Quarantine(ctx, reconciler, two.Next(), evidence)
	wantErr(t, err, netdb.ErrQuarantineFull)
	inState(t, b, netdb.Quarantined)
}

// P7: a quarantine that was decided on a row is of that row, or of none when
// there was none.
func TestQuarantineAt(t *testing.T) {
	b := Open(t)
	a := two.Next().Next()
	_, err := b.QuarantineAt(ctx, reconciler, a, 1, evidence)
	wantErr(t, err, netdb.ErrStale)
	q, err := b.QuarantineAt(ctx, reconciler, a, 0, evidence)
	if err != nil || q.State != netdb.Quarantined {
		t.Fatal(q, err)
	}
	_, err = b.QuarantineAt(ctx, reconciler, a, 0, evidence)
	wantErr(t, err, netdb.ErrStale)
	c, err := Clear(b, a)
	if err != nil {
		t.Fatal(err)
	}
	for _, rev := range []int64{0, q.Rev, c.Rev + 1} {
		_, err = b.QuarantineAt(ctx, reconciler, a, rev, evidence)
		wantErr(t, err, netdb.ErrStale)
	}
	if b.Rev() != c.Rev {
		t.Error("something was written")
	}
	if q, err = b.QuarantineAt(ctx, reconciler, a, c.Rev, evidence); err != nil || q.State != netdb.Quarantined {
		t.Fatal(q, err)
	}
}
