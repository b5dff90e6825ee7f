package binding

import (
	"cmp"
	"context"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/reconciler"
	"github.com/ipamd/ipamd/workload"
)

// plugged adds to a binding which link and namespace its names are just now, and whether
// nothing of it is on a bridge. What the kernel did not say is recorded as that, with the time at which it was
// asked first: a bind waits for none, and passes ask again, see [Unplugged].
func plugged(ctx context.Context, k Kernel, n ipam.Binding) ipam.Binding {
	index, inode, err := k.PlugOf(ctx, n.HostInterface, n.Netns)
	now := ipam.Now()
	is := ipam.Plug{Boot: now.BootID, Index: index, Inode: inode, Behind: n.Plug.Behind}
	if err != nil {
		is.Unsaid = cmp.Or(n.Plug.Unsaid, now.Boottime)
	}
	if !n.Seen && len(n.Containers) == 0 && len(n.Gone) == 0 {
		is.Behind, is.Unseen = onBridge(ctx, k, n, inode)
	}
	if is.Link() != 0 {
		is.At = now.Boottime
	}
	n.Plug = is // with the boot in any case: that says that it was looked at
	return n
}

// pluggedBy is plugged of what the owner of some leases binds them to. It also says whether that takes a
// link back which one of them records, and another sandbox's lease records since.
func (b *Book) pluggedBy(ctx context.Context, n ipam.Binding, leases ...*ipam.Lease) ipam.Binding {
	n = plugged(ctx, b.Kernel, n)
	for _, l := range leases {
		if l == nil || n.Plug.Index == 0 || l.Plug.Index != n.Plug.Index || !l.Plug.OfBoot(n.Plug.Boot) { // the most are bound once
			continue
		}
		all, _ := b.Leases()
		recorded := workload.RecordedBy(all, n.Plug.Boot)
		if !recorded.Has(l, n.Plug.Index, n.HostInterface) {
			// The clock of a machine that was restored counts anew within the same boot.
			n.Takes, n.Plug.At = true, max(n.Plug.At, recorded.Last(n.Plug.Index)+1)
		}
	}
	return n
}

// onBridge looks for a port of a bridge that is what a binding names, or leads there: behind is
// the index of one that leads into the namespace. unseen says that there is none, or that the kernel
// does not answer. A lease with containers needs none: of those the runtime knows.
func onBridge(ctx context.Context, k Kernel, n ipam.Binding, inode uint64) (behind int, unseen bool) {
	if n.HostInterface != "" {
		is, err := k.IsPort(ctx, n.HostInterface, 0)
		return 0, !is || err != nil
	}
	if inode == 0 {
		return 0, true
	}
	into := k.PortsInto(ctx, census.Namespace{Path: n.Netns, Inode: inode})[0]
	if into.Err != nil || len(into.Ports) == 0 {
		return 0, true
	}
	return into.Ports[0], false
}

// unsaidFor is how long after a bind passes ask for what the kernel did not say: as long the names of a sandbox are its own.
const unsaidFor = time.Minute

// Unplugged returns what of a lease's plumbing is there now and is not recorded as
// what it is: the link came after the bind, or the machine was started anew since, or the kernel did not say it when
// it was bound, a short while ago. A link that was
// made anew under the name of one that is recorded is left out: it may be another sandbox's, and is its
// lease's once its owner binds it. Until then its name keeps the lease, and gives it no rules.
//
// A port that is recorded was seen, also when it has gone by then. A lease that counted as never seen
// for that would not end by itself, though its sandbox was on the bridge.
func Unplugged(k Kernel) func(*ipam.Lease) ipam.Binding {
	boot := ipam.Now().BootID
	return func(l *ipam.Lease) (n ipam.Binding) {
		known := l.Plug
		if !known.OfBoot(boot) {
			known = ipam.Plug{}
		}
		unsaid := known.Unsaid != 0 && ipam.Now().Boottime-known.Unsaid < unsaidFor
		if !unsaid && (l.HostInterface == "" || known.Index != 0 && !known.Unseen) {
			return n // as most are: the ports are not listed for them
		}
		there := l.HostInterface != "" && k.PortNames()[l.HostInterface]
		if unsaid {
			n.Plug.Unsaid = known.Unsaid
			if known.Index == 0 {
				n.HostInterface, n.Seen = l.HostInterface, there
			}
			if known.Inode == 0 {
				n.Netns = l.Netns
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

// Plugging is the book as the reconciler writes it: with the link and the namespace of
// what it binds.
type Plugging struct {
	reconciler.Book
	Kernel Kernel
	Rules  Rules // nil: none are kept
}

// Adopt is [netdb.Book.Adopt].
func (b Plugging) Adopt(ctx context.Context, who ipam.Who, a ipam.Adoption) (*ipam.Lease, error) {
	a.Binding = plugged(ctx, b.Kernel, a.Binding)
	l, err := b.Book.Adopt(ctx, who, a)
	b.hold(ctx, l, err)
	return l, err
}

// Bind is [netdb.Book.Bind].
func (b Plugging) Bind(ctx context.Context, who ipam.Who, id string, ifRev int64, n ipam.Binding) (*ipam.Lease, error) {
	l, err := b.Book.Bind(ctx, who, id, ifRev, plugged(ctx, b.Kernel, n))
	b.hold(ctx, l, err)
	return l, err
}

// hold waits for the rules of what was bound. That they do not hold does not undo it: who
// keeps them reports it, and tries again.
func (b Plugging) hold(ctx context.Context, l *ipam.Lease, err error) {
	if err == nil {
		_ = hold(ctx, b.Rules, l)
	}
}
