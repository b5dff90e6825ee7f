package bridge

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

// plugWithin is how long a bind waits for the namespace that it names: a file
// system that hangs keeps what is there from being told from a later one.
const plugWithin = 100 * time.Millisecond

// PlugOf looks up what a sandbox's plumbing is to the kernel: the index of the link
// hostInterface, a port or not, and the inode of the namespace that the path netns
// leads to. Names are used again; within one boot of the machine these are not.
// What is "", is not there or cannot be looked up is 0. It is safe for concurrent
// use.
func (b *Bridge) PlugOf(ctx context.Context, hostInterface, netns string) (index int, inode uint64) {
	ctx, cancel := context.WithTimeout(ctx, plugWithin)
	defer cancel()
	if hostInterface != "" {
		_ = b.plugs.ask(ctx, func(k *rtnl) error {
			l, err := k.linkByName(hostInterface)
			if err == nil {
				index = l.index
			}
			if isGone(err) {
				return nil
			}
			return err
		})
	}
	if netns == "" {
		return index, 0
	}
	fd, err := b.paths.open(ctx, netns)
	if err != nil || fd < 0 {
		return index, 0
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil {
		inode = st.Ino
	}
	return index, inode
}
