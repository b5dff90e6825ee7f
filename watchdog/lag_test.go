package watchdog_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/watchdog"
)

// A hurried runtime is the real one, in which something happens right before
// its list is read.
type hurried struct {
	watchdog.Runtime
	before atomic.Pointer[func()]
}

func (h *hurried) Tied(ctx context.Context, ties []watchdog.Tie) ([]watchdog.Record, error) {
	if do := h.before.Swap(nil); do != nil {
		(*do)()
	}
	return h.Runtime.Tied(ctx, ties)
}

// The board knows of no container. Then the runtime's list alone shows what
// belongs to a lease and has not been looked up: by its lease label, by its
// owner label, or by the id of one that was gone and is made anew.
func TestTheListSpeaksWhereTheBoardLags(t *testing.T) {
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		now := new(hurried)
		s := newScene(t, d, func(c *watchdog.Config) {
			c.Board = census.NewBoard(census.Runtime)
			c.Board.Replace(census.Runtime, nil, nil)
			now.Runtime, c.Runtime = c.Runtime, now
		})
		pool := s.book.Pools()[0]
		for _, tt := range []struct {
			id     string
			labels func(*ipam.Lease) map[string]string
			record bool
		}{
			{"by-lease", func(l *ipam.Lease) map[string]string { return map[string]string{"ipamd.dev/lease-id": l.ID} }, false},
			{"by-owner", func(l *ipam.Lease) map[string]string {
				return map[string]string{"runtime.computer/entity-id": l.Sandbox}
			}, false},
			{"by-id", func(*ipam.Lease) map[string]string { return nil }, true},
		} {
			n := ipam.Binding{HostInterface: "veth-" + tt.id}
			if tt.record {
				n.Containers = []ipam.Container{{Namespace: space, ID: tt.id}}
			}
			b := s.leased(pool, "sandbox-"+tt.id, "sandbox-"+tt.id, "eth0", n)
			begins := func() { d.Create(t, ctrdtest.Spec{Namespace: space, ID: tt.id, Labels: tt.labels(b.lease)}) }
			now.before.Store(&begins)
			s.release(b)
			if got := s.blocked(b, watchdog.KindContainer); !strings.Contains(got, tt.id) {
				t.Errorf("%s is blocked because %q", b.name, got)
			}
			d.Delete(t, space, tt.id)
			s.cools(b)
		}
	})
}
