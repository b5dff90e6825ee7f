package bridge

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

func one(last byte) map[netip.Addr]bool {
	return map[netip.Addr]bool{netip.AddrFrom4([4]byte{10, 8, 0, last}): true}
}

// A table is a walked one whose walks wait for the test to let them end.
type table struct {
	mu    sync.Mutex
	walks [][]netip.Addr
	end   chan error
}

func (w *table) walk(of map[netip.Addr]bool) error {
	w.mu.Lock()
	w.walks = append(w.walks, slices.SortedFunc(maps.Keys(of), netip.Addr.Compare))
	w.mu.Unlock()
	return <-w.end
}

// wantWalks waits until nothing moves any more and compares what each walk was
// for, by the last byte of the addresses.
func (w *table) wantWalks(t *testing.T, want ...[]byte) {
	t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	var got [][]byte
	for _, walk := range w.walks {
		var last []byte
		for _, a := range walk {
			last = append(last, a.As4()[3])
		}
		got = append(got, last)
	}
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("walks for %v, want %v", got, want)
	}
}

// Who comes during a walk waits for the next, and all of those share it.
func TestSweepIsShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &table{end: make(chan error)}
		s := newSweeper(w.walk)
		ended := make(chan error, 9)
		sweep := func(last byte) { go func() { ended <- s.sweep(t.Context(), one(last)) }() }
		sweep(1)
		w.wantWalks(t, []byte{1})
		for last := range byte(7) {
			sweep(2 + last)
		}
		sweep(1) // again: the walk may be past it
		w.wantWalks(t, []byte{1})
		w.end <- nil
		w.wantWalks(t, []byte{1}, []byte{1, 2, 3, 4, 5, 6, 7, 8})
		if n := len(ended); n != 1 {
			t.Errorf("%d ended after the first walk", n)
		}
		<-ended
		broken := errors.New("the table cannot be read")
		w.end <- broken
		synctest.Wait()
		for range 8 {
			if err := <-ended; !errors.Is(err, broken) {
				t.Errorf("of a walk that failed one got %v", err)
			}
		}
		sweep(9) // one that failed leaves nothing behind
		w.wantWalks(t, []byte{1}, []byte{1, 2, 3, 4, 5, 6, 7, 8}, []byte{9})
		w.end <- nil
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// Who gives up waiting holds up nobody, and what he was after is done.
func TestSweepGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &table{end: make(chan error)}
		s := newSweeper(w.walk)
		ended := make(chan error, 3)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { ended <- s.sweep(ctx, one(1)) }()
		w.wantWalks(t, []byte{1})
		go func() { ended <- s.sweep(ctx, one(2)) }()
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("who gave up was ended %v", err)
		}
		go func() { ended <- s.sweep(t.Context(), one(3)) }()
		w.end <- nil
		w.wantWalks(t, []byte{1}, []byte{2, 3})
		w.end <- nil
		for range 2 {
			if err := <-ended; err != nil {
				t.Errorf("of a walk that was done one was ended %v", err)
			}
		}
	})
}
