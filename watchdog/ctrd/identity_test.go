package ctrd_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/watchdog"
	"github.com/ipamd/ipamd/watchdog/ctrd"
)

// A hall notes whom the witness met, and believes some.
type hall struct {
	mu   sync.Mutex
	met  []string
	only string // "" is all
}

func (h *hall) meet(_ context.Context, id string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.met = append(h.met, id)
	if h.only != "" && h.only != id {
		return errors.New("it is a stranger")
	}
	return nil
}

func (h *hall) last() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.met) == 0 {
		return ""
	}
	return h.met[len(h.met)-1]
}

func (h *hall) believe(id string) { h.mu.Lock(); h.only = id; h.mu.Unlock() }

// containerd keeps its id over a restart, and another has another.
func TestIdentityIsOfTheDisk(t *testing.T) {
	ctrdtest.Each(t, func(t *testing.T, d *ctrdtest.Daemon) {
		var h hall
		x := look(t, d, func(c *ctrd.Config) { c.Met = h.meet })
		if err := x.w.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		first := h.last()
		d.Restart()
		if err := x.w.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if first == "" || h.last() != first || len(h.met) != 2 {
			t.Errorf("met %q", h.met)
		}
		other := ctrdtest.Start(t, ctrdtest.V2)
		y := look(t, other, func(c *ctrd.Config) { c.Met = h.meet })
		if err := y.w.Refresh(t.Context()); err != nil || h.last() == first {
			t.Errorf("another one has the id %q, too: %v", h.last(), err)
		}
	})
}

// A containerd that is not believed cannot say that a container is gone. What
// it shows is seen.
func TestLookNeedsTheRightContainerd(t *testing.T) {
	ctrdtest.Each(t, func(t *testing.T, d *ctrdtest.Daemon) {
		h := hall{only: "the one before"}
		x := look(t, d, func(c *ctrd.Config) { c.Met = h.meet })
		x.container("a", "10.8.64.2")
		if err := x.w.Refresh(t.Context()); err != nil || x.by("10.8.64.2") != "sandboxes/a" || !x.speaks() {
			t.Fatalf("read: %v; it sees %q and is silent: %q", err, x.by("10.8.64.2"), x.silence())
		}
		x.lookIs("a", watchdog.Look{Found: true})
		if got, err := x.w.Look(t.Context(), named("b")); err == nil || !strings.Contains(err.Error(), "it is a stranger") {
			t.Errorf("b, of which it knows nothing: %+v, %v", got, err)
		}
		h.believe(h.last())
		x.lookIs("b", watchdog.Look{})
	})
}
