package enforce

import (
	"context"
	"maps"
	"slices"

	"github.com/ipamd/ipamd/nft"
)

// What a port in no set sends is not judged where it comes in, since by the kernel's hooks alone its
// bridge is not known, and so the bridge learns its sender. By one frame a port that is in
// no set yet has it take a lease's MAC to be there. What is for the lease does not leave by that
// port, but reaches the lease only once that sends again: so when the port is in a set, and
// can do so no more, the bridge forgets what it has learned there before.

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
