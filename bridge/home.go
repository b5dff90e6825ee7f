package bridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/rtnl"
	"github.com/ipamd/ipamd/census"
)

// Home returns the network namespace that a process is in, by an id that the
// bridge's namespace knows, with the ports that lead there, or that it is the bridge's
// own; the zero Home for one to which no link leads, and for a process that has ended. The kernel is asked about
// the process, and the ports are those that memory knows: see [Bridge.Settle]. It is safe for
// concurrent use.
func (b *Bridge) Home(ctx context.Context, pid uint32) (census.Home, error) {
	id := rtnl.Unassigned
	err := b.tables.Ask(ctx, func(k *rtnl.Socket) (err error) {
		id, err = k.NetnsIDOf(pid)
		if errors.Is(err, ErrNoNetnsID) || errors.Is(err, unix.ESRCH) {
			id, err = rtnl.Unassigned, nil
		}
		return err
	})
	if err != nil {
		return census.Home{}, fmt.Errorf("look for the network namespace of process %d: %w", pid, err)
	}
	if own, err := b.isOwn(pid); err != nil || own {
		return census.Home{Host: own}, err
	}
	if id == rtnl.Unassigned {
		return census.Home{}, nil
	}
	home := census.Home{Netns: fmt.Sprintf("nsid:%d", id)}
	err = b.locked(ctx, func() error {
		s := b.spaces[id]
		if s == nil {
			return nil // or that of a macvlan, which is no port
		}
		var names []string
		for _, p := range s.ports {
			names = append(names, p.link.Name)
		}
		home.Ports = census.NewPorts(names...)
		return nil
	})
	return home, err
}

// isOwn reports whether a process is in the network namespace that has the bridge. One
// that has ended is in none.
func (b *Bridge) isOwn(pid uint32) (bool, error) {
	own, err := inodeAt(cmp.Or(b.cfg.Netns, "/proc/self/ns/net"))
	if err != nil {
		return false, fmt.Errorf("look for the network namespace of the bridge: %w", err)
	}
	its, err := inodeAt(fmt.Sprintf("/proc/%d/ns/net", pid))
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for the network namespace of process %d: %w", pid, err)
	}
	return its == own, nil
}
