package enforce

import (
	"context"
	"iter"
	"slices"
)

// A frame to one of the group addresses 01-80-C2-00-00-00 to -0F may carry any protocol, and
// the kernel hands it by the port to the host's own stack: past the hook where the rules
// are, and as far as 00 and 0E go past all hooks. Such a frame with a neighbour's source has
// the bridge send the neighbour's frames to this port, and one with its address is received
// by the host. The ports of sandboxes have these frames take the way of all others. Those
// that may be an uplink's, trusted or without a lease where such may send, keep what the
// kernel does with them: STP, LACP and LLDP are of the port. The bridges are told not to learn the
// senders of such frames. To the kernel these are IFLA_BRPORT_GROUP_FWD_MASK of a port, and no_linklocal_learn of a bridge.

// judges reports whether a port's frames to those addresses take the way of all others.
// Observe changes no frame's way.
func (d *desired) judges(p Port) bool {
	policy := d.policy
	return policy.Mode == Enforce && (len(d.users[p.Index]) > 0 || policy.DropUnleased && !policy.Trusts(p.Name))
}

// wrong are those of some ports whose frames take the wrong way, as far as is known, in order of their indexes.
func (d *desired) wrong(indexes iter.Seq[int]) (out []Port) {
	for i := range indexes {
		if p, is := d.ports[i]; is && p.ForwardsGroups != d.judges(p) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b Port) int { return a.Index - b.Index })
	return out
}

// setBridges has no bridge learn from those frames.
func (k *Keeper) setBridges(ctx context.Context) error {
	if k.cfg.Policy.Mode != Enforce {
		return nil
	}
	var errs []error
	for _, b := range k.cfg.Kernel.Bridges() {
		if b.LearnsGroups {
			if err := k.cfg.Kernel.LearnNoGroups(ctx, b.Index); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return some(errs)
}

// setGroups has the frames of some ports take the other way than now. It is called without the keeper's lock.
func setGroups(ctx context.Context, kernel Kernel, ports []Port) error {
	var errs []error
	for _, p := range ports {
		if err := kernel.SetGroups(ctx, p.Index, !p.ForwardsGroups); err != nil {
			errs = append(errs, err)
		}
	}
	return some(errs)
}
