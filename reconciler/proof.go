package reconciler

import (
	"context"
	"net/netip"
	"slices"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/workload"
)

// A label is a claim of who wrote it. A claim is adopted, and a container bound to a
// lease, when the kernel backs it or when it names the very lease; any other would give
// the address of one sandbox to another one, or have the lease of one wait for the
// container of another, by a label alone.

// A proof is what is known of the claims on addresses.
type proof struct {
	homes map[uint32]census.Home // of tasks, by their first process
	given map[givenTo]bool       // leases that the history knows with the very address and owner that claim them
}

// A givenTo is what a container says of the lease that it names.
type givenTo struct {
	id   string
	addr netip.Addr
	uid  string
}

// prove asks kernel and history about the claims that a plan may act on. What cannot
// be answered proves nothing, and the next look asks again.
func (r *Reconciler) prove(ctx context.Context, v *view) {
	v.proof = proof{homes: make(map[uint32]census.Home), given: make(map[givenTo]bool)}
	held := make(map[netip.Addr]bool, len(v.book))
	for _, l := range v.book {
		held[l.Addr] = l.State != ipam.Cooling && l.State != ipam.Quarantined
		r.askHomes(ctx, v, v.unsure(l))
		if held[l.Addr] {
			r.askHomes(ctx, v, v.others(l))
		}
	}
	r.askWhoLivesThere(ctx, v)
	for addr, seen := range v.census.Seen {
		if held[addr] || seen[0].Witness != census.Runtime || !v.place(addr).Usable {
			continue // the board has a container's claim first
		}
		for _, c := range claimants(seen) {
			if c.sandbox != "" {
				r.askHomes(ctx, v, c.containers)
				r.askHistory(ctx, v, addr, c)
			}
		}
	}
}

// askWhoLivesThere asks where the containers of the other leases live, once a witness first sees one that
// records no container behind a port that no lease names: it may be one of theirs.
func (r *Reconciler) askWhoLivesThere(ctx context.Context, v *view) {
	for _, l := range v.book {
		if l.State != ipam.Bound && l.State != ipam.Paused {
			continue
		}
		if _, news := v.inPlace(l); !news {
			continue
		}
		for _, o := range v.book {
			if o.UID != l.UID && o.State.Open() {
				r.askHomes(ctx, v, v.of(o))
			}
		}
	}
}

func (r *Reconciler) askHistory(ctx context.Context, v *view, addr netip.Addr, c claimant) {
	for _, s := range c.containers {
		to := givenTo{s.LeaseID, addr, s.UID}
		if _, asked := v.given[to]; asked || s.LeaseID == "" {
			continue
		}
		given, err := r.Book.Given(ctx, to.id, addr, c.sandbox, to.uid)
		v.given[to] = err == nil && given
	}
}

func (r *Reconciler) askHomes(ctx context.Context, v *view, of []census.Sighting) {
	for _, s := range of {
		if _, known := v.homes[s.PID]; known || s.PID == 0 || r.Home == nil {
			continue
		}
		if home, err := r.Home(ctx, s.PID); err == nil {
			v.homes[s.PID] = home
		}
	}
}

// proven returns what of a claim on an address is more than a label: the containers
// whose tasks live where it is, and those whose label names a lease that the history
// knows. Nothing of the kernel may show the address in another place. When nothing is,
// the claim comes back as it was.
func (v *view) proven(c claimant, addr netip.Addr, seen []census.Sighting) (claimant, bool) {
	live, elsewhere := v.lodged(c.containers, seen)
	p := claimant{sandbox: c.sandbox}
	for _, s := range c.containers {
		if slices.Contains(live, s) || !elsewhere && v.given[givenTo{s.LeaseID, addr, s.UID}] {
			p.add(s)
		}
	}
	if len(p.containers) == 0 {
		return c, false
	}
	return p, true
}

// rightful returns the one claimant of several in whose namespace the kernel shows the
// address, with what is seen of that one and of no other claimant: what others say by a
// label alone does not stand against it, while a frame, or the label of a lease that has
// ended, proves nothing against another's claim, for both can be copied. When that is not
// exactly one, all come back.
func (v *view) rightful(claims []claimant, seen []census.Sighting) ([]claimant, []census.Sighting) {
	inside := slices.DeleteFunc(slices.Clone(claims), func(c claimant) bool {
		live, _ := v.lodged(c.containers, seen)
		return c.sandbox == "" || !slices.ContainsFunc(seen, func(s census.Sighting) bool { return s.Witness == census.Netns && len(v.at(live, s)) > 0 })
	})
	if len(inside) != 1 {
		return claims, seen
	}
	return inside, slices.DeleteFunc(slices.Clone(seen), func(s census.Sighting) bool {
		return s.Witness == census.Runtime && !slices.Contains(inside[0].containers, s)
	})
}

// lodged returns those of some containers whose tasks live in the one namespace that has the address; where
// no namespace has it, those behind the port that alone shows it. elsewhere reports that the
// kernel shows the address at a place where none of them lives: at the host itself, in a namespace that is
// not theirs, or in two namespaces with different tasks of theirs, of which one is there by its label
// alone. Neighbours and answers may be forged, so they do not count against a namespace.
func (v *view) lodged(of, seen []census.Sighting) (live []census.Sighting, elsewhere bool) {
	var within, behind []census.Sighting
	inside := false
	for _, s := range seen {
		at := v.at(of, s)
		switch {
		case s.Witness == census.Runtime:
		case s.Witness == census.Host:
			return nil, true // also on a port that leads to the claimant: the host's end of it is not the sandbox
		case s.Witness == census.Netns && inside:
			within = slices.DeleteFunc(within, func(s census.Sighting) bool { return !slices.Contains(at, s) })
		case s.Witness == census.Netns && len(at) > 0:
			within, inside = at, true
		case len(at) > 0:
			behind = append(behind, at...)
		case s.Witness == census.Netns:
			return nil, true
		default:
			elsewhere = elsewhere || s.Port != "" && s.Port != s.Bridge
		}
	}
	switch {
	case inside:
		return within, len(within) == 0
	case elsewhere:
		return nil, true
	}
	return behind, false
}

// at returns those of some containers whose tasks live where something was seen.
func (v *view) at(of []census.Sighting, s census.Sighting) (out []census.Sighting) {
	for _, one := range of {
		if h, known := v.homes[one.PID]; known && h.Has(s) {
			out = append(out, one)
		}
	}
	return out
}

// sure reports that a container which belongs to a lease is more to it than a label of
// its sandbox's: the lease records it, or it carries the lease's id.
func sure(l *ipam.Lease, s census.Sighting) bool {
	return s.LeaseID == l.ID || slices.Contains(l.Containers, containerOf(s))
}

// unsure returns the containers of a lease of which the kernel has to say whether they
// are more to it than a label, because they would bind, pause or resume it, and where
// those live that bind it.
func (v *view) unsure(l *ipam.Lease) []census.Sighting {
	switch {
	case l.State == ipam.Reserved, l.State == ipam.Bound && len(l.Containers) == 0, l.State == ipam.Paused:
	case l.State != ipam.Bound || !allPaused(v.recorded(l)):
		return nil
	}
	return slices.DeleteFunc(v.of(l), func(s census.Sighting) bool { return s.PID == 0 || l.State != ipam.Reserved && sure(l, s) })
}

// recorded returns what the runtime shows of the containers that a lease records.
func (v *view) recorded(l *ipam.Lease) (out []census.Sighting) {
	for _, c := range l.Containers {
		out = append(out, v.containers.At(c)...)
	}
	return out
}

// backed returns those of a lease's containers that are more to it than a label: they
// are sure, or their tasks live where its address is, or behind the port that it
// records. Of a paused lease the second proves nothing: its own workload may not run at all, so another one
// could take the address, and would then pass for it.
func (v *view) backed(l *ipam.Lease, own []census.Sighting) []census.Sighting {
	var live []census.Sighting
	if l.State != ipam.Paused {
		live, _ = v.lodged(own, workload.SeenOf(v.census, l))
	}
	if l.HostInterface != "" {
		live = append(live, v.at(own, census.Sighting{Port: l.HostInterface})...)
	}
	return slices.DeleteFunc(slices.Clone(own), func(s census.Sighting) bool { return !sure(l, s) && !slices.Contains(live, s) })
}
