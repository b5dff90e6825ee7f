// Package group has all callers that wait share one commit.
//
// There is no goroutine to hand requests to: a caller that waits while no commit is under
// way makes one for all that wait. A goroutine of its own costs a lone caller two switches, each a
// sleeping processor to wake.
package group

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// MaxBatch bounds one commit, so that no caller waits for a queue it does not
// see the end of.
const MaxBatch = 256

// busyPause is how long the lock holder waits before asking again for a write
// lock that another process holds.
const busyPause = 5 * time.Millisecond

// lockPatience is how long a request waits for that lock that was in a batch and
// is tried alone: its caller's deadline no longer counts.
const lockPatience = 5 * time.Second

// A Store makes the commits; T is what a request sees of one. Only the lock holder calls it.
type Store[T any] interface {
	// Begin begins a transaction, or says at once why not; busy means that it can be tried again
	// in a moment.
	Begin() (busy bool, err error)
	// Try runs a batch in the transaction that has begun, and ends it. It returns each request's
	// answer, or the error that ended the transaction for all. behind is a panic behind a durable commit.
	Try(batch []*Request[T]) (answers []error, behind, err error)
	// OfAll reports that an error of Try is no single request's.
	OfAll(err error) bool
	// Committed is called before the requests are answered.
	Committed(took time.Duration, batch int)
	// Keep is called once they are.
	Keep()
}

// A Group is the callers of one store.
type Group[T any] struct {
	store   Store[T]
	closed  error // the answer once no commit is made any more
	queue   queue[T]
	busy    atomic.Pointer[error] // why the file's lock is waited for
	locked  chan struct{}         // full while the lock is held; full for good once closed
	closing chan struct{}
}

// New returns a group without callers. Once it is closed, each is answered with the error closed.
func New[T any](s Store[T], closed error) *Group[T] {
	return &Group[T]{store: s, closed: closed, locked: make(chan struct{}, 1), closing: make(chan struct{})}
}

// Update makes fn part of a commit and returns once what it staged is
// durable. When ctx ends before the request was taken, nothing happened;
// after that the answer is awaited, so that "deadline exceeded" always means
// "not done". fn may be run more than once, when another request spoils the batch.
func (g *Group[T]) Update(ctx context.Context, fn func(T) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	o := &Request[T]{run: fn, done: make(chan error, 1)}
	g.queue.join(o)
	for {
		select {
		case err := <-o.done:
			return answer(err)
		case g.locked <- struct{}{}:
			if err := g.lead(ctx, o); err != nil {
				return g.leave(o, err)
			}
		case <-ctx.Done():
			return g.leave(o, g.whyWaiting(ctx.Err()))
		case <-g.closing:
			return g.leave(o, g.closed)
		}
	}
}

// leave walks away because of why, or takes the answer when it is too late
// for that.
func (g *Group[T]) leave(o *Request[T], why error) error {
	if o.state.CompareAndSwap(waiting, left) {
		g.queue.leave(o)
		return why
	}
	return answer(<-o.done)
}

// whyWaiting says why a caller's deadline passed.
func (g *Group[T]) whyWaiting(ctxErr error) error {
	if busy := g.busy.Load(); busy != nil {
		return fmt.Errorf("%w (%w)", *busy, ctxErr)
	}
	return ctxErr
}

// lead gives the lock back after one commit of all that wait, without waiting
// for more: under load that settles at half the callers a batch. An error is
// mine alone; the others take the lock themselves.
func (g *Group[T]) lead(ctx context.Context, mine *Request[T]) error {
	defer g.Unlock()
	if len(mine.done) > 0 {
		return nil // answered just before the lock was taken
	}
	began := time.Now()
	if err := g.Begin(ctx); err != nil {
		return err
	}
	if behind := g.commit(began, g.queue.next(MaxBatch)); behind != nil {
		panic(behind.Error())
	}
	g.store.Keep()
	return nil
}

// commit ends the transaction that has begun with a batch in it. When it is refused for what
// only its end shows, the batch is taken back and
// each request is tried alone, so that it fails by itself. What it returns is a
// panic behind the commit: every request is answered, and the caller who
// committed panics, because it has to be seen and no request is to blame.
func (g *Group[T]) commit(began time.Time, batch []*Request[T]) (behind error) {
	defer func() {
		if p := recover(); p != nil {
			for _, o := range batch {
				select {
				case o.done <- panicked{p}:
				default: // it has its answer
				}
			}
			panic(p)
		}
	}()
	answers, behind, err := g.store.Try(batch)
	if err != nil && len(batch) > 1 && !g.store.OfAll(err) {
		for _, o := range batch {
			behind = errors.Join(behind, g.alone(o))
		}
		return behind
	}
	if err == nil {
		behind = errors.Join(behind, Safely(func() error { g.store.Committed(time.Since(began), len(batch)); return nil }))
	}
	for i, o := range batch {
		if err != nil {
			o.done <- err
		} else {
			o.done <- answers[i]
		}
	}
	return behind
}

// alone commits one request that was in a batch. It was taken, so its own
// caller's patience no longer counts, and the lock holder's never did.
func (g *Group[T]) alone(o *Request[T]) (behind error) {
	ctx, cancel := context.WithTimeout(context.Background(), lockPatience)
	defer cancel()
	began := time.Now()
	if err := g.Begin(ctx); err != nil {
		o.done <- err
		return nil
	}
	return g.commit(began, []*Request[T]{o})
}

// Begin has the store begin a transaction, patiently, until ctx ends. For the lock holder.
func (g *Group[T]) Begin(ctx context.Context) error {
	defer g.busy.Store(nil)
	for {
		busy, err := g.store.Begin()
		if !busy {
			return err
		}
		g.busy.Store(&err)
		select {
		case <-g.closing:
			return g.closed
		case <-ctx.Done():
			return g.whyWaiting(ctx.Err())
		case <-time.After(busyPause):
		}
	}
}

// Lock waits until no commit is under way, and keeps it so until [Group.Unlock].
func (g *Group[T]) Lock(ctx context.Context) error {
	select {
	case g.locked <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-g.closing:
		return g.closed
	}
}

// TryLock is [Group.Lock] that does not wait.
func (g *Group[T]) TryLock() bool {
	select {
	case g.locked <- struct{}{}:
		return true
	default:
		return false
	}
}

// Unlock gives the lock back.
func (g *Group[T]) Unlock() { <-g.locked }

// Close waits for the commit that is under way, refuses what waits, and keeps the lock. Once only.
func (g *Group[T]) Close() {
	close(g.closing)
	g.locked <- struct{}{}
}

// Closed reports that the group was closed.
func (g *Group[T]) Closed() bool {
	select {
	case <-g.closing:
		return true
	default:
		return false
	}
}

// Committing reports whether the lock is held.
func (g *Group[T]) Committing() bool { return len(g.locked) > 0 }
