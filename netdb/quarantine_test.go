package netdb_test

import (
	"encoding/json"
	"errors"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/ipam"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// A quarantine's share is of what the pool can give, never less than one
// address, and has an end where the pool has none.
func TestQuarantineCap(t *testing.T) {
	opts := Options()
	opts.QuarantineShare = 1
	b := OpenAt(t, filepath.Join(t.TempDir(), "book.db"), opts)
	want := map[string]int{"10.8.64.0/24": 253, "10.8.65.2/32": 1, "fd00:8::/120": 254, "fd00:8:0:1::/64": 1 << 16, "fd00:8:1::/48": 1 << 16}
	for prefix := range want {
		Pool(t, b, strings.NewReplacer(":", "-", "/", "-").Replace("p"+prefix), prefix)
	}
	usage, _ := b.Usage()
	for _, u := range usage {
		if got := u.QuarantineCap; got != want[u.Pool.Prefix.String()] {
			t.Errorf("of %s %d may be quarantined, want %d", u.Pool.Prefix, got, want[u.Pool.Prefix.String()])
		}
	}
}

// Quarantine takes what is not held, keeps its evidence, never a held
// address, and no more than its share of the pool.
func TestQuarantine(t *testing.T) {
	b := Open(t)
	seen := Who(ipam.ByAllocator, "seen_on_wire")
	held := Reserve(t, b, "a")
	_, err := b.Quarantine(ctx, seen, held.Addr, evidence)
	wantErr(t, err, ipam.ErrState)
	_, err = b.Quarantine(ctx, seen, netip.MustParseAddr("10.8.64.1"), evidence)
	wantErr(t, err, ipam.ErrNotInPool)
	_, err = b.Quarantine(ctx, seen, netip.MustParseAddr("10.8.64.9"), nil)
	wantErr(t, err, ipam.ErrInvalid)
	a := netip.MustParseAddr("10.8.64.9")
	for range 63 {
		q, err := b.Quarantine(ctx, seen, a, evidence)
		if err != nil || q.State != ipam.Quarantined || string(q.Evidence) != string(evidence) {
			t.Fatal(q, err)
		}
		a = a.Next()
	}
	_, err = b.Quarantine(ctx, seen, a, evidence)
	wantErr(t, err, ipam.ErrQuarantineFull)
	if again, err := b.Quarantine(ctx, seen, a.Prev(), evidence); err != nil || again.Addr != a.Prev() {
		t.Fatal(again, err)
	}
	if _, err := b.Quarantine(ctx, Who(ipam.ByOperator, "by hand"), a, evidence); err != nil {
		t.Fatal(err)
	}
	cleared, err := Clear(b, a)
	if err != nil || cleared.State != ipam.Cooling {
		t.Fatal(cleared, err)
	}
	_, err = Clear(b, a)
	wantErr(t, err, ipam.ErrState)
}

// A quarantine says why, or there is none.
func TestNoQuarantineWithoutEvidence(t *testing.T) {
	b := Open(t)
	l := inState(t, b, ipam.Releasing)
	for _, nothing := range []string{"", "seen", "[]", "null", `{"witness":"netns"}`, `"netns"`} {
		_, err := b.QuarantineReleasing(ctx, watchdog, l.ID, l.Rev, json.RawMessage(nothing))
		wantErr(t, err, ipam.ErrInvalid)
		_, err = b.Quarantine(ctx, operator, two.Next().Next(), json.RawMessage(nothing))
		wantErr(t, err, ipam.ErrInvalid)
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
	q := inState(t, b, ipam.Quarantined)
	if q.Sandbox != "a" || q.HostInterface != "veth1" {
		t.Fatalf("it forgot whose it was: %+v", q)
	}
	// The share of the pool, one address of one, is used up by it, and does
	// not count against it; nor does a late release move it.
	if r, err := b.Release(ctx, client, q.ID, "", 0); err != nil || r != q {
		t.Errorf("released once more: %+v, %v", r, err)
	}
	_, err := TryReserve(b, p, "a", Policy)
	wantErr(t, err, ipam.ErrExhausted)
	cool, err := b.ClearAt(ctx, reconciler, q.ID, q.Rev, nil)
	if err != nil || cool.State != ipam.Cooling || cool.ID != q.ID {
		t.Fatal(cool, err)
	}
	_, err = TryReserve(b, p, "b", Policy)
	wantErr(t, err, ipam.ErrExhausted)
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
		if !errors.Is(err, ipam.ErrGone) {
			t.Errorf("%s by the id that ended: %v", name, err)
		}
	}
	if now, _ := b.At(q.Addr); now != next {
		t.Errorf("the next owner's lease is %+v", now)
	}
}

// Withholding ignores the quarantine's share of the pool: it was not going to
// get the address anyway.
func TestSetAsideBeyondTheShare(t *testing.T) {
	b := OpenAt(t, t.TempDir()+"/book.db", Options())
	Pool(t, b, "default", "10.8.64.0/29")
	if _, err := b.Quarantine(ctx, reconciler, two.Next().Next(), evidence); err != nil {
		t.Fatal(err)
	}
	_, err := b.Quarantine(ctx, reconciler, two.Next(), evidence)
	wantErr(t, err, ipam.ErrQuarantineFull)
	inState(t, b, ipam.Quarantined)
}

// P7: a quarantine that was decided on a row is of that row, or of none when
// there was none.
func TestQuarantineAt(t *testing.T) {
	b := Open(t)
	a := two.Next().Next()
	_, err := b.QuarantineAt(ctx, reconciler, a, 1, evidence)
	wantErr(t, err, ipam.ErrStale)
	q, err := b.QuarantineAt(ctx, reconciler, a, 0, evidence)
	if err != nil || q.State != ipam.Quarantined {
		t.Fatal(q, err)
	}
	_, err = b.QuarantineAt(ctx, reconciler, a, 0, evidence)
	wantErr(t, err, ipam.ErrStale)
	c, err := Clear(b, a)
	if err != nil {
		t.Fatal(err)
	}
	for _, rev := range []int64{0, q.Rev, c.Rev + 1} {
		_, err = b.QuarantineAt(ctx, reconciler, a, rev, evidence)
		wantErr(t, err, ipam.ErrStale)
	}
	if b.Rev() != c.Rev {
		t.Error("something was written")
	}
	if q, err = b.QuarantineAt(ctx, reconciler, a, c.Rev, evidence); err != nil || q.State != ipam.Quarantined {
		t.Fatal(q, err)
	}
}
