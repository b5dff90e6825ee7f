package bridge

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/rtnl"
)

// plugWithin is how long a bind waits for the link and the namespace that it names: a
// kernel or a file system that hangs keeps what is there from being told from a later
// one.
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
		index = b.linkIndex(ctx, hostInterface)
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

// linkIndex returns the index of a link, or 0 when ctx ends before the kernel answers.
// One question that hangs keeps the socket, and who comes meanwhile waits for that
// until its own ctx ends.
func (b *Bridge) linkIndex(ctx context.Context, name string) int {
	found := make(chan int, 1)
	go func() { // nothing else returns from a system call that hangs
		index := 0
		_ = b.plugs.Ask(ctx, func(k *rtnl.Socket) error {
			l, err := k.LinkByName(name)
			if err == nil {
				index = l.Index
			}
			if rtnl.IsGone(err) {
				return nil
			}
			return err
		})
		found <- index
	}()
	select {
	case index := <-found:
		return index
	case <-ctx.Done():
		return 0
	}
}
