package main

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A sample is how long each of some calls took.
type sample []time.Duration

// at returns a quantile, 0 <= q <= 1: the smallest duration that so much of
// the sample does not exceed. An empty sample is 0.
func (s sample) at(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func (s sample) p50() time.Duration { return s.at(0.50) }
func (s sample) p99() time.Duration { return s.at(0.99) }

func (s sample) sum() (all time.Duration) {
	for _, d := range s {
		all += d
	}
	return all
}

// timed appends how long op took.
func (s *sample) timed(op func() error) error {
	began := time.Now()
	err := op()
	*s = append(*s, time.Since(began))
	return err
}

// repeat times n calls of op, one after the other; what undoes each is not
// timed.
func (s *sample) repeat(n int, op func() error, undo ...func() error) error {
	for range n {
		if err := s.timed(op); err != nil {
			return err
		}
		for _, u := range undo {
			if err := u(); err != nil {
				return err
			}
		}
	}
	return nil
}

// turn is how many calls of one kind are made before the next kind has its
// turn: whatever else the machine does hits all of them alike.
const turn = 10

// turns runs fn, which makes one turn of each kind, until a round is full.
func (b *bench) turns(fn func() error) error {
	for range b.calls / turn {
		if err := fn(); err != nil {
			return err
		}
	}
	return nil
}

// A crowded sample is what several callers saw who called at the same time.
type crowded struct {
	sample
	rate float64 // calls a second
}

// crowd lets callers call one op after the other for as long as told, each at
// least once. op is made once a caller.
func crowd(ctx context.Context, callers int, long time.Duration, caller func(int) func(context.Context) error) (crowded, error) {
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		all   crowded
		first error
	)
	began := time.Now()
	for i := range callers {
		op := caller(i)
		wg.Go(func() {
			var own sample
			for len(own) == 0 || time.Since(began) < long {
				if err := own.timed(func() error { return op(ctx) }); err != nil {
					mu.Lock()
					defer mu.Unlock()
					if first == nil {
						first = err
					}
					return
				}
			}
			mu.Lock()
			defer mu.Unlock()
			all.sample = append(all.sample, own...)
		})
	}
	wg.Wait()
	all.rate = float64(len(all.sample)) / time.Since(began).Seconds()
	return all, first
}
