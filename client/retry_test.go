package client_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/server"
)

// TestRetry waits through what passes, and ends at once with what does not.
func TestRetry(t *testing.T) {
	var asked atomic.Int32
	_, c := start(t, func(cfg *server.Config) {
		cfg.NotReady = func() []string {
			if asked.Add(1) < 3 {
				return []string{"no census yet"}
			}
			return nil
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var health *api.Health
	if err := client.Retry(ctx, func(ctx context.Context) (err error) {
		health, err = c.Ready(ctx)
		return err
	}); err != nil || asked.Load() != 3 || health == nil {
		t.Errorf("ready after %d calls: %v", asked.Load(), err)
	}

	tries := 0
	if err := client.Retry(ctx, func(ctx context.Context) error {
		tries++
		return second(c.Allocate(ctx, api.AllocateRequest{}))
	}); !errors.Is(err, client.ErrInvalidArgument) || tries != 1 {
		t.Errorf("a request that is wrong: %d tries, %v", tries, err)
	}

	absent := &client.Client{Socket: filepath.Join(t.TempDir(), "s")}
	ended, end := context.WithCancelCause(t.Context())
	tries = 0
	gone := errors.New("the sandbox is not wanted any more")
	err := client.Retry(ended, func(ctx context.Context) error {
		if tries++; tries == 2 {
			end(gone)
		}
		return second(absent.Healthy(context.WithoutCancel(ctx)))
	})
	if !errors.Is(err, gone) || !errors.Is(err, client.ErrNotRunning) || tries != 2 {
		t.Errorf("no daemon: %d tries, %v", tries, err)
	}
}

// TestRetryWaitsAsTheReplySays: the daemon's Retry-After is longer than the first pauses.
func TestRetryWaitsAsTheReplySays(t *testing.T) {
	_, c := start(t, func(cfg *server.Config) { cfg.Limits.Rate = 1 })
	realtest.Eventually(t, time.Minute, "the rate is used up", func() bool {
		return errors.Is(second(c.Version(t.Context())), client.ErrTooManyRequests)
	})
	began, tries := time.Now(), 0
	if err := client.Retry(t.Context(), func(ctx context.Context) error {
		tries++
		return second(c.Version(ctx))
	}); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < time.Duration(tries-1)*time.Second {
		t.Errorf("%d tries within %v, though each refusal asks for a second", tries, took)
	}
}

// TestSocketOfTheEnvironment: IPAMD_SOCKET is used where the client names none.
func TestSocketOfTheEnvironment(t *testing.T) {
	rig, _ := start(t)
	t.Setenv("IPAMD_SOCKET", rig.Socket)
	var c client.Client
	defer c.CloseIdleConnections()
	if _, err := c.Healthy(t.Context()); err != nil {
		t.Error(err)
	}
}
