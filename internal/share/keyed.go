package share

import (
	"context"
	"sync"
)

// A Keyed has one call at a time do what is about a key; of other keys none waits for it. It is
// safe for concurrent use, and its zero value is ready.
type Keyed[K comparable] struct {
	mu    sync.Mutex
	locks map[K]*keyLock
}

type keyLock struct {
	slot  chan struct{} // of one: full while a call has the key
	users int           // that have it or wait for it
}

// Lock waits until no other call has the key, or until ctx ends, with its error. unlock gives it
// back, and may be called twice.
func (k *Keyed[K]) Lock(ctx context.Context, key K) (unlock func(), err error) {
	k.mu.Lock()
	h := k.locks[key]
	if h == nil {
		if k.locks == nil {
			k.locks = make(map[K]*keyLock)
		}
		h = &keyLock{slot: make(chan struct{}, 1)}
		k.locks[key] = h
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

func (k *Keyed[K]) leave(key K, h *keyLock) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if h.users--; h.users == 0 {
		delete(k.locks, key)
	}
}
