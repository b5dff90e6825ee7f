package enforce

import (
	"context"
	"maps"
	"slices"

	"github.com/ipamd/ipamd/nft"
)

// A frame from a port in no set is not judged where it comes in, because the hooks there do not
// show its bridge. So the bridge learns the frame's sender: with one frame such a port has the
// bridge take a lease's MAC to be behind it. Frames for the lease are then dropped, and not
// delivered, until the lease sends again. So once the port is in a set, the bridge is made to
// forget what it learned there.

// noteFresh takes in which ports were in no set of the kernel's table as it was found: that of an
// earlier process, or one that another program changed.
func (d *desired) noteFresh(have *nft.Table, made bool) {
	in := map[string]bool{}
	if have != nil {
		for _, name := range []string{setLeased, setUnleased} {
			if s := have.Set(name); s != nil {
				for _, e := range s.Elements {
					in[e.Key] = true
				}
			}
		}
	}
	for i := range d.ports {
		if !in[nft.Key(i)] {
			d.fresh[i] = true
		} else if !made {
			delete(d.fresh, i)
		}
	}
}

// takeFresh returns the ports that the write which ended with err has put into a set, and forgets them; none after
// an error.
func (d *desired) takeFresh(err error) []int {
	if err != nil {
		return nil
	}
	out := slices.Sorted(maps.Keys(d.fresh))
	clear(d.fresh)
	if d.policy.Mode != Enforce {
		return nil
	}
	return out
}

// unlearn has the bridges forget. It asks the kernel, and is called without the lock.
func (k *Keeper) unlearn(ctx context.Context, ports []int) error {
	var errs []error
	for _, i := range ports {
		if err := k.cfg.Kernel.Unlearn(ctx, i); err != nil {
			k.mu.Lock()
			k.fresh[i] = true
			k.mu.Unlock()
			errs = append(errs, err)
		}
	}
	return some(errs)
}
