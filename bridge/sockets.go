package bridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/probe"
	"github.com/ipamd/ipamd/bridge/rtnl"
	"github.com/ipamd/ipamd/internal/nsthread"
)

// A bridgeNetns is the network namespace that everything here opens in. Holding it
// keeps the namespace, so a socket opened again lands in the same one.
type bridgeNetns struct {
	ns  netns.NsHandle
	own bool // it is the process's
}

// openNetns finds a namespace by its path; "" is the process's own.
func openNetns(path string) (bridgeNetns, error) {
	ns, err := netns.GetFromPath(cmp.Or(path, "/proc/self/ns/net"))
	if err != nil {
		return bridgeNetns{ns: netns.None()}, fmt.Errorf("open network namespace %s: %w", path, err)
	}
	return bridgeNetns{ns, path == ""}, nil
}

// Inside calls f on a thread in the bridge's network namespace.
func (b *Bridge) Inside(f func() error) error { return b.inside.do(f) }

// do calls f on a thread inside the namespace.
func (n bridgeNetns) do(f func() error) error {
	if n.own {
		return f()
	}
	return nsthread.In(int(n.ns), f)
}

func (n bridgeNetns) close() {
	if n.ns.IsOpen() {
		_ = n.ns.Close()
	}
}

// dial opens a netlink socket inside.
func (n bridgeNetns) dial(protocol int) (k *rtnl.Socket, err error) {
	err = n.do(func() (err error) {
		k, err = rtnl.Dial(protocol)
		return err
	})
	return k, err
}

// sockets are those by which the witnesses listen and ask.
type sockets struct {
	inside  bridgeNetns
	kernel  *rtnl.Socket // nil while they are not open
	news    *rtnl.News
	probe   *probe.Prober
	trouble error // why news cannot be read; they are to be opened again
}

func (s *sockets) open() (err error) {
	kernel, err := s.inside.dial(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	kernel.Redial = func() (*rtnl.Socket, error) { return s.inside.dial(unix.NETLINK_ROUTE) }
	// The kernel would give it one when it first shows a link elsewhere that leads here.
	self, err := rtnl.IDOf(kernel, int(s.inside.ns))
	if err != nil && !errors.Is(err, unix.EPERM) { // without CAP_NET_ADMIN a search asks for it later
		kernel.Close()
		return fmt.Errorf("give the bridge's network namespace an id for itself: %w", err)
	}
	err = s.inside.do(func() (err error) {
		if s.news, err = rtnl.Subscribe(self); err != nil {
			return err
		}
		if s.probe, err = probe.Open(); err != nil {
			s.news.Close()
		}
		return err
	})
	if err != nil {
		kernel.Close()
		return err
	}
	s.kernel, s.trouble = kernel, nil
	return nil
}

// listening are the sockets that can have something to read.
func (s *sockets) listening() (all []unix.PollFd) {
	for _, fd := range append(s.probe.Sockets(), s.news.Links, s.news.Neighbours) {
		all = append(all, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	return all
}

// openSockets opens everything that listens or asks. What was missed before
// then is unknown, so all is to be read.
func (b *Bridge) openSockets() error {
	if err := b.sockets.open(); err != nil {
		return err
	}
	b.answers.lose() // those to the sockets before
	b.forget()
	b.silence(errUnread)
	return nil
}

func (b *Bridge) closeSockets() {
	if b.kernel == nil {
		return
	}
	b.kernel.Close()
	b.news.Close()
	b.probe.Close()
	b.kernel = nil
	if b.answers.ingress != nil {
		b.answers.ingress.Close()
		b.answers.ingress = nil
	}
}

func (b *Bridge) openIngress() (i *probe.Ingress, err error) {
	err = b.inside.do(func() (err error) {
		i, err = probe.OpenIngress()
		return err
	})
	return i, err
}

// askNow sends a question with the lock held, and reports whether it was sent.
func (b *Bridge) askNow(addr netip.Addr) (sent bool) {
	ctx, cancel := context.WithTimeout(context.Background(), ingressWithin)
	defer cancel()
	return b.probe.Ask(ctx, addr) == nil
}

// keep is a socket for questions that are asked without the lock.
func (b *Bridge) keep(protocol int) *rtnl.Cached {
	return rtnl.NewCached(func(ctx context.Context) (*rtnl.Socket, error) { return b.dial(ctx, protocol) })
}

// dial opens a netlink socket of the caller's own in the bridge's namespace.
func (b *Bridge) dial(ctx context.Context, protocol int) (k *rtnl.Socket, err error) {
	err = b.locked(ctx, func() (err error) { // Close must not take the namespace away meanwhile
		k, err = b.inside.dial(protocol)
		return err
	})
	return k, err
}
