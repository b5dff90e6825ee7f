package main

import (
	"context"
	"os"
	"strings"
	"sync"

	"github.com/ipamd/ipamd/bridge"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/reconciler"
)

// plugged adds to a binding which link and namespace its names are just now.
func plugged(ctx context.Context, b *bridge.Bridge, n netdb.Binding) netdb.Binding {
	index, inode := b.PlugOf(ctx, n.HostInterface, n.Netns)
	if boot := bootID(); boot != "" && (index != 0 || inode != 0) {
		n.Plug = netdb.Plug{Boot: boot, Index: index, Inode: inode}
	}
	return n
}

// unplugged returns what of a lease's plumbing is there now and is not recorded as
// what it is: the link came after the bind, or the machine was started anew since.
func unplugged(b *bridge.Bridge) func(*netdb.Lease) netdb.Binding {
	return func(l *netdb.Lease) (n netdb.Binding) {
		known := l.Plug
		if known.Boot != bootID() {
			known = netdb.Plug{}
		}
		if l.HostInterface == "" || known.Index != 0 || !b.PortNames()[l.HostInterface] {
			return n
		}
		n.HostInterface = l.HostInterface
		if known.Inode == 0 {
			n.Netns = l.Netns
		}
		return n
	}
}

// bootID is the kernel's id of this boot; "" when it cannot be read.
var bootID = sync.OnceValue(func() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
})

// pluggedBook is the book as the reconciler writes it.
type pluggedBook struct {
	reconciler.Book
	bridge *bridge.Bridge
}

func (b pluggedBook) Adopt(ctx context.Context, who netdb.Who, a netdb.Adoption) (*netdb.Lease, error) {
	a.Binding = plugged(ctx, b.bridge, a.Binding)
	return b.Book.Adopt(ctx, who, a)
}

func (b pluggedBook) Bind(ctx context.Context, who netdb.Who, id string, ifRev int64, n netdb.Binding) (*netdb.Lease, error) {
	return b.Book.Bind(ctx, who, id, ifRev, plugged(ctx, b.bridge, n))
}
