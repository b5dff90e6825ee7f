package binding

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/reconciler"
	"github.com/ipamd/ipamd/workload"
)

// resolved returns a binding with its names resolved: it adds the index of the link and the inode of
// the namespace that have these names now, and whether none of them is on a bridge. Where the kernel does
// not answer in time, the bind goes on without, and Plug.Unsaid has the time of the first try: passes
// resolve the names later, see [UnrecordedPlumbing].
func resolved(ctx context.Context, k Kernel, n ipam.Binding) ipam.Binding {
	index, inode, err := k.PlugOf(ctx, n.HostInterface, n.Netns)
	now := ipam.Now()
	is := ipam.Plug{Boot: now.BootID, Index: index, Inode: inode, Behind: n.Plug.Behind}
	if !n.Seen && len(n.Containers) == 0 && len(n.Gone) == 0 {
		behind, on, notSaid := onBridge(ctx, k, n, inode)
		is.Behind, is.Unseen, err = behind, !on, errors.Join(err, notSaid)
	}
	if err != nil {
		is.Unsaid = cmp.Or(n.Plug.Unsaid, now.Boottime)
	}
	if is.Link() != 0 {
		is.At = now.Boottime
	}
	n.Plug = is // a boot without an index or an inode says that they were looked for
	return n
}

// resolvedFor is resolved for a bind by the owner of some leases. It also sets Takes where the bind takes
// a link back: one of these leases records it, and a lease of another sandbox has recorded it since.
func (b *Book) resolvedFor(ctx context.Context, n ipam.Binding, leases ...*ipam.Lease) ipam.Binding {
	n = resolved(ctx, b.Kernel, n)
	for _, l := range leases {
		if l == nil || n.Plug.Index == 0 || l.Plug.Index != n.Plug.Index || !l.Plug.OfBoot(n.Plug.Boot) { // so it is with most: they are bound once
			continue
		}
		all, _ := b.Leases()
		recorded := workload.RecordedBy(all, n.Plug.Boot)
		if !recorded.Has(l, n.Plug.Index, n.HostInterface) {
			// At orders the leases that record one link. On a virtual machine that was restored from a
			// snapshot the clock goes back within the same boot, so the time alone could lie before theirs.
			n.Takes, n.Plug.At = true, max(n.Plug.At, recorded.Last(n.Plug.Index)+1)
		}
	}
	return n
}

// onBridge looks for what a binding names on the bridges: its host interface as a port or, where it names
// none, a port that leads into its namespace, whose index is behind; also of a bridge that is not open. After an error the kernel did not say
// whether there is one. It is not asked of a binding with containers: those are seen by the runtime.
func onBridge(ctx context.Context, k Kernel, n ipam.Binding, inode uint64) (behind int, on bool, err error) {
	if n.HostInterface != "" {
		on, err = k.IsPort(ctx, n.HostInterface, 0)
		return 0, on && err == nil, err
	}
	if inode == 0 {
		return 0, false, nil
	}
	into := k.PortsInto(ctx, census.RecordedNetns{Path: n.Netns, Inode: inode})[0]
	all := slices.Concat(into.Ports, into.Unopened)
	if into.Err != nil || len(all) == 0 {
		return 0, false, into.Err
	}
	return all[0], true, nil
}

// askAgainFor is how long after a bind passes try to resolve names that the kernel did not resolve then. After
// a longer time another sandbox may have them.
const askAgainFor = time.Minute

// UnrecordedPlumbing returns a function for [reconciler.Config], which returns the names of a lease's
// plumbing that exist now, and whose link or namespace the lease does not record: the link was made after the
// bind, the machine was booted since, or the kernel did not resolve the names at the bind, a moment ago, or did
// not say whether they are on a bridge. The reconciler binds the lease to them, and [ResolvingBook] resolves them then.
//
// It leaves out a link that was made anew under the name of a recorded one: that may be another sandbox's, and
// only a bind by the owner says otherwise. Until then the name keeps the lease from ending, and the lease has
// no rules.
//
// Seen is set with a port that is there now, even if it goes before it is recorded: else a
// lease whose sandbox was on the bridge would count as never seen, and not end by itself.
func UnrecordedPlumbing(k Kernel) func(*ipam.Lease) ipam.Binding {
	boot := ipam.Now().BootID
	return func(l *ipam.Lease) (n ipam.Binding) {
		known := l.Plug
		if !known.OfBoot(boot) {
			known = ipam.Plug{}
		}
		unsaid := known.Unsaid != 0 && ipam.Now().Boottime-known.Unsaid < askAgainFor
		if !unsaid && (l.HostInterface == "" || known.Index != 0 && !known.Unseen) {
			return n // so it is with most leases: the ports are not listed for them
		}
		there := l.HostInterface != "" && k.PortNames()[l.HostInterface]
		if unsaid {
			n.Plug.Unsaid = known.Unsaid
			if known.Index == 0 || known.Unseen && there {
				n.HostInterface, n.Seen = l.HostInterface, there
			}
			if known.Inode == 0 || known.Unseen && l.HostInterface == "" {
				n.Netns, n.Plug.Inode = l.Netns, known.Inode // of that namespace, not of a later one at its path
			}
			return n
		}
		if !there {
			return n
		}
		n.HostInterface, n.Seen = l.HostInterface, true
		if known.Inode == 0 {
			n.Netns = l.Netns
		}
		return n
	}
}

// ResolvingBook is the book as the reconciler writes binds and adoptions to it: with their names
// resolved.
type ResolvingBook struct {
	reconciler.Book
	Kernel Kernel
	Rules  Rules // nil: none are kept
}

// Adopt is [netdb.Book.Adopt], with the names resolved.
func (b ResolvingBook) Adopt(ctx context.Context, who ipam.Who, a ipam.Adoption) (*ipam.Lease, error) {
	a.Binding = resolved(ctx, b.Kernel, a.Binding)
	l, err := b.Book.Adopt(ctx, who, a)
	b.awaitRules(ctx, l, err)
	return l, err
}

// ClearAt is [netdb.Book.ClearAt], once the kernel has forgotten what the address's former owner left.
func (b ResolvingBook) ClearAt(ctx context.Context, who ipam.Who, id string, rev int64, unseen func() error) (*ipam.Lease, error) {
	if l, err := b.Book.Lease(id); err == nil {
		if err := forget(ctx, b.Kernel, l, rev, unseen); err != nil {
			return nil, err
		}
	}
	return b.Book.ClearAt(ctx, who, id, rev, unseen)
}

// forget has the kernel forget the address of a quarantined row, if that is still as it was looked at and unseen: a
// neighbour of the kernel's may be all that shows who has come there, and a row that was adopted meanwhile is in use.
func forget(ctx context.Context, k Kernel, l *ipam.Lease, rev int64, unseen func() error) error {
	if l.State != ipam.Quarantined || l.Rev != rev {
		return nil // the book refuses it
	}
	if unseen != nil {
		if err := unseen(); err != nil {
			return err
		}
	}
	if err := census.ErrorAbout(l.Addr, k.Forget(ctx, l.Prefix())); err != nil {
		why := fmt.Sprintf("the kernel's entries of %s could not be deleted: %v", l.Text(), err)
		return &allocator.EvidenceError{Silent: []census.Silence{{Witness: census.Neighbour, Reason: why, Since: time.Now()}}}
	}
	return nil
}

// Bind is [netdb.Book.Bind], with the names resolved. Where n has the inode of its namespace, another one at its path,
// or none that could be looked at, is [ipam.ErrState].
func (b ResolvingBook) Bind(ctx context.Context, who ipam.Who, id string, ifRev int64, n ipam.Binding) (*ipam.Lease, error) {
	is := resolved(ctx, b.Kernel, n)
	if n.Netns != "" && n.Plug.Inode != 0 && is.Plug.Inode != n.Plug.Inode {
		return nil, fmt.Errorf("bind lease %s: %w: its namespace is not known to be at %s", id, ipam.ErrState, n.Netns)
	}
	l, err := b.Book.Bind(ctx, who, id, ifRev, is)
	b.awaitRules(ctx, l, err)
	return l, err
}

// awaitRules waits for the rules of what was bound. If they cannot be made, the bind stands: *enforce.Keeper
// reports that, and tries again.
func (b ResolvingBook) awaitRules(ctx context.Context, l *ipam.Lease, err error) {
	if err == nil {
		_ = awaitRules(ctx, b.Rules, l)
	}
}
