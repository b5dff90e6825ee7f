package bridge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/rtnl"
)

// Plugged tells what of a sandbox's plumbing is a port of the bridge now: the
// link named hostInterface, and every port that leads into the network
// namespace at the path netns, under whatever name. Each is one sentence; none
// means that the kernel was asked and knows of none. "" for either is nothing
// to ask about.
//
// A path leads nowhere when it does not exist, and also when it is no network
// namespace: unmounting one leaves an empty file, which `ip netns` and CNI
// then fail to remove. A symbolic link leads where what it names leads. A path that
// cannot be looked at is an error, and so is one that [Bridge.CheckNetns] refuses.
//
// While the bridge is missing it is an error, too. The kernel's answer that
// there is no link of that name is the same for a bridge that was renamed or
// moved to another namespace, whose ports carry on; and the witnesses are
// silent then anyway.
//
// Each sentence begins with the port's name. A port is also found by a name that
// it had at some time since the moment since, when the caller came to know the
// name, as far back as the bridge is watched; the zero time is as far back as
// that. Without the bound, a port that once had a name would stand for every
// later link of that name.
//
// That something is plugged is told from memory as [Bridge.Settle] makes it, for
// many ask again and again about what does not move. That nothing is, is asked
// of the kernel, on a socket of its own. It is safe for concurrent use.
func (b *Bridge) Plugged(ctx context.Context, hostInterface string, since time.Time, netns string) ([]string, error) {
	if hostInterface == "" && netns == "" {
		return nil, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if known := b.recall(ctx, hostInterface, since, netns); len(known) > 0 {
		return known, nil
	}
	k, err := b.dial(ctx, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("look for ports of %s: %w", b.cfg.Name, err)
	}
	defer k.Close()
	rt0, err := k.LinkByName(b.cfg.Name)
	switch {
	case rtnl.IsGone(err):
		return nil, fmt.Errorf("look for ports of %s: %w", b.cfg.Name, absent(b.cfg.Name, nil))
	case err != nil:
		return nil, fmt.Errorf("look up bridge %s: %w", b.cfg.Name, err)
	case rt0.Kind != "bridge":
		return nil, fmt.Errorf("look for ports of %s: %w", b.cfg.Name, absent(b.cfg.Name, rt0))
	}
	named, err := k.PortNamed(rt0.Index, hostInterface)
	if err != nil {
		return nil, fmt.Errorf("look up link %s: %w", hostInterface, err)
	}
	leading, err := b.portsInto(ctx, k, rt0.Index, netns)
	if err != nil {
		return nil, fmt.Errorf("look for ports of %s into %s: %w", rt0.Name, netns, err)
	}
	var out []string
	if named != nil {
		out = append(out, isPort(named, rt0.Name))
	}
	for _, l := range leading {
		if named == nil || l.Index != named.Index {
			out = append(out, leadsInto(l, rt0.Name, netns))
		}
	}
	return out, nil
}

func isPort(l *rtnl.Link, of string) string { return fmt.Sprintf("%s is a port of %s", l.Name, of) }

func leadsInto(l *rtnl.Link, of, netns string) string {
	return fmt.Sprintf("%s is a port of %s and leads into %s", l.Name, of, netns)
}

// dial opens a netlink socket of the caller's own in the bridge's namespace.
func (b *Bridge) dial(ctx context.Context, protocol int) (k *rtnl.Socket, err error) {
	err = b.locked(ctx, func() error { // Close must not take the place away meanwhile
		return b.place.do(func() (err error) {
			k, err = rtnl.Dial(protocol)
			return err
		})
	})
	return k, err
}

// portsInto lists the ports of a bridge that lead into the namespace at path.
func (b *Bridge) portsInto(ctx context.Context, r *rtnl.Socket, bridge int, path string) ([]*rtnl.Link, error) {
	if path == "" {
		return nil, nil
	}
	fd, err := b.paths.open(ctx, path)
	if err != nil || fd < 0 {
		return nil, err
	}
	defer unix.Close(fd) // until then the namespace lives, and its id is its own
	var all []*rtnl.Link
	err = rtnl.Steady(func() error {
		all = all[:0]
		return r.PortsOf(bridge, func(l *rtnl.Link) { all = append(all, l) })
	})
	if err != nil {
		return nil, err
	}
	// Listing gives an id to every namespace that has none yet, so only now is
	// the lack of one an answer.
	id, err := r.NetnsID(fd)
	if errors.Is(err, ErrNoNetnsID) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []*rtnl.Link
	for _, l := range all {
		if l.Behind == id {
			out = append(out, l)
		}
	}
	return out, nil
}
