package enforce

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ipamd/ipamd/internal/broadcast"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/workload"
)

// Ensure returns when the kernel has the rules of a lease, as the book has it now. A lease
// without a port has none. One that has ended is an [ipam.ErrState], or what [Book.Lease] returns
// of it. [ErrNotHeld] means that its port exists, or may exist, and could not be read; or that the port
// is another lease's.
func (k *Keeper) Ensure(ctx context.Context, id string) error {
	select {
	case <-k.started:
	case <-ctx.Done():
		return fmt.Errorf("%w: they are not made yet: %w", ErrNotHeld, ctx.Err())
	}
	for {
		l, err := k.cfg.Book.Lease(id)
		if err != nil {
			return fmt.Errorf("make the rules of lease %s: %w", id, err)
		}
		if !l.State.Open() && l.State != ipam.Releasing {
			return fmt.Errorf("make the rules of lease %s: %w: it is %s", id, ipam.ErrState, l.State)
		}
		if stands, err := k.ensure(ctx, l); stands || err != nil {
			return err
		}
	}
}

// ensure makes the rules of a lease; stands is false where the book has changed it meanwhile,
// and nothing was done. It may have been released, and confirmed: who read it before that
// would give a port rules that nothing takes away.
func (k *Keeper) ensure(ctx context.Context, l *ipam.Lease) (stands bool, err error) {
	// A port that was plugged a moment ago may not be known yet.
	unseen := k.cfg.Kernel.Settle(ctx, l.Addr)
	if unseen != nil && ctx.Err() != nil {
		return false, unseen
	}
	reading := k.readings.Add(1)
	near := k.near(l)
	var all []*ipam.Lease
	if workload.ByName(l, k.cfg.Boot) { // seldom: a bind records the link where it is there
		all, _ = k.cfg.Book.Leases()
	}
	recorded := workload.RecordedBy(all, k.cfg.Boot)
	at := k.whereAmong(ctx, l, near, recorded)
	var portErr error // why it may have no port
	if len(at.ports) == 0 && workload.MayUse(l.State) {
		if portErr = anothers(l, near, k.cfg.Boot, all, recorded); portErr == nil && (unseen != nil || l.HostInterface == "") {
			portErr = k.mayBeThere(ctx, l, unseen)
		}
	}
	k.mu.Lock()
	if now, err := k.cfg.Book.Lease(l.ID); err != nil || now.Rev != l.Rev {
		k.mu.Unlock()
		return false, nil
	}
	err = k.change(ctx, func() {
		// Run takes in the other ports: a bind does not take longer where there are many.
		for _, p := range near {
			if now, is := k.cfg.Kernel.PortNamed(p.Name); is && now.Index == p.Index && slices.Contains(at.ports, p.Index) {
				k.takePort(p)
			}
		}
		portErr = errors.Join(portErr, k.share(l, at, reading))
	})
	wrong, came := k.wrong(slices.Values(at.ports)), len(k.came) > 0
	k.mu.Unlock()
	if came {
		broadcast.Wake(k.bound)
	}
	groups := setGroups(ctx, k.cfg.Kernel, wrong)
	if groups != nil {
		groups = fmt.Errorf("%w: %w", ErrNotHeld, groups)
		k.Again() // Run sets them, or notes why not
	}
	return true, errors.Join(err, portErr, groups)
}

// share takes in a lease at its ports. If another sandbox's lease records the same link, only the later of the
// two has the port: the earlier one's record is out of date, and its address is kept from every port. The error
// says that the other is the later. k.mu is held.
func (k *Keeper) share(l *ipam.Lease, at place, reading uint64) (portErr error) {
	both := []*ipam.Lease{l}
	for _, i := range at.ports {
		for _, id := range k.users[i] {
			if o, err := k.cfg.Book.Lease(id); err == nil && o.UID != l.UID && workload.MayUse(o.State) {
				both = append(both, o)
			}
		}
	}
	if len(both) > 1 {
		recorded := workload.RecordedBy(both, k.cfg.Boot)
		having := func(l *ipam.Lease, at []int) []int {
			return slices.DeleteFunc(at, func(i int) bool { return l.HostInterface != "" && !recorded.Has(l, i, k.ports[i].Name) })
		}
		for _, o := range both[1:] {
			had := portsOf(k.grants[o.ID])
			if has := having(o, slices.Clone(had)); len(has) < len(had) {
				k.set(o, place{ports: has}, reading)
			} else if len(having(l, slices.Clone(at.ports))) < len(at.ports) {
				portErr = errPortOfAnother(k.ports[at.ports[0]].Name, o)
			}
		}
		at.ports = having(l, at.ports)
	}
	k.set(l, at, reading)
	return portErr
}

// portsOf are those of grants.
func portsOf(all []Grant) (at []int) {
	for _, g := range all {
		if g.Port != 0 {
			at = append(at, g.Port)
		}
	}
	return at
}

// anothers is an error where the port of a lease's name is there, and is not the lease's, but of
// others among all. The bind records its link if it is asked for again.
func anothers(l *ipam.Lease, near []Port, boot string, all []*ipam.Lease, recorded workload.Recorded) error {
	for _, p := range near {
		if p.Name != l.HostInterface || !workload.ByName(l, boot) {
			continue
		}
		for _, o := range all {
			if o.UID != l.UID && len(Where(o, []Port{p}, recorded, nil)) > 0 {
				return errPortOfAnother(p.Name, o)
			}
		}
	}
	return nil
}

func errPortOfAnother(name string, o *ipam.Lease) error {
	return fmt.Errorf("%w: port %s is that of sandbox %s, lease %s, which is %s", ErrNotHeld, name, o.Sandbox, o.ID, o.State)
}

// mayBeThere is an error where a lease's port is there, or may be, and was not read with the kernel's
// news, or by its namespace. That something else could not be read is none: a lease may be bound before its port is
// there.
func (k *Keeper) mayBeThere(ctx context.Context, l *ipam.Lease, unseen error) (err error) {
	is := false
	switch {
	case workload.ByName(l, k.cfg.Boot):
		is, err = k.cfg.Kernel.IsPort(ctx, l.HostInterface, 0)
	case l.HostInterface != "":
		is, err = k.cfg.Kernel.IsPort(ctx, l.HostInterface, l.Plug.Index)
	default:
		into := k.locator().into(ctx, l)
		is, err = len(into.Ports) > 0 || unseen != nil && len(into.Unopened) > 0, into.Err
	}
	if is && unseen == nil && err == nil {
		return fmt.Errorf("%w: its port came a moment ago", ErrNotHeld)
	}
	if err != nil || is {
		return fmt.Errorf("%w: its port may be there, and could not be looked for: %w", ErrNotHeld, errors.Join(unseen, err))
	}
	return nil
}

// Withdraw returns when the kernel has no rule of a lease any more, which is still at that
// revision. Until [Keeper.Restore], or until the lease changes, it gets none.
func (k *Keeper) Withdraw(ctx context.Context, id string, revision int64) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.withdrawn[id] = revision
	return k.change(ctx, func() { k.drop(id) })
}

// Restore gives a lease its rules back whose end was not recorded.
func (k *Keeper) Restore(id string) {
	k.mu.Lock()
	delete(k.withdrawn, id)
	k.mu.Unlock()
	k.Again()
}
