package rtnl

import (
	"context"
	"errors"

	"golang.org/x/sync/semaphore"
)

// A Cached is a socket for one kind of question that stays open between two of
// them: opening one for each, with its buffer, is a tenth of a busy daemon's
// processor time and four fifths of all that it allocates. Safe for concurrent use;
// one asks after the other.
type Cached struct {
	Dial func(context.Context) (*Socket, error)

	asking *semaphore.Weighted // held while a question is under way
	socket *Socket             // nil before the first question, and after one that failed
	closed bool
}

func NewCached(dial func(context.Context) (*Socket, error)) *Cached {
	return &Cached{Dial: dial, asking: semaphore.NewWeighted(1)}
}

// Ask lends the socket, unless ctx ends while others have it. After an error the next
// call gets a new one: what still comes on the old one answers nothing. A list that was
// interrupted was read to its end.
func (c *Cached) Ask(ctx context.Context, questions func(*Socket) error) (err error) {
	if err := c.asking.Acquire(ctx, 1); err != nil {
		return err
	}
	defer c.asking.Release(1)
	if c.closed {
		return ErrClosed
	}
	if c.socket == nil {
		if c.socket, err = c.Dial(ctx); err != nil {
			return err
		}
	}
	if err = questions(c.socket); err != nil && !errors.Is(err, ErrInterrupted) {
		c.Drop()
	}
	return err
}

// Within is Ask for a caller that cannot wait longer than its ctx: a question about links or neighbours waits in the kernel
// while others change links of the machine, which on a busy one takes seconds, and no signal ends it. The question goes on after
// ctx has ended, so what it sets is of use only where the error is nil. then is called once it was answered, or not asked.
func (c *Cached) Within(ctx context.Context, questions func(*Socket) error, then func()) error {
	answered := make(chan error, 1)
	go func() {
		answered <- c.Ask(ctx, questions)
		then()
	}()
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Cached) Drop() {
	if c.socket != nil {
		c.socket.Close()
		c.socket = nil
	}
}

// Close waits for the question that is under way.
func (c *Cached) Close() {
	_ = c.asking.Acquire(context.Background(), 1) // which never ends
	defer c.asking.Release(1)
	c.closed = true
	c.Drop()
}
