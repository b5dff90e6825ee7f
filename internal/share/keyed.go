package share

import (
	"context"
	"sync"
)

// A Keyed has one call at a time do what is about a key; of other keys none waits for it. It is
// safe for concurrent use, and its zero value is ready.
type Keyed[K comparable] struct {
	mu   sync.Mutex
	held map[K]*holding
}

type holding struct {
	slot  chan struct{} // of one: full while the key is held
	users int           // that have it or wait for it
}

// Hold waits until no other call has the key, or until ctx ends, with its error. release gives it
// back, and may be called twice.
func (k *Keyed[K]) Hold(ctx context.Context, key K) (release func(), err error) {
	k.mu.Lock()
	h := k.held[key]
	if h == nil {
		if k.held == nil {
			k.held = make(map[K]*holding)
		}
		h = &holding{slot: make(chan struct{}, 1)}
		k.held[key] = h
	}
	h.users++
	k.mu.Unlock()
	select {
	case h.slot <- struct{}{}:
	case <-ctx.Done():
		k.leave(key, h)
		return nil, ctx.Err()
	}
	return sync.OnceFunc(func() {
		<-h.slot
		k.leave(key, h)
	}), nil
}

func (k *Keyed[K]) leave(key K, h *holding) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if h.users--; h.users == 0 {
		delete(k.held, key)
	}
}
