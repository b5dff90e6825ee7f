package main

import (
	"slices"
	"testing"
	"time"

	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
)

// A slot that was claimed by a caller that failed before it made a container is a finding once
// the time of a bind is over, and its release takes it down.
func TestASlotThatIsNotUsedIsFound(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, quick, withContainerd(d), func(c *config.Config) { c.Allocation.BindWithin = config.Duration(time.Second) })
		w.warmHelper()
		w.keepSlots(1400, &ipam.Warm{Size: 1, Max: 2})
		given := w.warmFor("failed")
		found := "slot_unused " + given.Leases[0].Address
		realtest.Eventually(t, wait, "the finding", func() bool { return slices.Contains(w.findings(), found) })
		if is := w.state(given.Leases[0].Address); is != "bound" {
			t.Errorf("the lease is %s", is)
		}
		w.releaseOf(given)
		realtest.Eventually(t, wait, "the namespace to go", func() bool { return !slices.Contains(w.namespaces(), given.Slot.Netns) })
		if got := w.findings(); slices.Contains(got, found) {
			t.Errorf("after its release: %q", got)
		}
	})
}
