package netdb_test

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
	"github.com/ipamd/ipamd/netdb/salvage"
)

// remove ends a pool as its preview says.
func remove(t *testing.T, b *netdb.Book, uid string, force bool) *ipam.PoolOutcome {
	t.Helper()
	preview, err := b.PreviewRemovePool(uid, force)
	if err != nil {
		t.Fatal(err)
	}
	who := operator
	who.Note = "the customer left"
	out, err := b.RemovePool(ctx, who, uid, force)
	if err != nil {
		t.Fatal(err)
	}
	if shown(preview) != shown(out) {
		t.Errorf("the preview says\n%s\nand it became\n%s", shown(preview), shown(out))
	}
	return out
}

// Scenario P2: a pool is removed and the same prefix made again: every row left with it,
// in one commit, the history stays, and .2 works the first time. What cooled goes on cooling
// for what is left of its time, in the new pool too, also behind a restart.
func TestARemovedPoolAndTheSamePrefixAgain(t *testing.T) {
	clock := NewClock()
	opts := Options()
	opts.Now = clock.Now
	path := filepath.Join(t.TempDir(), "book.db")
	b := OpenAt(t, path, opts)
	old := Pool(t, b, "default", "10.8.64.0/29")
	two := Cool(t, b, Reserve(t, b, "a"))
	clock.Pass(time.Hour)
	if n, err := b.Free(ctx, Who(ipam.ByReconciler, "rested"), b.Cooled(old.UID, Policy.Cooldown, nil, 9), func(*ipam.Lease) error { return nil }); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	three, four := Cool(t, b, Reserve(t, b, "b")), Cool(t, b, Reserve(t, b, "c"))
	clock.Pass(time.Minute)
	before := recorded(t, b)
	out := remove(t, b, old.UID, false)
	if leases, _ := b.Leases(); len(leases) > 0 || len(b.Pools()) > 0 || len(out.Effects) != 2 || out.Effects[0].Effect != ipam.LeaseEnds {
		t.Fatalf("%v are left, %s", leases, shown(out))
	}
	if after := recorded(t, b); after != before+2 { // a row for each that went
		t.Errorf("%d changes were %d", after, before)
	}
	for _, l := range []*ipam.Lease{two, three, four} {
		if _, err := b.Lease(l.ID); !errors.Is(err, ipam.ErrGone) {
			t.Errorf("%s: %v", l.Addr, err)
		}
	}
	if w := b.Withheld(); len(w) != 2 || w[0].LeaseID != three.ID || w[0].State != ipam.Cooling {
		t.Errorf("withheld: %+v", w)
	}
	if place := b.Place(three.Addr); place.Pool != nil || place.Usable || !strings.Contains(place.Note, "withheld") {
		t.Errorf("%+v", place)
	}
	Check(t, b)
	Close(t, b)
	b = OpenAt(t, path, opts)
	if _, err := b.RemovePool(ctx, operator, old.UID, false); !errors.Is(err, ipam.ErrNotFound) {
		t.Error(err)
	}

	made := set(t, b, netdb.PoolChange{Spec: spec("default", "10.8.64.0/29")}).Pool
	if made.UID == old.UID || len(b.Withheld()) > 0 {
		t.Fatalf("%+v, %v", made, b.Withheld())
	}
	if l := Reserve(t, b, "first"); l.Addr != two.Addr || l.PoolUID != made.UID {
		t.Fatalf("first is %+v", l)
	}
	for _, want := range []string{"10.8.64.5", "10.8.64.6"} { // never given
		if l := Reserve(t, b, want); l.Addr.String() != want {
			t.Fatalf("%s, want %s", l.Addr, want)
		}
	}
	strict := ipam.Policy{Cooldown: Policy.Cooldown, CooldownMin: Policy.CooldownMin, Strict: true}
	_, err := TryReserve(b, made, "too soon", strict)
	wantErr(t, err, ipam.ErrExhausted)
	clock.Pass(Policy.Cooldown - time.Minute) // since they were released, not since they were taken over
	if l, err := TryReserve(b, made, "rested", strict); err != nil || l.Addr != three.Addr {
		t.Fatal(l, err)
	}
}

// Scenario P3: a row of the old pool's uid is still there when a new pool brings the same
// address: an error names address, old uid and new uid, and nothing of it is taken in.
func TestARowOfAnOldPool(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.db")
	allow := []string{netdb.RowsAreReadable, netdb.FileIsWhole, netdb.RowsHaveTheirLast, netdb.HistoryIsAChain}
	b := OpenAt(t, path, Options(), allow...)
	old := Pool(t, b, "default", "10.8.64.0/24")
	l := Reserve(t, b, "a")
	Close(t, b)
	raw(t, path, `PRAGMA foreign_keys = 0; DELETE FROM pools`)
	b = OpenAt(t, path, Options(), allow...)
	for _, prefix := range []string{"10.8.64.0/24", "10.8.0.0/16", "10.8.64.2/32"} {
		c := netdb.PoolChange{Spec: spec("default", prefix), Drain: true}
		var e *ipam.OtherPoolsRowError
		if err := refused(t, b, c, ipam.ErrOverlap); !errors.As(err, &e) || e.Addr != l.Addr || e.OldUID != old.UID || e.NewUID == "" || e.NewUID == e.OldUID ||
			!strings.Contains(err.Error(), e.OldUID) || !strings.Contains(err.Error(), e.NewUID) || !strings.Contains(err.Error(), l.Addr.String()) {
			t.Errorf("%s: %v", prefix, err)
		}
	}
	beside := set(t, b, netdb.PoolChange{Spec: spec("default", "10.8.65.0/24")}).Pool
	if next, err := TryReserve(b, beside, "b", Policy); err != nil || next.PoolUID != beside.UID {
		t.Error(next, err)
	}
	if leases, _ := b.Leases(); len(leases) != 1 {
		t.Errorf("%v", leases)
	}
}

// Scenario P4: a pool with open leases is not removed, and the answer lists them; forced,
// they are quarantined and never free: a pool of the same prefix has them quarantined
// from its first moment.
func TestAForcedRemovalFreesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.db")
	b := OpenAt(t, path, Options())
	old := Pool(t, b, "default", "10.8.64.0/28")
	other := Pool(t, b, "second", "10.9.0.0/24")
	bystander, err := TryReserve(b, other, "bystander", Policy)
	if err != nil {
		t.Fatal(err)
	}
	reserved, bound, paused, leaving := Reserve(t, b, "reserved"), bind(t, b, "bound"), bind(t, b, "paused"), bind(t, b, "leaving")
	if paused, err = b.Pause(ctx, client, paused.ID, 0); err != nil {
		t.Fatal(err)
	}
	if leaving, err = b.Release(ctx, client, leaving.ID, "", 0); err != nil {
		t.Fatal(err)
	}
	who := operator
	who.Note = "kept for a printer"
	hold, err := b.Hold(ctx, who, addr("10.8.64.10"), nil)
	if err != nil {
		t.Fatal(err)
	}
	cooling := Cool(t, b, Reserve(t, b, "cooling"))

	rev := b.Rev()
	_, err = b.RemovePool(ctx, operator, old.UID, false)
	var e *ipam.PoolNotEmptyError
	if !errors.As(err, &e) || !errors.Is(err, ipam.ErrPoolNotEmpty) || len(e.Effects) != 4 || b.Rev() != rev {
		t.Fatalf("%v", err)
	}
	for i, l := range []*ipam.Lease{reserved, bound, paused, leaving} {
		if e.Effects[i].Lease.ID != l.ID {
			t.Errorf("%+v, want %s", e.Effects[i], l.Addr)
		}
	}
	var fe *ipam.FieldError
	if _, err := b.RemovePool(ctx, operator, old.UID, true); !errors.As(err, &fe) { // without a reason
		t.Error(err)
	}

	out := remove(t, b, old.UID, true)
	withheld := make(map[netip.Addr]ipam.State)
	for _, w := range b.Withheld() {
		withheld[w.Addr] = w.State
	}
	want := map[netip.Addr]ipam.State{reserved.Addr: ipam.Quarantined, bound.Addr: ipam.Quarantined, paused.Addr: ipam.Quarantined,
		leaving.Addr: ipam.Quarantined, hold.Addr: ipam.Quarantined, cooling.Addr: ipam.Cooling}
	if fmt.Sprint(withheld) != fmt.Sprint(want) || len(out.Effects) != len(want) {
		t.Fatalf("withheld: %v\n%s", withheld, shown(out))
	}
	if l, err := b.Lease(bystander.ID); err != nil || l.Rev != bystander.Rev {
		t.Errorf("%+v, %v", l, err)
	}
	// The sandbox's own release finds that it has ended.
	if l, err := b.Release(ctx, client, bound.ID, "", 0); err == nil && l.State != ipam.Free {
		t.Errorf("%+v", l)
	}
	Check(t, b)
	Close(t, b)
	b = OpenAt(t, path, Options())

	// A rebuild has them, too.
	salvaged, err := salvage.Book(path)
	if err != nil || len(salvaged.Problems) > 0 || len(salvaged.Leases) != len(want)+1 {
		t.Fatalf("%+v, %v", salvaged, err)
	}
	for _, l := range salvaged.Leases {
		if state, withheld := want[l.Addr]; withheld && l.State != state {
			t.Errorf("salvaged: %+v", l)
		}
	}

	// The gateway of a new one cannot be on an address that may be in use.
	onIt := spec("again", "10.8.64.0/24")
	onIt.Gateway = bound.Addr
	refused(t, b, netdb.PoolChange{Spec: onIt}, ipam.ErrOverlap)
	// A pool that only touches the range takes over what it contains.
	part := set(t, b, netdb.PoolChange{Spec: spec("part", "10.8.64.8/29")}).Pool
	if l, ok := b.At(hold.Addr); !ok || l.State != ipam.Quarantined || l.Hold != "kept for a printer" || l.PoolUID != part.UID || len(b.Withheld()) != 5 {
		t.Fatalf("%+v, %v", l, b.Withheld())
	}
	made := set(t, b, netdb.PoolChange{Spec: spec("again", "10.8.64.0/29")}).Pool
	for a, state := range want {
		if l, ok := b.At(a); !ok || l.State != state || len(l.Evidence) == 0 {
			t.Errorf("%s: %+v", a, l)
		}
	}
	c, err := b.Pick(made.UID, Policy)
	if err == nil {
		t.Errorf("%s is given", c.Addr)
	}
	for range 3 { // all that is left: .9, .11 and so on are the other pool's
		if l, err := TryReserve(b, part, "x", Policy); err == nil && want[l.Addr] != "" {
			t.Errorf("%s is given", l.Addr)
		}
	}
}

// bind gives a sandbox the first pool's next address, bound.
func bind(t *testing.T, b *netdb.Book, sandbox string) *ipam.Lease {
	t.Helper()
	l, err := b.Bind(ctx, client, Reserve(t, b, sandbox).ID, 0, ipam.Binding{HostInterface: "veth-" + sandbox})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Scenario P5: what ends cooldowns and clears quarantines names rows, and so pools by their
// uid: what was planned on a removed pool's rows touches none of the pool that has the
// same addresses now.
func TestASweepOfARemovedPool(t *testing.T) {
	clock := NewClock()
	opts := Options()
	opts.Now = clock.Now
	b := OpenAt(t, filepath.Join(t.TempDir(), "book.db"), opts)
	old := Pool(t, b, "default", "10.8.64.0/29")
	Cool(t, b, Reserve(t, b, "a"))
	quarantined, err := b.Quarantine(ctx, Who(ipam.ByReconciler, ipam.SeenOnWire), addr("10.8.64.6"), []byte(`[{"witness":"probe"}]`))
	if err != nil {
		t.Fatal(err)
	}
	clock.Pass(Policy.Cooldown)
	planned := b.Cooled(old.UID, Policy.Cooldown, nil, 9)
	if len(planned) != 1 {
		t.Fatal(planned)
	}
	remove(t, b, old.UID, false)
	set(t, b, netdb.PoolChange{Spec: spec("default", "10.8.64.0/29")})
	before, rev := b.Leases()
	if len(before) != 2 {
		t.Fatal(before)
	}
	if n, err := b.Free(ctx, Who(ipam.ByReconciler, "rested"), planned, func(*ipam.Lease) error { return nil }); err != nil || n != 0 {
		t.Errorf("%d freed, %v", n, err)
	}
	if l, err := b.ClearAt(ctx, Who(ipam.ByReconciler, "unseen"), quarantined.ID, quarantined.Rev, nil); !errors.Is(err, ipam.ErrGone) {
		t.Errorf("%+v, %v", l, err)
	}
	if left := b.Cooled(old.UID, Policy.Cooldown, nil, 9); left != nil {
		t.Errorf("%v", left)
	}
	if after, now := b.Leases(); now != rev || fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("%v became %v", before, after)
	}
}
