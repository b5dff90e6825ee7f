package bridge

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// spaceNames is where `ip netns`, CNI plugins and containerd keep names of
// network namespaces.
const spaceNames = "/run/netns"

// NetnsID returns the id by which the bridge's namespace knows the one at
// path, as sightings show it ("nsid:7"). One that no link leads to has none:
// ErrNoNetnsID. It is safe for concurrent use.
func (b *Bridge) NetnsID(ctx context.Context, path string) (int, error) {
	fd, err := b.paths.open(ctx, path)
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

// A spaceName is a name of a network namespace, with the inode that tells the
// namespace from a later one of the same name.
type spaceName struct {
	file  string
	inode uint64
}

// nameSpaces finds the names of the namespaces behind the ports. The kernel
// searches all ids for each question, so only names that are new are asked
// about; and since there may be many, this is done now and then and never for
// an allocation. Until then a sighting shows the bare id.
func (b *Bridge) nameSpaces(ctx context.Context) {
	files, err := os.ReadDir(spaceNames)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		b.cfg.Log.Warn("network namespaces have no names", "reason", err)
	}
	ids := b.namedSpaces()
	names := make(map[int]spaceName, len(files))
	for _, f := range files {
		path := filepath.Join(spaceNames, f.Name())
		inode, err := inodeAt(path)
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
	b.unnamed = false
	for id, s := range b.spaces {
		if s.name != names[id] {
			s.name = names[id]
			b.spacesAgain[id] = true
		}
	}
}

// namedSpaces returns the ids whose names are known.
func (b *Bridge) namedSpaces() map[spaceName]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	ids := make(map[spaceName]int, len(b.spaces))
	for id, s := range b.spaces {
		if s.name.file != "" {
			ids[s.name] = id
		}
	}
	return ids
}
