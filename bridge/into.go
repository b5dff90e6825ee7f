package bridge

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/nspath"
	"github.com/ipamd/ipamd/bridge/rtnl"
	"github.com/ipamd/ipamd/census"
)

// abreast is how many namespaces are looked at side by side: a file system that hangs keeps each look for
// [lookWithin], and so many are open at once.
const abreast = 64

// PortsInto says of each namespace which ports of the bridge lead into it, as the kernel has them now, in the same order. It
// is safe for concurrent use.
func (s *lookups) PortsInto(ctx context.Context, of ...census.RecordedNetns) []census.Into {
	return s.portsInto(ctx, of, []string{s.bridge}, nil)
}

// PortsInto is [Bridge.PortsInto] of all, also of those that could not be opened: a sandbox behind the
// bridge of another process is there.
func (g *Group) PortsInto(ctx context.Context, of ...census.RecordedNetns) []census.Into {
	var open, unopened []string
	for _, m := range g.now.Load().all {
		if m.Bridge != nil {
			open = append(open, m.name)
		} else {
			unopened = append(unopened, m.name)
		}
	}
	return g.own().portsInto(ctx, of, open, unopened)
}

// portsInto asks the kernel once for so many namespaces as are looked at side by side.
func (s *lookups) portsInto(ctx context.Context, of []census.RecordedNetns, open, unopened []string) []census.Into {
	out := make([]census.Into, 0, len(of))
	for some := range slices.Chunk(of, abreast) {
		out = append(out, s.portsIntoSome(ctx, some, open, unopened)...)
	}
	return out
}

func (s *lookups) portsIntoSome(ctx context.Context, of []census.RecordedNetns, open, unopened []string) []census.Into {
	out, fds, any := make([]census.Into, len(of)), make([]int, len(of)), false
	var looks errgroup.Group // waited for below
	for i, n := range of {
		looks.Go(func() (_ error) {
			ctx, cancel := context.WithTimeout(ctx, lookWithin)
			defer cancel()
			fds[i], _, out[i].Err = s.openNetns(ctx, n.Path, n.Inode)
			if errors.Is(out[i].Err, nspath.ErrRefused) {
				out[i].Err = nil
			}
			return
		})
	}
	_ = looks.Wait() // none of them returns one
	for _, fd := range fds {
		any = any || fd >= 0
	}
	if !any {
		return out
	}
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	at, beside := make([][]int, len(of)), make([][]int, len(of))
	err := s.plugs.Within(ctx, func(k *rtnl.Socket) error {
		if err := ledInto(k, unopened, fds, beside); err != nil {
			return err
		}
		return ledInto(k, open, fds, at)
	}, func() {
		for _, fd := range fds {
			if fd >= 0 {
				_ = unix.Close(fd)
			}
		}
	})
	for i, fd := range fds {
		switch {
		case fd < 0:
		case err != nil:
			out[i].Err = err
		default:
			out[i].Ports, out[i].Unopened = at[i], beside[i]
		}
	}
	return out
}

// ledInto takes in which ports of some bridges lead into the namespaces that fds are open on.
func ledInto(k *rtnl.Socket, bridges []string, fds []int, at [][]int) error {
	if len(bridges) == 0 {
		return nil
	}
	var all []*rtnl.Link
	for _, name := range bridges {
		bridge, err := k.LinkByName(name)
		if rtnl.IsGone(err) {
			continue
		}
		if err != nil {
			return err
		}
		its, err := portsOf(k, bridge.Index)
		if err != nil {
			return err
		}
		all = append(all, its...)
	}
	for i, fd := range fds {
		links, err := leadInto(k, all, fd)
		if err != nil {
			return err
		}
		for _, l := range links {
			at[i] = append(at[i], l.Index)
		}
	}
	return nil
}

// portsOf lists the ports of a bridge.
func portsOf(k *rtnl.Socket, bridge int) (all []*rtnl.Link, err error) {
	err = rtnl.Steady(func() error {
		all = all[:0]
		return k.PortsOf(bridge, func(l *rtnl.Link) { all = append(all, l) })
	})
	return all, err
}

// leadInto are those of some ports that lead into the namespace that fd is open on; -1 is none. It was open before they were
// listed: so long the namespace lives, and its id is its own.
func leadInto(k *rtnl.Socket, ports []*rtnl.Link, fd int) (out []*rtnl.Link, err error) {
	if fd < 0 {
		return nil, nil
	}
	// Listing gives an id to every namespace that has none yet, so only now is
	// the lack of one an answer.
	id, err := k.NetnsID(fd)
	if errors.Is(err, ErrNoNetnsID) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, l := range ports {
		if l.Behind == id {
			out = append(out, l)
		}
	}
	return out, nil
}
