package rtnl

import (
	"context"
	"errors"
	"testing"
)

// A question that the kernel does not answer ends neither its caller nor the next one, whose ctx ends.
func TestCachedWithin(t *testing.T) {
	t.Parallel()
	k := NewCached(func(context.Context) (*Socket, error) { return new(Socket), nil })
	ctx, cancel := context.WithCancel(t.Context())
	asked, answer := make(chan struct{}), make(chan struct{})
	go func() {
		<-asked
		cancel()
	}()
	if err := k.Within(ctx, func(*Socket) error { close(asked); <-answer; return nil }, func() {}); !errors.Is(err, context.Canceled) {
		t.Errorf("the kernel does not answer: %v", err)
	}
	if err := k.Within(ctx, func(*Socket) error { return nil }, func() {}); !errors.Is(err, context.Canceled) {
		t.Errorf("another waits for it: %v", err)
	}
	close(answer)
	if err := k.Within(t.Context(), func(*Socket) error { return nil }, func() {}); err != nil {
		t.Errorf("it has answered: %v", err)
	}
}
