package bridge

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/census"
)

// Ended reports that the kernel itself says that nothing is left of where a sandbox was last known
// to be: no link has the index, or another sandbox's has it, nor the name, and
// the path of the namespace leads nowhere or to another. Where no link or no namespace is
// named, or which namespace it was is not known, it is false, for then nothing was asked: a link that
// moved to another namespace is not there either. What cannot be looked
// at is an error. It asks on a socket of its own, and is safe for concurrent use.
func (b *lookups) Ended(ctx context.Context, at census.LastKnown) (bool, error) {
	if at.Link == 0 && at.Behind == 0 || at.Netns == "" || at.Inode == 0 {
		return false, nil
	}
	k, err := b.dialRoute(ctx)
	if err != nil {
		return false, fmt.Errorf("look whether links have ended: %w", err)
	}
	defer k.Close()
	if l, err := namedLink(k, at); l != nil || err != nil {
		return false, err
	}
	l, err := linkOf(k, at.Behind, "")
	if err != nil {
		return false, err
	}
	if l != nil {
		if another, err := isAnothers(k, l, at, false); !another || err != nil {
			return false, err
		}
	}
	fd, err := b.openRecorded(ctx, at)
	if err != nil || fd < 0 {
		return err == nil, err
	}
	_ = unix.Close(fd)
	return false, nil
}

// Ended is that of one bridge: links and namespaces are the machine's.
func (g *Group) Ended(ctx context.Context, at census.LastKnown) (bool, error) {
	return g.own().Ended(ctx, at)
}
