package bridge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/nspath"
	"github.com/ipamd/ipamd/bridge/rtnl"
	"github.com/ipamd/ipamd/census"
)

// Plugged says what of a sandbox's plumbing is a port of the bridge now: the
// link named hostInterface, and every port that leads into the network
// namespace at the path netns, under whatever name. None means that the kernel was
// asked and knows of none. "" for either is nothing to ask about.
//
// A path leads nowhere when it does not exist, and also when it is no network
// namespace: unmounting one leaves an empty file, which `ip netns` and CNI
// then fail to remove. A symbolic link leads where what it names leads. Paths are used again: where
// inode is that of the sandbox's own namespace, a path that leads to another leads nowhere; 0 is not known,
// and any namespace at the path may be its own. A path that
// cannot be looked at is an error, and so is one that [Bridge.CheckNetns] refuses.
//
// While the bridge is missing it is an error, too. The kernel's answer that
// there is no link of that name is the same for a bridge that was renamed or
// moved to another namespace, whose ports carry on; and the witnesses are
// silent then anyway.
//
// A port is also found by a name that
// it had at some time since the moment since, when the caller came to know the
// name, as far back as the bridge is watched; the zero time is as far back as
// that. Without the bound, a port that once had a name would stand for every
// later link of that name.
//
// That something is plugged is read from memory as [Bridge.Settle] makes it, for
// many ask again and again about what does not move. That nothing is, is asked
// of the kernel, on a socket of its own. It is safe for concurrent use.
func (b *Bridge) Plugged(ctx context.Context, hostInterface string, since time.Time, netns string, inode uint64) ([]census.Plugged, error) {
	if hostInterface == "" && netns == "" {
		return nil, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if known := b.recall(ctx, hostInterface, since, netns, inode); len(known) > 0 {
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
	fd, _, err := b.openNetns(ctx, netns, inode)
	if err != nil {
		return nil, fmt.Errorf("look for ports of %s into %s: %w", rt0.Name, netns, err)
	}
	if fd >= 0 {
		defer unix.Close(fd)
	}
	var leading []*rtnl.Link
	all, err := portsOf(k, rt0.Index)
	if err == nil {
		leading, err = leadInto(k, all, fd)
	}
	if err != nil {
		return nil, fmt.Errorf("look for ports of %s into %s: %w", rt0.Name, netns, err)
	}
	var out []census.Plugged
	if named != nil {
		out = append(out, census.Plugged{Port: named.Name, Bridge: rt0.Name})
	}
	for _, l := range leading {
		if named == nil || l.Index != named.Index {
			out = append(out, census.Plugged{Port: l.Name, Bridge: rt0.Name, Netns: netns})
		}
	}
	return out, nil
}

// recall is [Bridge.Plugged] from memory, with the news so far taken in. None
// says nothing: the memory may be of no use just now.
func (b *Bridge) recall(ctx context.Context, hostInterface string, since time.Time, netns string, inode uint64) (out []census.Plugged) {
	fd, _, err := b.openNetns(ctx, netns, inode)
	if err != nil {
		return nil
	}
	if fd >= 0 {
		defer unix.Close(fd)
	}
	_ = b.locked(ctx, func() error {
		b.drain()
		if err := b.settle(ctx, nil); err != nil || !b.device.isThere() {
			return err
		}
		id := rtnl.NoNetns
		if fd >= 0 {
			if its, err := b.kernel.NetnsID(fd); err == nil {
				id = its
			}
		}
		for _, index := range slices.Sorted(maps.Keys(b.netns.ports)) {
			switch p := b.netns.ports[index]; {
			case hostInterface != "" && p.link.Name == hostInterface:
				out = append(out, census.Plugged{Port: p.link.Name, Bridge: b.cfg.Name})
			case id != rtnl.NoNetns && p.link.Behind == id:
				out = append(out, census.Plugged{Port: p.link.Name, Bridge: b.cfg.Name, Netns: netns})
			case hostInterface != "" && p.had(hostInterface, since):
				out = append(out, census.Plugged{Port: p.link.Name, RenamedFrom: hostInterface, Bridge: b.cfg.Name})
			}
		}
		return nil
	})
	return out
}

// plugWithin is how long a bind waits for the link and the namespace that it names: what a kernel or a
// file system that hangs does not say by then is not distinguished from a later one. Namespaces that go
// keep the kernel for some 100 ms. lookWithin is how long all else waits that asks again anyway.
const (
	plugWithin = 500 * time.Millisecond
	lookWithin = 100 * time.Millisecond
)

// PlugOf looks up what a sandbox's plumbing is to the kernel: the index of the link
// hostInterface, a port or not, and the inode of the namespace that the path netns
// leads to. Names are used again, and within one boot of the machine an index only by a
// link that comes from another namespace with it.
// What is "" or is not there is 0. After an error, what is 0 may be there: the kernel, or the file system of the path, did not
// say it in [plugWithin]. The namespace has an id from now on: by that it is
// found where no port leads there, and its path has gone while it lives. It is safe for concurrent use.
func (s *lookups) PlugOf(ctx context.Context, hostInterface, netns string) (index int, inode uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, plugWithin)
	defer cancel()
	if hostInterface != "" {
		if index, err = s.findLink(ctx, hostInterface); err != nil {
			err = fmt.Errorf("look up link %s: %w", hostInterface, err)
		}
	}
	fd, inode, unsaid := s.openNetns(ctx, netns, 0)
	if fd >= 0 {
		_ = s.plugs.Within(ctx, func(k *rtnl.Socket) error {
			_, err := rtnl.IDOf(k, fd)
			return err
		}, func() { _ = unix.Close(fd) })
	}
	if errors.Is(unsaid, nspath.ErrRefused) {
		unsaid = nil // none is looked for there
	}
	return index, inode, errors.Join(err, unsaid)
}

// openNetns opens the namespace at a path, which the caller closes, and returns its inode. The file is -1 where there
// is none, none is looked for, or it is known to be another than the one with the inode own; 0 is any. An error means that
// it is not known.
func (s *lookups) openNetns(ctx context.Context, path string, own uint64) (fd int, inode uint64, err error) {
	if path == "" {
		return -1, 0, nil
	}
	if fd, err = s.paths.Open(ctx, path); err != nil || fd < 0 {
		return -1, 0, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err != nil {
		err = fmt.Errorf("look at %s: %w", path, err)
	}
	if err != nil || own != 0 && st.Ino != own {
		_ = unix.Close(fd)
		return -1, 0, err
	}
	return fd, st.Ino, nil
}

// HasLink reports whether the host has a link of a name, a port or not. It is safe for
// concurrent use.
func (s *lookups) HasLink(ctx context.Context, name string) (bool, error) {
	index, err := s.findLink(ctx, name)
	if err != nil {
		return false, fmt.Errorf("look up link %s: %w", name, err)
	}
	return index != 0, nil
}

// findLink returns the index of a link, 0 when there is none of the name. One question that hangs keeps the socket, and a
// caller that comes meanwhile waits for that until its own ctx ends.
func (s *lookups) findLink(ctx context.Context, name string) (int, error) {
	if len(name) >= unix.IFNAMSIZ { // no link can have such a name
		return 0, nil
	}
	index := 0
	err := s.plugs.Within(ctx, func(k *rtnl.Socket) error {
		l, err := k.LinkByName(name)
		if err == nil {
			index = l.Index
		}
		if rtnl.IsGone(err) {
			return nil
		}
		return err
	}, func() {})
	if err != nil {
		return 0, err
	}
	return index, nil
}
