package main

import (
	"fmt"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// F22: a client that names its port alone, before or after the daemon took the
// containers from their labels, leaves them recorded. So a removal that nobody
// reports is noticed by events, and no pass by the clock runs.
func TestF22ABindOfThePortKeepsTheContainers(t *testing.T) {
	ctrdtest.Each(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), slow)
		for name, first := range map[string]bool{"a": true, "b": false} {
			b := &box{name: name, held: w.allocate(name).Leases[0]}
			b.port = w.ns.Port("rt0", fmt.Sprintf("%s/%d", b.held.Address, b.held.PrefixLen))
			recorded := func() bool {
				l, err := w.client.Lease(ctx, b.held.ID)
				return err == nil && len(l.Lease.Containers) == 1 && l.Lease.HostInterface == b.port.HostName
			}
			bind := func() {
				if _, err := w.client.Bind(ctx, b.held.ID, api.BindRequest{HostInterface: b.port.HostName}); err != nil {
					t.Fatal(err)
				}
			}
			if first {
				bind()
			}
			b.run(w, d)
			realtest.Eventually(t, wait, name+": its container to be recorded", recorded)
			if !first {
				bind()
			}
			if !recorded() {
				t.Errorf("%s: a bind of its port took its container away", name)
			}
			d.Delete(t, "default", name)
			b.port.Close()
			w.becomes(b.held.Address, api.Cooling)
		}
	})
}
