package bridge

import (
	"github.com/ipamd/ipamd/bridge/nspath"
	"github.com/ipamd/ipamd/bridge/remains"
	"github.com/ipamd/ipamd/bridge/rtnl"
)

// lookups asks the kernel about links and namespaces, and sets what a port does with group
// addresses, on sockets of its own: it needs nothing of what the bridge remembers, and waits for
// none of its readings. It is safe for concurrent use.
type lookups struct {
	bridge  string
	paths   *nspath.Paths
	plugs   *rtnl.Cached     // of single links
	machine *remains.Machine // of what no witness sees
}
