package netdb_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// F3: readers in the middle of each kind of reading, one that takes for ever,
// hold up no commit, the pruning behind it included. They are held where they
// are, and so it does not matter how fast anything is.
func TestF3NoCommitWaitsForAReader(t *testing.T) {
	const all = 4 // readers
	held, endRead := context.WithCancel(ctx)
	defer endRead()
	var readers atomic.Int64
	pause := func() { // in the middle of a row
		readers.Add(1)
		<-held.Done()
	}
	var paused atomic.Bool
	opts := netdb.Failing(Options(), func(at string) {
		if at == "scan" && paused.Load() {
			pause()
		}
	})
	opts.KeepChanges = 200
	b := OpenAt(t, filepath.Join(t.TempDir(), "book.db"), opts)
	p := Pool(t, b, "default", "10.8.64.0/24")
	for i := range 20 {
		Reserve(t, b, fmt.Sprint("s", i))
	}
	was, _ := b.Leases()
	paused.Store(true)
	done := make(chan error, all)
	go func() { done <- netdb.LookUpSlowly(b, uuid.NewString(), pause) }()
	go func() { done <- netdb.LastConflictSlowly(b, pause) }()
	scan := func(read func() []*ipam.Lease) {
		if rows := read(); !slices.Equal(rows, was) {
			done <- fmt.Errorf("a snapshot changes while it is read: %d rows of %d", len(rows), len(was))
			return
		}
		done <- nil
	}
	go scan(func() []*ipam.Lease { rows, _ := b.Leases(); return rows })
	go scan(func() []*ipam.Lease { return b.InState(ipam.Reserved) })
	if err := netdb.ForgetSoon(ctx, b); err != nil {
		t.Fatal(err)
	}
	realtest.Eventually(t, wait, "every reader to be in the middle of its reading", func() bool { return readers.Load() == all })
	ended := make(chan error, 1)
	go func() {
		for i := range 300 { // far beyond what is kept, and the pruning of it
			l, err := TryReserve(b, p, fmt.Sprint("late", i), Policy)
			if err == nil && i < 200 { // some stay, where the reader is
				_, err = b.Expire(ctx, watchdog, l.ID, l.Rev, nil)
			}
			if err != nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(wait):
		t.Error("commits wait for a reader")
	}
	paused.Store(false)
	endRead()
	for range all {
		if err := <-done; err != nil && !errors.Is(err, ipam.ErrNotFound) {
			t.Error(err)
		}
	}
	past, err := b.History(ctx, ipam.Query{Limit: 10_000})
	if err != nil || len(past) > 200+128 {
		t.Errorf("%d changes are kept of 200, %v", len(past), err)
	}
}

// F5: the changes are followed without a gap, in their order, behind their
// commits; who comes too late learns what is missing, and goes on behind it.
func TestF5ChangesAreFollowed(t *testing.T) {
	opts := Options()
	opts.KeepChanges = 100
	b := OpenAt(t, filepath.Join(t.TempDir(), "book.db"), opts)
	p := Pool(t, b, "default", "10.8.64.0/24")
	since := b.Rev()
	if got, err := b.Changes(ctx, since, 9); err != nil || len(got) != 0 {
		t.Errorf("nothing has changed: %v, %v", got, err)
	}
	changed := b.Changed()
	var want []ipam.State
	for i := range 10 {
		l := Reserve(t, b, fmt.Sprint("s", i))
		if _, err := b.Expire(ctx, watchdog, l.ID, l.Rev, nil); err != nil {
			t.Fatal(err)
		}
		want = append(want, ipam.Reserved, ipam.Free)
	}
	select {
	case <-changed:
	default:
		t.Error("no subscriber was woken")
	}
	var got []ipam.State
	for since < b.Rev() {
		some, err := b.Changes(ctx, since, 7)
		if err != nil || len(some) > 7 {
			t.Fatal(some, err)
		}
		for _, c := range some {
			if c.Rev != since+1 || c.Subject != ipam.OfLease || c.Pool != p.Name || c.Who.Reason == "" {
				t.Errorf("behind %d came %+v", since, c)
			}
			since = c.Rev
			got = append(got, c.To)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("followed %v, made %v", got, want)
	}
	for i := range 300 {
		l := Reserve(t, b, fmt.Sprint("late", i))
		if _, err := b.Expire(ctx, watchdog, l.ID, l.Rev, nil); err != nil {
			t.Fatal(err)
		}
	}
	_, err := b.Changes(ctx, since, 7)
	var gap *ipam.PrunedError
	if !errors.As(err, &gap) || !errors.Is(err, ipam.ErrPruned) || gap.Since != since || gap.Upto <= since {
		t.Fatalf("behind a gap: %v", err)
	}
	if some, err := b.Changes(ctx, gap.Upto, 1); err != nil || len(some) != 1 || some[0].Rev != gap.Upto+1 {
		t.Errorf("on the other side of it: %v, %v", some, err)
	}
}
