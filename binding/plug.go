package binding

import (
	"context"

	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/reconciler"
)

// plugged adds to a binding which link and namespace its names are just now.
func plugged(ctx context.Context, k Kernel, n netdb.Binding) netdb.Binding {
	if index, inode := k.PlugOf(ctx, n.HostInterface, n.Netns); index != 0 || inode != 0 {
		n.Plug = netdb.Plug{Boot: netdb.Now().BootID, Index: index, Inode: inode}
	}
	return n
}

// Unplugged returns what of a lease's plumbing is there now and is not recorded as
// what it is: the link came after the bind, or the machine was started anew since.
func Unplugged(k Kernel) func(*netdb.Lease) netdb.Binding {
	boot := netdb.Now().BootID
	return func(l *netdb.Lease) (n netdb.Binding) {
		known := l.Plug
		if known.Boot != boot {
			known = netdb.Plug{}
		}
		if l.HostInterface == "" || known.Index != 0 || !k.PortNames()[l.HostInterface] {
			return n
		}
		n.HostInterface = l.HostInterface
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
func (b Plugging) Adopt(ctx context.Context, who netdb.Who, a netdb.Adoption) (*netdb.Lease, error) {
	a.Binding = plugged(ctx, b.Kernel, a.Binding)
	l, err := b.Book.Adopt(ctx, who, a)
	b.hold(ctx, l, err)
	return l, err
}

// Bind is [netdb.Book.Bind].
func (b Plugging) Bind(ctx context.Context, who netdb.Who, id string, ifRev int64, n netdb.Binding) (*netdb.Lease, error) {
	l, err := b.Book.Bind(ctx, who, id, ifRev, plugged(ctx, b.Kernel, n))
	b.hold(ctx, l, err)
	return l, err
}

// hold waits for the rules of what was bound. That they do not hold does not undo it: who
// keeps them reports it, and tries again.
func (b Plugging) hold(ctx context.Context, l *netdb.Lease, err error) {
	if err == nil {
		_ = hold(ctx, b.Rules, l)
	}
}
