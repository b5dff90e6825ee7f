package group

import (
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
)

// A Request is one caller's on its way into a commit. It may be run more than
// once, when another request spoils the batch; it must do nothing but stage.
type Request[T any] struct {
	run   func(T) error
	done  chan error
	state atomic.Int32
}

const (
	waiting = iota // the caller may still walk away
	taken          // it is answered, whatever the caller's deadline
	left           // the caller walked away
)

// Run runs the request, unless its caller left.
func (o *Request[T]) Run(t T) (err error) {
	if !o.state.CompareAndSwap(waiting, taken) && o.state.Load() != taken {
		return nil
	}
	return Safely(func() error { return o.run(t) })
}

// A queue holds the requests that wait for a commit, first come, first served.
// A caller waits with each, so that it needs no bound of its own.
type queue[T any] struct {
	mu       sync.Mutex
	requests []*Request[T]
}

func (q *queue[T]) join(o *Request[T]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.requests = append(q.requests, o)
}

// leave takes a request out whose caller walked away.
func (q *queue[T]) leave(o *Request[T]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.requests = slices.DeleteFunc(q.requests, func(other *Request[T]) bool { return other == o })
}

// next takes up to most requests from the front.
func (q *queue[T]) next(most int) []*Request[T] {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(most, len(q.requests))
	batch := q.requests[:n:n]
	q.requests = q.requests[n:]
	return batch
}

// Waiting is how many requests wait for the next commit.
func (g *Group[T]) Waiting() int {
	g.queue.mu.Lock()
	defer g.queue.mu.Unlock()
	return len(g.queue.requests)
}

// A panicked error carries a panic out of a commit: a request's to its own
// caller, because the lock holder for it has nothing to do with it.
type panicked struct{ value any }

func (p panicked) Error() string { return fmt.Sprint(p.value) }

func answer(err error) error {
	if p, ok := err.(panicked); ok {
		panic(p.value)
	}
	return err
}

// Safely runs fn and returns its panic as an error, with the stack.
func Safely(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked{fmt.Sprintf("%v\n\n%s", p, debug.Stack())}
		}
	}()
	return fn()
}
