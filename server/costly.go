package server

import (
	"container/list"
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"
)

// A costly is what the calls that read much share: listings, the history, all that
// is known of an address, a diagnosis, a status, metrics. So many of them run at
// once that half of the processors are left to those that give and end leases:
// when each call of a reader ran at once, sixty-four of them made an allocation
// take three hundred times as long. Each holder has a queue, first come, first
// served, and they take turns: nobody waits here for more than one step of each
// other holder.
type costly struct {
	most  int
	lasts time.Duration // of a step that others wait for: one that waits for a disk or the kernel costs no processor

	mu      sync.Mutex
	running int
	waiting map[holder]*list.List // of chan struct{}; none is empty
	order   []holder              // of those in waiting: who is next
}

func newCostly() *costly {
	return &costly{most: max(1, runtime.GOMAXPROCS(0)/2), lasts: turnLasts, waiting: make(map[holder]*list.List)}
}

// enter waits until a step of the holder may run. leave ends it, once or more; it
// ends by itself after lasts.
func (k *costly) enter(ctx context.Context, h holder) (leave func(), err error) {
	k.mu.Lock()
	if k.running < k.most {
		k.running++
		k.mu.Unlock()
		return k.step(), nil
	}
	q := k.waiting[h]
	if q == nil {
		q = list.New()
		k.waiting[h] = q
		k.order = append(k.order, h)
	}
	runs := make(chan struct{})
	place := q.PushBack(runs)
	k.mu.Unlock()
	select {
	case <-runs:
		return k.step(), nil
	case <-ctx.Done():
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case <-runs: // in this moment
		k.next()
	default:
		k.leaveQueue(h, q, place)
	}
	return nil, fmt.Errorf("wait for other calls that read much: %w", context.Cause(ctx))
}

// step is one that runs.
func (k *costly) step() (leave func()) {
	over := sync.OnceFunc(func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.next()
	})
	limit := time.AfterFunc(k.lasts, over)
	return func() { limit.Stop(); over() }
}

// next gives the place of a step that has ended to the next holder.
func (k *costly) next() {
	if len(k.order) == 0 {
		k.running--
		return
	}
	h := k.order[0]
	k.order = k.order[1:]
	q := k.waiting[h]
	close(q.Remove(q.Front()).(chan struct{}))
	if q.Len() == 0 {
		delete(k.waiting, h)
	} else {
		k.order = append(k.order, h)
	}
}

func (k *costly) leaveQueue(h holder, q *list.List, place *list.Element) {
	q.Remove(place)
	if q.Len() > 0 {
		return
	}
	delete(k.waiting, h)
	for i, other := range k.order {
		if other == h {
			k.order = append(k.order[:i], k.order[i+1:]...)
			return
		}
	}
}
