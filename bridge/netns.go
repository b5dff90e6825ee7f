package bridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/nspath"
	"github.com/ipamd/ipamd/bridge/rtnl"
	"github.com/ipamd/ipamd/census"
)

// NetnsID returns the id by which the bridge's namespace knows the one at
// path, as sightings show it ("nsid:7"). One that no link leads to has none:
// ErrNoNetnsID. It is safe for concurrent use.
func (b *Bridge) NetnsID(ctx context.Context, path string) (int, error) {
	fd, err := b.paths.Open(ctx, path)
	if err == nil && fd < 0 {
		err = fmt.Errorf("%s: %w", path, os.ErrNotExist)
	}
	if err != nil {
		return 0, fmt.Errorf("open network namespace: %w", err)
	}
	defer unix.Close(fd)
	var id int
	err = b.locked(ctx, func() (err error) {
		id, err = b.kernel.NetnsID(fd)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("look up the id of network namespace %s: %w", path, err)
	}
	return id, nil
}

// CheckNetns reports why a network namespace cannot be named by a path: see [nspath.Paths.Check].
// It is safe for concurrent use.
func (s *lookups) CheckNetns(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	return s.paths.Check(ctx, path)
}

// A spaceName is a name of a network namespace, with the inode that distinguishes the
// namespace from a later one of the same name.
type spaceName struct {
	file  string
	inode uint64
}

// nameSpaces finds the names of the namespaces behind the ports. The kernel
// searches all ids for each question, so only names that are new are asked
// about; and since there may be many, this is done now and then and never for
// an allocation. Until then a sighting shows the bare id.
func (b *Bridge) nameSpaces(ctx context.Context) error {
	files, err := os.ReadDir(nspath.Named)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		b.cfg.Log.Warn("network namespaces have no names", "reason", err)
	}
	ids := make(map[spaceName]int) // that are known
	b.mu.Lock()
	for id, s := range b.netns.spaces {
		ids[s.name] = id
	}
	b.mu.Unlock()
	names := make(map[int]spaceName, len(files))
	for _, f := range files {
		path := filepath.Join(nspath.Named, f.Name())
		inode, err := nspath.Inode(path)
		if err != nil {
			continue // removed since it was listed
		}
		name := spaceName{f.Name(), inode}
		id, known := ids[name]
		if !known {
			if id, err = b.NetnsID(ctx, path); err != nil {
				continue // no port leads there
			}
		}
		names[id] = name
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.netns.unnamed = false
	for id, s := range b.netns.spaces {
		if s.name != names[id] {
			s.name = names[id]
			b.netns.again[id] = true
		}
	}
	return nil
}

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
	if own, err := isIn(cmp.Or(b.cfg.Netns, "/proc/self/ns/net"), pid); err != nil || own {
		return census.Home{Host: own}, err
	}
	if id == rtnl.Unassigned {
		return census.Home{}, nil
	}
	home := census.Home{Netns: census.NewNetnsID(id, "")}
	err = b.locked(ctx, func() error {
		if s := b.netns.spaces[id]; s != nil { // else that of a stacked link, which is no port
			home.Ports = s.portNames()
		}
		return nil
	})
	return home, err
}

// isIn reports whether a process is in the network namespace at a path, which is the
// bridge's. One that has ended is in none.
func isIn(netns string, pid uint32) (bool, error) {
	own, err := nspath.Inode(netns)
	if err != nil {
		return false, fmt.Errorf("look for the network namespace of the bridge: %w", err)
	}
	its, err := nspath.Inode(fmt.Sprintf("/proc/%d/ns/net", pid))
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for the network namespace of process %d: %w", pid, err)
	}
	return its == own, nil
}
