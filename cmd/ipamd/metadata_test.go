package main

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// F26: containerd loses its metadata, not its id, while no address is on the wire.
// It says of each container that it is not there, and nothing is released on that
// word, before a restart of ipamd and after, until an operator confirms it.
func TestF26MetadataOfContainerdLost(t *testing.T) {
	t.Parallel()
	ctrdtest.Each(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), quick, func(c *config.Config) {
			c.Allocation.Cooldown, c.Reconcile.Age = config.Duration(time.Hour), config.Duration(50*time.Millisecond)
		})
		var held []api.Lease
		for i := range 3 {
			name := fmt.Sprint("s", i)
			l := w.allocate(name).Leases[0]
			d.Create(t, ctrdtest.Spec{ID: name, Labels: labels(name, l.Address)})
			realtest.Eventually(t, wait, name+" to be seen", func() bool { return seenBy(w, l.Address, "runtime") })
			held = append(held, w.bind(l, name))
		}
		w.watched()
		d.LoseMetadata()
		for _, again := range []bool{false, true} {
			if again {
				w.stopDaemon()
				w.start()
			}
			realtest.Eventually(t, wait, "doctor to report it", func() bool { return slices.Contains(w.findings(), "runtime_changed") })
			held0 := w.metric("reap_held_total")
			realtest.Eventually(t, wait, "a pass that holds", func() bool { return w.metric("reap_held_total") != held0 })
			for _, l := range held {
				if got := w.state(l.Address); got != api.Bound {
					t.Fatalf("%s is %s, restarted %v", l.Address, got, again)
				}
			}
		}
		w.pass()
		for _, l := range held {
			w.becomes(l.Address, api.Cooling)
		}
	})
}
