package reconciler

import (
	"context"
	"maps"
	"net/netip"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
)

// lookBeside looks for the addresses that no lease has in the namespaces that no witness reads: a
// sandbox may live there whose lease a book that is made anew does not have, as after a
// bridge was deleted and made again.
func (r *Reconciler) lookBeside(ctx context.Context, book []*ipam.Lease) {
	if r.Beside == nil {
		return
	}
	unheld := unheldOf(book)
	at, err := r.Beside(ctx, census.Sought{Has: func(a netip.Addr) bool { return unheld(a) && r.Book.Place(a).Usable }})
	if err != nil {
		r.Log.Warn("reconcile: not all could be looked at beside the bridges", "reason", err)
		all := make(map[netip.Addr]string, len(r.beside)+len(at))
		maps.Copy(all, r.beside) // what was there may be there yet
		maps.Copy(all, at)
		at = all
	}
	r.beside = at
}

// unheldOf returns which addresses no lease has, open or releasing.
func unheldOf(book []*ipam.Lease) func(netip.Addr) bool {
	held := make(map[netip.Addr]bool)
	var prefixes []*ipam.Lease
	for _, l := range book {
		switch {
		case l.State == ipam.Cooling || l.State == ipam.Quarantined:
		case l.PrefixLen != 0:
			prefixes = append(prefixes, l)
		default:
			held[l.Addr] = true
		}
	}
	return func(a netip.Addr) bool { return !held[a] && !inPrefix(prefixes, a) }
}

// addBeside has addresses count as seen that are beside the bridges, and that no lease has.
func addBeside(c census.Census, at map[netip.Addr]string, book []*ipam.Lease) census.Census {
	if len(at) == 0 {
		return c
	}
	unheld := unheldOf(book)
	c.Seen = maps.Clone(c.Seen)
	for a, says := range at {
		if unheld(a) && len(c.Seen[a]) == 0 {
			c.Seen[a] = []census.Sighting{{Addr: a, Witness: census.Netns, At: c.Taken, Note: says}}
		}
	}
	return c
}
