package bridge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
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
	defer k.close()
	rt0, err := k.linkByName(b.cfg.Name)
	switch {
	case isGone(err):
		return nil, fmt.Errorf("look for ports of %s: %w", b.cfg.Name, absent(b.cfg.Name, nil))
	case err != nil:
		return nil, fmt.Errorf("look up bridge %s: %w", b.cfg.Name, err)
	case rt0.kind != "bridge":
		return nil, fmt.Errorf("look for ports of %s: %w", b.cfg.Name, absent(b.cfg.Name, rt0))
	}
	named, err := k.portNamed(rt0.index, hostInterface)
	if err != nil {
		return nil, fmt.Errorf("look up link %s: %w", hostInterface, err)
	}
	leading, err := b.portsInto(ctx, k, rt0.index, netns)
	if err != nil {
		return nil, fmt.Errorf("look for ports of %s into %s: %w", rt0.name, netns, err)
	}
	var out []string
	if named != nil {
		out = append(out, isPort(named, rt0.name))
	}
	for _, l := range leading {
		if named == nil || l.index != named.index {
			out = append(out, leadsInto(l, rt0.name, netns))
		}
	}
	return out, nil
}

func isPort(l *link, of string) string { return fmt.Sprintf("%s is a port of %s", l.name, of) }

func leadsInto(l *link, of, netns string) string {
	return fmt.Sprintf("%s is a port of %s and leads into %s", l.name, of, netns)
}

// dial opens a netlink socket of the caller's own in the bridge's namespace.
func (b *Bridge) dial(ctx context.Context, protocol int) (k *rtnl, err error) {
	err = b.locked(ctx, func() error { // Close must not take the place away meanwhile
		return b.place.do(func() (err error) {
			k, err = dial(protocol)
			return err
		})
	})
	return k, err
}

// portNamed looks up the link of a name, if it is a port of the bridge.
func (r *rtnl) portNamed(bridge int, name string) (*link, error) {
	if name == "" || len(name) >= unix.IFNAMSIZ { // no link can have such a name
		return nil, nil
	}
	l, err := r.linkByName(name)
	if isGone(err) || err == nil && l.master != bridge {
		return nil, nil
	}
	return l, err
}

// portsInto lists the ports of a bridge that lead into the namespace at path.
func (b *Bridge) portsInto(ctx context.Context, r *rtnl, bridge int, path string) ([]*link, error) {
	if path == "" {
		return nil, nil
	}
	fd, err := b.paths.open(ctx, path)
	if err != nil || fd < 0 {
		return nil, err
	}
	defer unix.Close(fd) // until then the namespace lives, and its id is its own
	var all []*link
	err = steady(func() error {
		all = all[:0]
		return r.portsOf(bridge, func(l *link) { all = append(all, l) })
	})
	if err != nil {
		return nil, err
	}
	// Listing gives an id to every namespace that has none yet, so only now is
	// the lack of one an answer.
	id, err := r.netnsID(fd)
	if errors.Is(err, ErrNoNetnsID) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []*link
	for _, l := range all {
		if l.behind == id {
			out = append(out, l)
		}
	}
	return out, nil
}
