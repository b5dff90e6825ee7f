package main

import (
	"strings"
	"testing"

	"github.com/ipamd/ipamd/api"
)

// A detach asks for a release only where the lease was not released yet.
func TestDetachedNamesWhatIsLeft(t *testing.T) {
	for state, left := range map[api.State]bool{
		api.Reserved: true, api.Bound: true, api.Paused: true,
		api.Releasing: false, api.Cooling: false, api.Quarantined: false,
	} {
		got := detached(&api.Lease{State: state}, "0a1b2c3d")
		if asks := strings.Contains(got, "ipamctl release 0a1b2c3d"); asks != left {
			t.Errorf("%s: %q", state, got)
		}
	}
}
