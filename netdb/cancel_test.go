package netdb_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// P7, F10: an attempt that is cancelled is a change with its actor, reason and
// time, in the commit of its tombstone, and one that stands already is none. It
// is found by its uid.
func TestF10ACancelIsAChange(t *testing.T) {
	c := NewClock()
	b, p := openWith(t, c, "10.8.64.0/24")
	who := Who(ipam.ByClient, "attempt_cancelled")
	cancel := func(attempt, changes int64) {
		t.Helper()
		rev := b.Rev()
		if _, err := b.Cancel(ctx, who, "u", attempt); err != nil {
			t.Fatal(err)
		}
		if got := b.Rev() - rev; got != changes {
			t.Errorf("cancelling attempt %d made %d changes, want %d", attempt, got, changes)
		}
	}
	cancel(2, 1)
	cancel(2, 0)
	cancel(1, 0)
	l, err := b.Pick(p.UID, Policy)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Reserve(ctx, allocator, netdb.Reservation{Candidate: l, Sandbox: "s", UID: "u", Interface: "eth0", Attempt: 3, BindWithin: 1}); err != nil {
		t.Fatal(err)
	}
	cancel(2, 0)
	cancel(3, 2) // its lease is released
	c.Pass(Options().Tombstone)
	cancel(3, 1) // it stood no longer
	past, err := b.History(ctx, ipam.Query{Sandbox: "u"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, ch := range past {
		got = append(got, fmt.Sprintf("%s %d %s>%s", ch.Subject, ch.Attempt, ch.From, ch.To))
		if ch.UID != "u" || ch.Who.Reason == "" || ch.At.IsZero() || ch.Subject == ipam.OfAttempt && (ch.Who != who || ch.Addr.IsValid()) {
			t.Errorf("%+v", ch)
		}
	}
	want := "[attempt 3 free>cancelled lease 3 reserved>releasing attempt 3 free>cancelled lease 3 free>reserved attempt 2 free>cancelled]"
	if fmt.Sprint(got) != want {
		t.Errorf("the history is %v, want %s", got, want)
	}
}

// F10: cancels, and nothing else, leave no more behind than what stands and what
// the history keeps.
func TestF10CancelsAlonePrune(t *testing.T) {
	c, path := NewClock(), filepath.Join(t.TempDir(), "book.db")
	opts := Options()
	opts.Now, opts.KeepChanges = c.Now, 100
	b := OpenAt(t, path, opts)
	for i := range 1200 {
		if _, err := b.Cancel(ctx, client, fmt.Sprint("u", i), 1); err != nil {
			t.Fatal(err)
		}
		c.Pass(opts.Tombstone / 100) // a hundred stand
	}
	for when := range 2 {
		past, err := b.History(ctx, ipam.Query{Limit: 10_000})
		if err != nil || len(past) > 100+128 {
			t.Errorf("%d changes are kept of 100, %v", len(past), err)
		}
		if n := netdb.Tombstones(b); n < 100 || n > 100+128 {
			t.Errorf("%d tombstones are left of 100", n)
		}
		for i, want := range map[int]bool{0: false, 1000: false, 1101: true, 1199: true} {
			if got := b.Cancelled(fmt.Sprint("u", i), 1); got != want {
				t.Errorf("the cancel %d stands: %v, want %v", i, got, want)
			}
		}
		if when == 0 {
			Close(t, b)
			b = OpenAt(t, path, opts)
		}
	}
}

// G12: a caller that cancels without end fills its room and no more; what was
// acknowledged stands for its time, a uid that has its tombstone already is not
// refused, and once the oldest have ended others have room, on a quiet book, too.
func TestG12TombstonesAreBounded(t *testing.T) {
	const most = 50
	c, path := NewClock(), filepath.Join(t.TempDir(), "book.db")
	opts := netdb.FewTombstones(Options(), most)
	opts.Now = c.Now
	b := OpenAt(t, path, opts)
	cancel := func(uid string, attempt int64, want error) {
		t.Helper()
		if _, err := b.Cancel(ctx, client, uid, attempt); !errors.Is(err, want) {
			t.Errorf("cancelling %s, attempt %d: %v, want %v", uid, attempt, err, want)
		}
	}
	for i := range most {
		cancel(fmt.Sprint("u", i), 1, nil)
		c.Pass(time.Second)
	}
	for when := range 2 {
		rev := b.Rev()
		for i := range 300 {
			cancel(fmt.Sprint("flood", i), 1, ipam.ErrTombstones)
		}
		if n := netdb.Tombstones(b); n != most || b.Rev() != rev {
			t.Errorf("%d tombstones, and %d changes of what was refused", n, b.Rev()-rev)
		}
		cancel("u0", int64(when)+2, nil)
		if !b.Cancelled("u1", 1) || b.Cancelled("flood0", 1) {
			t.Error("an acknowledged tombstone has gone, or a refused one stands")
		}
		if when == 0 {
			Close(t, b)
			b = OpenAt(t, path, opts)
		}
	}
	c.Pass(opts.Tombstone - (most-2)*time.Second + time.Second)
	cancel("later", 1, nil) // the oldest has ended, and nothing else has changed
	if !b.Cancelled("later", 1) {
		t.Error("it does not stand")
	}
}

// G12: where no tombstone has room, a cancel releases what is open all the same, once,
// and is refused; the attempt is not, and what was acknowledged stands.
func TestG12FullTombstonesDoNotKeepLeases(t *testing.T) {
	c := NewClock()
	opts := netdb.FewTombstones(Options(), 1)
	opts.Now = c.Now
	b := OpenAt(t, filepath.Join(t.TempDir(), "book.db"), opts)
	Pool(t, b, "default", "10.8.64.0/24")
	l := Reserve(t, b, "a")
	if _, err := b.Bind(ctx, client, l.ID, 0, ipam.Binding{MAC: "02:00:00:00:00:01"}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Cancel(ctx, client, "full", 1); err != nil {
		t.Fatal(err)
	}
	for when, open := range []int{1, 0} {
		rev := b.Rev()
		let, err := b.Cancel(ctx, client, l.UID, l.Attempt)
		if !errors.Is(err, ipam.ErrTombstones) || len(let) != open || b.Rev() != rev+int64(open) {
			t.Errorf("cancel %d: %v, %v, %d changes", when, let, err, b.Rev()-rev)
		}
		if now, err := b.Lease(l.ID); err != nil || now.State != ipam.Releasing {
			t.Errorf("after cancel %d: %+v, %v", when, now, err)
		}
	}
	if b.Cancelled(l.UID, l.Attempt) || !b.Cancelled("full", 1) {
		t.Error("a refused tombstone stands, or an acknowledged one has gone")
	}
	c.Pass(opts.Tombstone)
	if let, err := b.Cancel(ctx, client, l.UID, l.Attempt); err != nil || len(let) != 0 || !b.Cancelled(l.UID, l.Attempt) {
		t.Errorf("once there is room: %v, %v", let, err)
	}
}

// L5: a cancel that arrives first refuses the late allocate, also across a
// restart; the next attempt works; after an hour the tombstone is gone.
func TestL5CancelBeforeAllocate(t *testing.T) {
	c, path := NewClock(), filepath.Join(t.TempDir(), "book.db")
	opts := Options()
	opts.Now = c.Now
	b := OpenAt(t, path, opts)
	p := Pool(t, b, "default", "10.8.64.0/24")
	if _, err := b.Cancel(ctx, client, "a", 1); err != nil {
		t.Fatal(err)
	}
	_, err := TryReserve(b, p, "a", Policy)
	wantErr(t, err, ipam.ErrCancelled)
	Close(t, b)
	b = OpenAt(t, path, opts)
	_, err = TryReserve(b, p, "a", Policy)
	wantErr(t, err, ipam.ErrCancelled)
	pick, _ := b.Pick(p.UID, Policy)
	second := netdb.Reservation{Candidate: pick, Sandbox: "a", UID: "a", Interface: "eth0", Attempt: 2, BindWithin: time.Minute}
	ls, err := b.Reserve(ctx, allocator, second)
	if err != nil {
		t.Fatal(err)
	}
	// A late cancel of attempt 1 leaves attempt 2 alone; of attempt 2 it does not.
	if freed, err := b.Cancel(ctx, client, "a", 1); err != nil || len(freed) != 0 {
		t.Fatal(freed, err)
	}
	if freed, err := b.Cancel(ctx, client, "a", 2); err != nil || len(freed) != 1 || freed[0].ID != ls[0].ID || freed[0].State != ipam.Releasing {
		t.Fatal(freed, err)
	}
	c.Pass(61 * time.Minute)
	if _, err := TryReserve(b, p, "a", Policy); err != nil {
		t.Fatalf("an hour later: %v", err)
	}
}
