package rtnl

import (
	"context"
	"errors"

	"golang.org/x/sync/semaphore"
)

// A Kept is a socket for one kind of question that stays open between two of
// them: opening one for each, with its buffer, is a tenth of a busy daemon's
// processor time and four fifths of all that it allocates. Safe for concurrent use;
// one asks after the other.
type Kept struct {
	Dial func(context.Context) (*Socket, error)

	asking *semaphore.Weighted // held while a question is under way
	socket *Socket             // nil before the first question, and after one that failed
	closed bool
}

func NewKept(dial func(context.Context) (*Socket, error)) *Kept {
	return &Kept{Dial: dial, asking: semaphore.NewWeighted(1)}
}

// Ask lends the socket, unless ctx ends while others have it. After an error the next
// call gets a new one: what still comes on the old one answers nothing. A list that was
// interrupted was read to its end.
func (k *Kept) Ask(ctx context.Context, questions func(*Socket) error) (err error) {
	if err := k.asking.Acquire(ctx, 1); err != nil {
		return err
	}
	defer k.asking.Release(1)
	if k.closed {
		return ErrClosed
	}
	if k.socket == nil {
		if k.socket, err = k.Dial(ctx); err != nil {
			return err
		}
	}
	if err = questions(k.socket); err != nil && !errors.Is(err, ErrInterrupted) {
		k.Drop()
	}
	return err
}

// Within is Ask for a caller that cannot wait longer than its ctx: a question about links or neighbours waits in the kernel
// while others change links of the machine, which on a busy one takes seconds, and no signal ends it. The question goes on after
// ctx has ended, so what it sets is of use only where the error is nil. then is called once it was answered, or not asked.
func (k *Kept) Within(ctx context.Context, questions func(*Socket) error, then func()) error {
	answered := make(chan error, 1)
	go func() {
		answered <- k.Ask(ctx, questions)
		then()
	}()
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (k *Kept) Drop() {
	if k.socket != nil {
		k.socket.Close()
		k.socket = nil
	}
}

// Close waits for the question that is under way.
func (k *Kept) Close() {
	_ = k.asking.Acquire(context.Background(), 1) // which never ends
	defer k.asking.Release(1)
	k.closed = true
	k.Drop()
}
