package bridge

import (
	"context"

	"github.com/ipamd/ipamd/bridge/rtnl"
	"github.com/ipamd/ipamd/internal/share"
)

// lookups asks the kernel about links and namespaces, and sets what a port does with group
// addresses, on sockets of its own: it needs nothing of what the bridge remembers, and waits for
// none of its readings. It is safe for concurrent use.
type lookups struct {
	bridge    string
	paths     *netnsPaths
	plugs     *rtnl.Kept                                  // of single links
	dialRoute func(context.Context) (*rtnl.Socket, error) // one for the caller alone
	besides   *share.Run[watch, beside]                   // of what no witness reads
}
