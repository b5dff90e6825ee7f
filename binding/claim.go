package binding

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/workload"
)

// betweenTries is the pause between a change of the book and the next try of a call that waits
// for a slot, so that many waiting calls do not read all slots after each commit.
const betweenTries = 5 * time.Millisecond

// slotWithin is how long a claim waits for the kernel to say which link and namespace a slot has: it
// goes on to the next slot then, and to an address without one.
const slotWithin = 100 * time.Millisecond

// claim gives a sandbox a warm slot that is ready, or the lease that it has already. A nil result
// without an error means that no slot is ready, and that the request takes an address without one.
//
// A slot is examined before it is claimed. The claim is one transaction, which compares the slot's
// spec with its pool's. A slot that differs from what was made is never given; the next one is tried.
func (a OneCallAllocator) claim(ctx context.Context, r allocator.Request) (*allocator.Result, error) {
	over := time.NewTimer(r.Warm.Wait)
	defer over.Stop()
	for waited := r.Warm.Wait <= 0; ; {
		changed := a.Book.Changed()
		given, why, err := a.claimOnce(ctx, r)
		if given != nil || err != nil {
			return given, err
		}
		if waited {
			if !r.Warm.Require && !r.Warm.Fail {
				return nil, nil
			}
			return nil, fmt.Errorf("%w: %s", allocator.ErrNoSlot, why)
		}
		select {
		case <-changed:
			time.Sleep(betweenTries)
		case <-over.C:
			waited = true // and once more
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// claimOnce tries each slot once. Without a result and an error it says why there is none.
func (a OneCallAllocator) claimOnce(ctx context.Context, r allocator.Request) (given *allocator.Result, why string, err error) {
	began := time.Now()
	pools, err := a.Ready(ctx, &r)
	if err != nil {
		return nil, "", err
	}
	if len(pools) != 1 {
		return nil, "", &ipam.FieldError{Field: "family", Reason: "a warm slot has one address; ask for v4 or v6, or for no slot"}
	}
	p := pools[0]
	if _, held := a.Book.OpenLease(ipam.Owner{PoolUID: p.UID, UID: r.UID, Interface: r.Interface}); held {
		return a.held(ctx, r)
	}
	if p.Warm == nil {
		why = fmt.Sprintf("pool %s keeps none: ipamctl pool apply %s --warm 16", p.Name, p.Name)
	}
	hash := p.Plumbing(r.Interface, a.Profile(p.Bridge)).Hash()
	known := r.Warm.SpecHash == "" || r.Warm.SpecHash == hash
	isStale := p.Staleness(a.Profile(p.Bridge))
	for _, slot := range rotated(a.Book.Slots()) {
		l, err := a.Book.Lease(slot.LeaseID)
		if err != nil || l.PoolUID != p.UID || l.Interface != r.Interface {
			continue
		}
		if r.Warm.SpecHash != "" && slot.SpecHash != r.Warm.SpecHash {
			continue
		}
		known = true
		if !slot.Ready(l) {
			continue
		}
		if stale, err := isStale(slot, l.Interface); err != nil || stale && p.Warm.Fresh() {
			continue
		}
		broken, err := a.slotDiffers(ctx, l, slot, p)
		if err != nil { // unknown is not broken
			why = fmt.Sprintf("of %s it is not known whether it is as it was made: %v", l.Addr, err)
			continue
		}
		if broken != "" {
			a.Book.Log.Warn("a warm slot is not as it was made, and is never given", "addr", l.Addr, "netns", slot.Netns, "reason", broken)
			who := ipam.Who{Actor: ipam.ByReconciler, Peer: r.Peer, Reason: ipam.SlotBroken}
			if _, err := a.Book.BreakSlot(ctx, who, l.ID, broken); err != nil && !errors.Is(err, ipam.ErrGone) { // another's by now
				return nil, "", err
			}
			continue
		}
		who := ipam.Who{Actor: ipam.ByAllocator, Peer: r.Peer, Reason: ipam.SlotClaimed}
		now, stale, err := a.Book.ClaimSlot(ctx, who, netdb.Claim{LeaseID: l.ID, Sandbox: r.Sandbox, UID: r.UID, Interface: r.Interface,
			Attempt: r.Attempt, Labels: r.Labels, Profile: a.Profile(p.Bridge), SpecHash: r.Warm.SpecHash})
		switch {
		case errors.As(err, new(*ipam.OwnedError)):
			return a.held(ctx, r)
		case errors.Is(err, ipam.ErrSlotTaken), errors.Is(err, ipam.ErrSlotStale):
			why = err.Error()
			continue
		case err != nil:
			return nil, "", err
		}
		a.Book.Watchdog.Bound(new(ipam.Lease), now, began)
		if a.OnClaimed != nil {
			a.OnClaimed(p.Name)
		}
		return &allocator.Result{Leases: []*ipam.Lease{now}, Pools: pools, Fresh: []bool{true}, Slot: a.Book.Slot(now.ID), Stale: stale}, "", nil
	}
	if !known {
		return nil, "", &ipam.FieldError{Field: "warm.client_spec_hash",
			Reason: fmt.Sprintf("%.80q is the spec of no slot of pool %s, whose spec is %s now", r.Warm.SpecHash, p.Name, hash)}
	}
	if why == "" {
		why = fmt.Sprintf("none of pool %s; see ipamctl warm", p.Name)
	}
	return nil, why, nil
}

// rotated returns the slots in their order, beginning at a random one. Calls that run at once, and
// all examine the slots in the same order, would wait for each other at each slot.
func rotated(slots []*ipam.Slot) []*ipam.Slot {
	if len(slots) == 0 {
		return nil
	}
	n := rand.IntN(len(slots))
	return slices.Concat(slots[n:], slots[:n])
}

// held answers with the lease that the owner has, and with its slot if it has one.
func (a OneCallAllocator) held(ctx context.Context, r allocator.Request) (*allocator.Result, string, error) {
	require := r.Warm.Require || r.Warm.Fail
	r.Warm = nil
	given, err := a.Allocator.Allocate(ctx, r)
	if err == nil && require && !given.Existing { // it ended meanwhile: this one is no slot
		who := ipam.Who{Actor: ipam.ByClient, Peer: r.Peer, Reason: ipam.SlotUnused}
		_, err := a.Book.Release(ctx, who, given.Leases[0].ID, "", 0)
		return nil, "the sandbox's lease ended just now", err
	}
	return given, "", err
}

// withSlot adds the lease's slot to a result, and returns when the kernel has the lease's rules. It
// waits for them also where the lease is an older one: the call that claimed it may have ended before
// they were made.
func (a OneCallAllocator) withSlot(ctx context.Context, given *allocator.Result) (*allocator.Result, error) {
	for i, l := range given.Leases {
		if slot := a.Book.Slot(l.ID); slot != nil && slot.Claimed {
			given.Slot = slot
			stale, err := slot.Stale(given.Pools[i], l.Interface, a.Profile(given.Pools[i].Bridge))
			given.Stale = stale && err == nil
			if err := awaitRules(ctx, a.Book.Rules, l); err != nil {
				return nil, err
			}
		}
	}
	return given, nil
}

// checkWithin bounds how long a claim waits for [OneCallAllocator.Check].
const checkWithin = time.Second

// slotDiffers says how a slot differs from what was made; "": it does not. An error means that
// [Book.slotDiffersOutside] cannot say.
func (a OneCallAllocator) slotDiffers(ctx context.Context, l *ipam.Lease, s *ipam.Slot, p *ipam.Pool) (string, error) {
	broken, err := a.Book.slotDiffersOutside(ctx, l)
	if err != nil || broken != "" || a.Check == nil {
		return broken, err
	}
	ctx, cancel := context.WithTimeout(ctx, checkWithin)
	defer cancel()
	differences, err := a.Check(ctx, l, s, p)
	if err != nil {
		a.Book.Log.Debug("a warm slot is given by what shows from outside", "addr", l.Addr, "netns", s.Netns, "err", err)
	}
	return strings.Join(differences, "; "), nil
}

// slotDiffersOutside says how a slot differs from what was made, as far as that can be seen without
// entering its namespace; "": it does not. An error means that the kernel or a witness did not answer.
func (b *Book) slotDiffersOutside(ctx context.Context, l *ipam.Lease) (string, error) {
	if err := b.Kernel.Settle(ctx, l.Addr); err != nil {
		return "", err
	}
	if !b.Kernel.PortNames()[l.HostInterface] {
		return fmt.Sprintf("its port %s is not on the bridge", l.HostInterface), nil
	}
	within, cancel := context.WithTimeout(ctx, slotWithin)
	defer cancel()
	index, inode, err := b.Kernel.PlugOf(within, l.HostInterface, l.Netns)
	switch {
	case err != nil:
		return "", fmt.Errorf("its port %s and its namespace %s could not be looked at: %w", l.HostInterface, l.Netns, err)
	case index == 0:
		return fmt.Sprintf("its port %s is gone", l.HostInterface), nil
	case index != l.Plug.Index || !l.Plug.OfBoot(ipam.Now().BootID):
		return fmt.Sprintf("another link has the name of its port, %s", l.HostInterface), nil
	case inode == 0:
		return fmt.Sprintf("no namespace is at %s", l.Netns), nil
	case inode != l.Plug.Inode:
		return fmt.Sprintf("another namespace is at %s", l.Netns), nil
	}
	answer := workload.About(b.Board, l)
	for _, s := range answer.Silent {
		if s.Witness.Kernel() {
			return "", fmt.Errorf("the %s witness cannot answer", s.Witness)
		}
	}
	if against, _ := new(workload.Leases).Contradicted(l, answer.Seen); len(against) > 0 {
		return fmt.Sprintf("the %s witness sees its address under another%s", against[0].Witness, against[0].Where()), nil
	}
	if !workload.Shown(l, answer.Seen) {
		return fmt.Sprintf("%s is not behind its port with the MAC %s", l.Addr, l.MAC), nil
	}
	return "", nil
}
