package main

import (
	"testing"

	"github.com/ipamd/ipamd/api"
)

// A lease that an older ipamd bound, which recorded nothing of what it was seen by, does not end for
// being unseen: it is not known whether a witness can see it. Once it was seen in place it ends as any other.
func TestWhatAnOlderIpamdBoundIsNotGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hasty)
	w.ns.Bridge("br9")
	off, there := w.ns.Port("br9"), w.ns.Port("rt0") // no witness watches br9
	unseen := w.boundAs("unseen", api.BindRequest{MAC: off.MAC.String()}, nil)
	seen := w.boundAs("seen", api.BindRequest{MAC: there.MAC.String()}, nil)
	off.AddAddr(unseen.Address + "/24")
	w.stopDaemon()
	w.edit(`UPDATE leases SET plug = ''`)
	w.start()
	w.staysAs(unseen, api.Bound, "of an ipamd before")
	there.AddAddr(seen.Address + "/24")
	w.seenInPlace(seen)
	there.Close()
	w.passesUntil(seen.Address, api.Cooling)
	w.staysAs(unseen, api.Bound, "another lease has ended")
}
