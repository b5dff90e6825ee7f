package share

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

var errBroken = errors.New("the table cannot be read")

// A table is walked by runs that wait for the test to let them end.
type table struct {
	mu   sync.Mutex
	runs [][]int
	end  chan error
}

func (w *table) run(_ context.Context, of []int) error {
	w.mu.Lock()
	w.runs = append(w.runs, slices.Sorted(slices.Values(of)))
	w.mu.Unlock()
	return <-w.end
}

// wantRuns waits until nothing moves any more and compares what each run was about.
func (w *table) wantRuns(t *testing.T, want ...[]int) {
	t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.EqualFunc(w.runs, want, slices.Equal) {
		t.Errorf("runs about %v, want %v", w.runs, want)
	}
}

// A call during a run waits for the next, and all of those share it.
func TestARunIsShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &table{end: make(chan error)}
		s := New(w.run)
		ended := make(chan error, 9)
		call := func(of int) {
			go func() {
				result, err := s.Do(t.Context(), of)
				ended <- errors.Join(result, err)
			}()
		}
		call(1)
		w.wantRuns(t, []int{1})
		for of := range 7 {
			call(2 + of)
		}
		call(1) // again: the run may be past it
		w.wantRuns(t, []int{1})
		w.end <- nil
		w.wantRuns(t, []int{1}, []int{1, 2, 3, 4, 5, 6, 7, 8})
		if n := len(ended); n != 1 {
			t.Errorf("%d ended after the first run", n)
		}
		<-ended
		w.end <- errBroken
		synctest.Wait()
		for range 8 {
			if err := <-ended; !errors.Is(err, errBroken) {
				t.Errorf("of a run that failed one call got %v", err)
			}
		}
		call(9) // one that failed leaves nothing behind
		w.wantRuns(t, []int{1}, []int{1, 2, 3, 4, 5, 6, 7, 8}, []int{9})
		w.end <- nil
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A call that is given up holds up no other, and what it asked about is done.
func TestACallIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &table{end: make(chan error)}
		s := New(w.run)
		ended := make(chan error, 3)
		call := func(ctx context.Context, of int) {
			go func() { _, err := s.Do(ctx, of); ended <- err }()
		}
		ctx, cancel := context.WithCancel(t.Context())
		call(ctx, 1)
		w.wantRuns(t, []int{1})
		call(ctx, 2)
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("a call that was given up ended with %v", err)
		}
		call(t.Context(), 3)
		w.end <- nil
		w.wantRuns(t, []int{1}, []int{2, 3})
		w.end <- nil
		for range 2 {
			if err := <-ended; err != nil {
				t.Errorf("of a run that was made one call ended with %v", err)
			}
		}
	})
}
