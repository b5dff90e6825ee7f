package reconciler

import (
	"context"
	"net/netip"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/netdb"
)

// A label is a claim of who wrote it. A claim is adopted when the kernel backs it,
// or when the history knows the lease that it names; any other would give the
// address of one sandbox to another one by a label alone.

// A proof is what is known of the claims on addresses that nobody holds.
type proof struct {
	homes map[uint32]census.Home // of tasks, by their first process
	given map[string]bool        // lease ids that the history knows with the very address and owner that claim them
}

// prove asks kernel and history about the claims that a plan may adopt. What cannot
// be answered proves nothing, and the next look asks again.
func (r *Reconciler) prove(ctx context.Context, v *view) {
	v.proof = proof{homes: make(map[uint32]census.Home), given: make(map[string]bool)}
	held := make(map[netip.Addr]bool, len(v.book))
	for _, l := range v.book {
		held[l.Addr] = l.State != netdb.Cooling && l.State != netdb.Quarantined
	}
	for addr, seen := range v.census.Seen {
		if held[addr] || seen[0].Witness != census.Runtime || !v.place(addr).Usable {
			continue // the board has a container's claim first
		}
		claims := claimants(seen)
		if len(claims) != 1 || !claims[0].named() {
			continue
		}
		c := claims[0]
		for _, s := range c.containers {
			if _, known := v.homes[s.PID]; known || s.PID == 0 || r.Home == nil {
				continue
			}
			if home, err := r.Home(ctx, s.PID); err == nil {
				v.homes[s.PID] = home
			}
		}
		if id := c.leaseID(); id != "" {
			given, err := r.Book.Given(ctx, id, addr, c.sandbox, c.uid)
			v.given[id] = err == nil && given
		}
	}
}

// proven reports whether a claim on an address is more than a label: a task of the
// claimant lives in the namespace that has the address, or behind whose port it is;
// or the history knows the lease that the label names. Nothing of the kernel may show the address in
// another place. What a neighbour or an answer shows there may be forged, and does
// not count against the namespace itself.
func (v *view) proven(c claimant, seen []census.Sighting) bool {
	has, within, elsewhere := false, false, false
	for _, s := range seen {
		switch in := v.home(c, s); {
		case s.Witness == census.Runtime:
		case s.Witness == census.Host:
			return false // also on a port that leads to the claimant: the host's end of it is not the sandbox
		case in:
			has, within = true, within || s.Witness == census.Netns
		case s.Witness == census.Netns:
			return false
		default:
			elsewhere = elsewhere || s.Port != "" && s.Port != s.Bridge
		}
	}
	return within || (has || v.given[c.leaseID()]) && !elsewhere
}

// home reports whether something was seen where a task of a claimant lives.
func (v *view) home(c claimant, s census.Sighting) bool {
	for _, one := range c.containers {
		if h, known := v.homes[one.PID]; known && h.Has(s) {
			return true
		}
	}
	return false
}
