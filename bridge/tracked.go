package bridge

import (
	"context"

	"github.com/ipamd/ipamd/bridge/rtnl"
)

// findTracking asks once whether the kernel tracks connections. Any answer but
// that it does not is taken for one that does.
func (b *Bridge) findTracking() {
	err := b.connections.Ask(context.Background(), func(k *rtnl.Socket) error {
		_, err := k.CountConnections()
		return err
	})
	b.tracks.Store(!rtnl.IsUntracked(err))
	b.cfg.Log.Debug("connection tracking", "there", b.tracks.Load(), "answer", err)
}
