package bridge

import (
	"context"
	"errors"
)

// A kept is a socket for one kind of question that stays open between two of
// them: opening one for each, with its buffer of 64 KiB, was a tenth of a busy
// daemon's processor time and four fifths of all that it allocated. Safe for
// concurrent use; one asks after the other.
type kept struct {
	dial func(context.Context) (*rtnl, error)

	mu     fairMutex
	socket *rtnl // nil before the first question, and after one that failed
	closed bool
}

func newKept(dial func(context.Context) (*rtnl, error)) *kept {
	return &kept{dial: dial, mu: newFairMutex()}
}

// ask lends the socket, unless ctx ends while others have it. After an error the next
// call gets a new one: what still comes on the old one answers nothing. A list that was
// interrupted was read to its end.
func (k *kept) ask(ctx context.Context, questions func(*rtnl) error) (err error) {
	if err := k.mu.LockContext(ctx); err != nil {
		return err
	}
	defer k.mu.Unlock()
	if k.closed {
		return ErrClosed
	}
	if k.socket == nil {
		if k.socket, err = k.dial(ctx); err != nil {
			return err
		}
	}
	if err = questions(k.socket); err != nil && !errors.Is(err, errInterrupted) {
		k.drop()
	}
	return err
}

func (k *kept) drop() {
	if k.socket != nil {
		k.socket.close()
		k.socket = nil
	}
}

// close waits for the question that is under way.
func (k *kept) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	k.drop()
}
