package ctrd

import (
	"context"
	"errors"
	"fmt"

	containerd "github.com/containerd/containerd/v2/client"
)

// identity asks containerd for the id that it made for itself when it first
// used its disk (1.6 and 2.x alike). Another disk is another containerd, on
// whatever socket it answers.
func (k *calls) identity(ctx context.Context, c *containerd.Client) (string, error) {
	call, cancel := k.ask(ctx, "")
	defer cancel()
	s, err := c.Server(call)
	if err == nil && s.UUID == "" {
		err = errors.New("it has none")
	}
	if err != nil {
		return "", fmt.Errorf("ask containerd for its id: %w", err)
	}
	return s.UUID, nil
}

// believed returns why an answer that containerd gave before is not to be
// believed. It is asked afterwards: a containerd that was replaced in between
// is one too many, while one that was asked first could be replaced before the
// answer.
func (k *calls) believed(ctx context.Context, c *containerd.Client) error {
	id, err := k.identity(ctx, c)
	if err != nil {
		return err
	}
	return k.cfg.Met(ctx, id)
}
