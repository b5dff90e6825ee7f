package enforce

import (
	"context"
	"fmt"
	"time"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/workload"
)

// A place is which ports a lease has, by one reading of them.
type place struct {
	ports []int
	err   error // the kernel did not say which ports lead into its namespace
}

// firstTries is how often the kernel is asked for a place before the first table is made: memory has none then, and
// without it a sandbox would lose what an earlier process gave its port.
const firstTries = 10

// firstWithin is how long that may take for all of them, before the last round.
const firstWithin = 5 * time.Second

// A locator finds the ports of leases, in one boot of the machine.
type locator struct {
	kernel Kernel
	boot   string
}

func (k *Keeper) locator() locator { return locator{k.cfg.Kernel, k.cfg.Boot} }

// namespace is the one that a lease records in this boot.
func (k locator) namespace(l *ipam.Lease) (n RecordedNetns, known bool) {
	return RecordedNetns{Path: l.Netns, Inode: l.Plug.Inode}, l.Netns != "" && l.Plug.Inode != 0 && l.Plug.OfBoot(k.boot)
}

// into asks which ports lead into the namespace that a lease records in this boot; none where it records none.
func (k locator) into(ctx context.Context, l *ipam.Lease) Into {
	if n, known := k.namespace(l); known {
		return k.kernel.PortsInto(ctx, n)[0]
	}
	return Into{}
}

// places finds the ports of all leases that may be used on one. The kernel is asked about all namespaces at once, once about
// each. The error is that of one that it did not say.
func (k locator) places(ctx context.Context, leases []*ipam.Lease, tries int) (at map[string]place, unsaid error) {
	at = make(map[string]place, len(leases))
	find := k.finder(leases)
	var byNetns []*ipam.Lease // whose ports are those into their namespaces
	for _, l := range leases {
		if !workload.MayUse(l.State) {
			continue
		}
		asked := false
		at[l.ID] = place{ports: find(l, func(*ipam.Lease) []int { asked = true; return nil })}
		if _, known := k.namespace(l); asked && known {
			byNetns = append(byNetns, l)
		}
	}
	began := time.Now()
	for range tries {
		said := k.ask(ctx, byNetns)
		left := byNetns[:0]
		unsaid = nil
		for _, l := range byNetns {
			n, _ := k.namespace(l)
			at[l.ID] = place{find(l, func(*ipam.Lease) []int { return said[n].Ports }), said[n].Err}
			if err := said[n].Err; err != nil {
				left, unsaid = append(left, l), fmt.Errorf("find the port of lease %s: %w", l.ID, err)
			}
		}
		if byNetns = left; unsaid == nil || ctx.Err() != nil || time.Since(began) > firstWithin {
			break
		}
	}
	return at, unsaid
}

// ask asks about the namespaces of some leases.
func (k locator) ask(ctx context.Context, leases []*ipam.Lease) map[RecordedNetns]Into {
	said := make(map[RecordedNetns]Into, len(leases))
	var of []RecordedNetns
	for _, l := range leases {
		n, _ := k.namespace(l)
		if _, asked := said[n]; !asked {
			said[n] = Into{}
			of = append(of, n)
		}
	}
	for i, into := range k.kernel.PortsInto(ctx, of...) {
		said[of[i]] = into
	}
	return said
}

// finder finds the ports of many leases, which are all that there are; inside is as that of [Where].
func (k locator) finder(all []*ipam.Lease) func(l *ipam.Lease, inside func(*ipam.Lease) []int) []int {
	recorded := workload.RecordedBy(all, k.boot)
	byIndex, byName := map[int]Port{}, map[string]Port{}
	for _, p := range k.kernel.Ports() {
		byIndex[p.Index], byName[p.Name] = p, p
	}
	return func(l *ipam.Lease, inside func(*ipam.Lease) []int) []int {
		var few []Port // those that the lease may mean
		if p, ok := byIndex[l.Plug.Index]; ok {
			few = append(few, p)
		}
		if p, ok := byName[l.HostInterface]; ok && (len(few) == 0 || few[0] != p) {
			few = append(few, p)
		}
		if l.HostInterface == "" {
			few = k.kernel.Ports()
		}
		return Where(l, few, recorded, inside)
	}
}
