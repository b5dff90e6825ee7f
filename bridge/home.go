package bridge

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/census"
)

// Home returns the network namespace that a process is in, by an id that the
// bridge's namespace knows, with the ports that lead there; the zero Home for one
// to which no link leads, and for a process that has ended. The kernel is asked about
// the process, and the ports are those that memory knows: see [Bridge.Settle]. It is safe for
// concurrent use.
func (b *Bridge) Home(ctx context.Context, pid uint32) (census.Home, error) {
	id := unnamed
	err := b.tables.ask(ctx, func(k *rtnl) (err error) {
		id, err = k.netnsIDOf(pid)
		if errors.Is(err, ErrNoNetnsID) || errors.Is(err, unix.ESRCH) {
			id, err = unnamed, nil
		}
		return err
	})
	if err != nil {
		return census.Home{}, fmt.Errorf("look for the network namespace of process %d: %w", pid, err)
	}
	if id == unnamed {
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
			names = append(names, p.link.name)
		}
		home.Ports = census.NewPorts(names...)
		return nil
	})
	return home, err
}
