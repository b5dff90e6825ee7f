package bridge

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// namedSpaces is where `ip netns`, CNI plugins and containerd keep names of
// network namespaces.
const namedSpaces = "/run/netns"

// NetnsID returns the id by which the bridge's namespace knows the one at
// path, as sightings show it ("nsid:7"). One that no link leads to has none:
// ErrNoNetnsID. It is safe for concurrent use.
func (b *Bridge) NetnsID(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0, fmt.Errorf("open network namespace %s: %w", path, err)
	}
	defer unix.Close(fd)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, ErrClosed
	}
	id, err := b.kernel.netnsID(fd)
	if err != nil {
		return 0, fmt.Errorf("look up the id of network namespace %s: %w", path, err)
	}
	return id, nil
}

// nameSpaces finds the names of the namespaces behind the ports. It opens
// every name there is, so it is done now and then and never for an
// allocation; until then a sighting shows the bare id.
func (b *Bridge) nameSpaces() {
	files, err := os.ReadDir(namedSpaces)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		b.cfg.Log.Warn("network namespaces have no names", "reason", err)
	}
	names := make(map[int]string, len(files))
	for _, f := range files {
		if id, err := b.NetnsID(filepath.Join(namedSpaces, f.Name())); err == nil {
			names[id] = f.Name()
		}
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
