package rebuild

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"slices"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/workload"
)

// after is what comes behind the pass: what the old book withheld, and no workload has
// now, is withheld. What cooled cools again, for its whole time; of the rest no removal
// was confirmed.
func (r *restorer) after(ctx context.Context) error {
	// In the order of their release: so they are given again.
	inOrder := slices.SortedFunc(slices.Values(r.old.Leases), func(x, y *ipam.Lease) int { return cmp.Compare(x.CoolingRev(), y.CoolingRev()) })
	for _, l := range inOrder {
		row, there := r.At(l.Addr)
		all := there && has(row.Range(), l.Range())
		switch {
		case all && row.State != ipam.Quarantined:
			if row.ID != l.ID && l.State != ipam.Cooling && row.Sandbox != l.Sandbox && l.Sandbox != "" {
				r.explain("%s: the old book had it as %s by sandbox %q (lease %s); sandbox %q lives with it",
					l.Addr, l.State, l.Sandbox, l.ID, row.Sandbox)
			}
		case l.State == ipam.Quarantined, r.held[l.Addr], all && (l.State == ipam.Cooling || row.ID == l.ID):
		default:
			asleep := false
			if !there {
				var err error
				if asleep, err = r.hibernated(ctx, l); err != nil {
					return err
				}
			}
			if !asleep {
				said := r.testimonyOf(l)
				said.cools = l.State == ipam.Cooling
				if err := r.withhold(ctx, l, said); err != nil {
					return err
				}
			}
		}
	}
	for _, in := range r.old.Named {
		for _, p := range in.Prefixes() {
			lost := &ipam.Lease{Addr: p.Addr()}
			if !p.IsSingleIP() {
				lost.PrefixLen = p.Bits()
			}
			if row, there := r.At(p.Addr()); !there || row.State == ipam.Quarantined || !has(row.Range(), lost.Range()) {
				if err := r.withhold(ctx, lost, r.testimonyOf(lost)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func has(all, part ipam.Range) bool { return all.Contains(part.From) && all.Contains(part.To) }

// hibernated gives a lease back whose sandbox has no task and no port, as the old book
// knows: that no witness shows it is no news, and who routes to it has to find it paused, not
// gone. It is not given back where something speaks against it.
func (r *restorer) hibernated(ctx context.Context, l *ipam.Lease) (bool, error) {
	if !hibernates(l, r.old.Sleeps) || r.old.Ended[l.ID] || r.absent && len(l.Containers) > 0 || len(workload.SeenOf(r.census, l)) > 0 {
		return false, nil
	}
	if err := r.restore(ctx, l, nil); err != nil {
		return false, err
	}
	_, there := r.At(l.Addr)
	return there, nil
}

// gone reports that nothing is there of a lease that was being released, as far as the witnesses
// show and could show.
func (r *restorer) gone(l *ipam.Lease) bool {
	return len(r.own(l)) == 0 && len(workload.SeenOf(r.census, l)) == 0 && !(r.absent && len(l.Containers) > 0)
}

// withhold keeps an address from being given. One that the pass has quarantined gets the
// old book's word beside the witnesses'.
func (r *restorer) withhold(ctx context.Context, l *ipam.Lease, said testimony) error {
	var also json.RawMessage
	if row, there := r.At(l.Addr); there && row.State == ipam.Quarantined && !said.cools {
		also = row.Evidence
		if err := r.clear(ctx, l.Addr); err != nil {
			return err
		}
	}
	return r.quarantine(ctx, l, also, said)
}

func (r *restorer) clear(ctx context.Context, a netip.Addr) error {
	row, there := r.At(a)
	if !there {
		return nil // no pool has it
	}
	_, err := r.ClearAt(ctx, r.who(ipam.ByOperator), row.ID, row.Rev, nil)
	return err
}

// quarantine quarantines an address as an operator, so that no share prevents it, and
// records whose it was: a lease that was open may be asked for by
// its owner. One that cooled cools again. What no pool has is withheld. also is evidence
// that a book had.
func (r *restorer) quarantine(ctx context.Context, l *ipam.Lease, also json.RawMessage, said testimony) error {
	evidence, err := join(also, said.seen)
	if err != nil {
		said.hold = cmp.Or(said.hold, "the evidence that the book had cannot be read")
	}
	if isRest(l) { // no witness sees an address that is routed to its owner
		said.hold, said.disputed = cmp.Or(said.hold, "its sandbox may use it yet: it is the rest of a delegated prefix of which a part is another's"), true
	}
	who := r.who(ipam.ByOperator)
	if who.Note = said.hold; said.disputed || !l.State.Open() && !l.Former() && l.Sandbox != "" {
		who.Reason = "kept_back"
	}
	former := *l
	former.Plug = r.plug(ctx, l) // with which a pass knows that nothing of it was ever seen
	if _, outlived := r.old.Withheld[l.Addr]; outlived {
		former.ID = "" // it has ended, and only its address cools
	}
	_, there := r.At(l.Addr)
	row, err := r.QuarantineFormer(ctx, who, &former, evidence)
	if errors.Is(err, ipam.ErrNotInPool) {
		if err = r.beside(ctx, who, l, evidence, said.cools); err == nil {
			return nil
		}
	}
	switch {
	case err == nil && said.cools && !there:
		_, err = r.ClearAt(ctx, r.who(ipam.ByOperator), row.ID, row.Rev, nil)
		return err
	case err == nil || !refused(err):
		return err
	case r.divides(l, err):
		said.disputed = true // a part of it is another's: the rest is no lease
		for _, half := range halves(l) {
			if err := r.withhold(ctx, half, said); err != nil {
				return err
			}
		}
		return nil
	}
	r.explain("%s: the old book has it, and it is not withheld: %v", l.Text(), err)
	return nil
}

// beside has an address withheld that no pool has.
func (r *restorer) beside(ctx context.Context, who ipam.Who, l *ipam.Lease, evidence json.RawMessage, cools bool) error {
	w, known := r.old.Withheld[l.Addr]
	if !known {
		w = ipam.Withheld{PoolUID: l.PoolUID, LeaseID: l.ID, Sandbox: l.Sandbox, UID: l.UID, Interface: l.Interface, Since: l.Since,
			HostInterface: l.HostInterface, Netns: l.Netns, Plug: l.Plug}
		for _, p := range r.old.Pools {
			if p.UID == l.PoolUID {
				w.Pool, w.Bridge = p.Name, p.Bridge
			}
		}
	}
	w.Addr, w.PrefixLen, w.State, w.Evidence, w.Hold = l.Addr, l.PrefixLen, ipam.Quarantined, evidence, who.Note
	if cools {
		if now := ipam.Now(); now.Since(l.Since) >= r.rest && now.Wall.Sub(l.Since.Wall) >= r.rest {
			return nil // its cooldown is over
		}
		w.State = ipam.Cooling
	}
	return r.WithholdFormer(ctx, who, w)
}

// divides reports that a delegated prefix is refused because a part of it is another's, so
// that the rest of it can be kept.
func (r *restorer) divides(l *ipam.Lease, err error) bool {
	if l.PrefixLen == 0 {
		return false
	}
	if row, there := r.At(l.Addr); there && has(row.Range(), l.Range()) {
		return false
	}
	var field *ipam.FieldError
	return errors.Is(err, ipam.ErrTaken) || errors.Is(err, ipam.ErrGives) || errors.As(err, &field) && field.Field == "prefix_length"
}

// without is what is left of a row beside others: the row itself, if they have nothing of
// it, or the largest prefixes in which they have nothing.
func without(l *ipam.Lease, others []*ipam.Lease) (out []*ipam.Lease) {
	var in []*ipam.Lease
	for _, o := range others {
		if has(o.Range(), l.Range()) {
			return nil
		}
		if l.Covers(o.Addr) {
			in = append(in, o)
		}
	}
	if len(in) == 0 {
		return []*ipam.Lease{l}
	}
	for _, half := range halves(l) {
		out = append(out, without(half, in)...)
	}
	return out
}

// halves divides a delegated prefix. Neither is a lease that its owner could ask for.
func halves(l *ipam.Lease) (out []*ipam.Lease) {
	p := l.Prefix()
	bits := p.Bits() + 1
	last, _ := l.Range().To.Prefix(bits)
	for _, a := range []netip.Addr{p.Addr(), last.Addr()} {
		half := &ipam.Lease{Addr: a, PrefixLen: bits, PoolUID: l.PoolUID, State: l.State, Sandbox: l.Sandbox, UID: l.UID, Interface: l.Interface,
			Rev: l.Rev, Cooled: l.Cooled, Since: l.Since, Evidence: l.Evidence, Hold: l.Hold}
		if bits == a.BitLen() {
			half.PrefixLen = 0
		}
		out = append(out, half)
	}
	return out
}

// isRest reports that a row is what is left of a delegated prefix that was in use, and of
// which a part is another's.
func isRest(l *ipam.Lease) bool {
	return l.ID == "" && l.Sandbox != "" && (l.State.Open() || l.State == ipam.Releasing)
}

// refused reports whether the book would not have it: the next one may.
func refused(err error) bool {
	var owned *ipam.OwnedError
	return errors.As(err, &owned) || errors.Is(err, ipam.ErrInvalid) || errors.Is(err, ipam.ErrNotInPool) ||
		errors.Is(err, ipam.ErrState) || errors.Is(err, ipam.ErrStale) || errors.Is(err, ipam.ErrTaken) || errors.Is(err, ipam.ErrGives)
}
