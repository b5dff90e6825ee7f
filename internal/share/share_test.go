package share

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
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
		call(t.Context(), 1)
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

// A run goes on for as long as one of its calls waits for it. A call whose time is over returns at
// once, also the one that began the run, and the last one ends it.
func TestARunEndsWithItsLastCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var cut atomic.Int32
		s := New(func(ctx context.Context, _ []int) error {
			select {
			case <-time.After(10 * time.Second):
			case <-ctx.Done():
				cut.Add(1)
				time.Sleep(time.Second) // it does not notice at once
			}
			return ctx.Err()
		})
		var all sync.WaitGroup
		call := func(within, took time.Duration, want error) {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), within)
				defer cancel()
				began := time.Now()
				result, err := s.Do(ctx, 0)
				if is := time.Since(began); is != took || !errors.Is(errors.Join(result, err), want) {
					t.Errorf("a call within %v ended after %v with %v, %v", within, is, result, err)
				}
			})
			synctest.Wait()
		}
		call(time.Second, time.Second, context.DeadlineExceeded)     // alone in the first run, which ends after 2 s
		call(5*time.Second, 5*time.Second, context.DeadlineExceeded) // begins the second one
		call(time.Minute, 12*time.Second, nil)
		all.Wait()
		if n := cut.Load(); n != 1 {
			t.Errorf("%d runs were ended, want the first one", n)
		}
	})
}

// A run that panics panics in each of its calls, and the next one is made.
func TestARunThatPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(func(_ context.Context, of []int) int {
			time.Sleep(time.Second)
			if len(of) == 2 {
				panic(errBroken)
			}
			return of[0]
		})
		var all sync.WaitGroup
		answered := func(of int) {
			if got, err := s.Do(t.Context(), of); got != of || err != nil {
				t.Errorf("a run that did not panic: %v, %v", got, err)
			}
		}
		all.Go(func() { answered(1) })
		synctest.Wait()
		for range 2 {
			all.Go(func() {
				defer func() {
					if p, is := recover().(*Panic); !is || p.With != errBroken || len(p.Stack) == 0 {
						t.Errorf("panicked with %+v", p)
					}
				}()
				_, err := s.Do(t.Context(), 0)
				t.Errorf("a run that panicked ended with %v", err)
			})
		}
		all.Wait()
		answered(7)
	})
}
