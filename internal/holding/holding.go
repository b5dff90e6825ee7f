// Package holding reads who held which address when, from changes.
package holding

import (
	"slices"
	"time"

	"github.com/ipamd/ipamd/api"
)

// A Holding is one lease's time with an address, read from its changes.
type Holding struct {
	Lease, Address, Sandbox string

	From    time.Time // taken; zero: before the changes that are there
	Until   time.Time // released; zero: held still, as far as the changes show
	Why, By string    // reason and actor of the end
	Now     api.State // after the newest change
	First   int64     // revision of the oldest change that is there
	Last    int64     // and of the newest
}

// Read reads who held what from changes, which come newest first, and
// answers in the same order. A quarantine is no holding; a lease that
// was released and adopted again has two.
func Read(changes []api.Change) []Holding {
	var out []Holding
	latest := map[[2]string]int{} // by lease and address
	for _, ch := range slices.Backward(changes) {
		key := [2]string{ch.LeaseID, ch.Address}
		taken := !Open(ch.From) && Open(ch.To)
		at, known := latest[key]
		switch {
		case ch.Sandbox == "" && !known:
			continue
		case !known || taken:
			at = len(out)
			latest[key] = at
			out = append(out, Holding{Lease: ch.LeaseID, Address: ch.Address, Sandbox: ch.Sandbox, First: ch.Revision})
			if taken {
				out[at].From = ch.At
			}
		}
		t := &out[at]
		t.Now, t.Last = ch.To, ch.Revision
		if Open(ch.From) && !Open(ch.To) {
			t.Until, t.Why, t.By = ch.At, ch.Reason, ch.Actor
		}
	}
	slices.Reverse(out)
	return out
}

// Open reports whether a sandbox has the address to itself in a state.
func Open(s api.State) bool {
	return s == api.Reserved || s == api.Bound || s == api.Paused
}
