package bridge

import (
	"fmt"

	"github.com/ipamd/ipamd/bridge/rtnl"
	"github.com/ipamd/ipamd/census"
)

// readHost lists the addresses of the namespace that the bridge is in: the
// gateway, anything added by hand, and those of the host's other links. The
// kernel delivers traffic for any of them to the host itself, so an address
// on another link is as unusable for a sandbox as one on the bridge. That
// covers the far end of a port that was left in this namespace, too.
func (b *Bridge) readHost() error {
	b.hostAgain = false
	all, err := b.kernel.Addresses(rtnl.NoNetns)
	if err != nil {
		b.hostAgain = true
		err = fmt.Errorf("list the host's addresses: %w", err)
		b.host.fail(hostScope, err)
		return err
	}
	b.hosts = all
	b.hostLinks = make(map[int]bool)
	b.own = make(prefixes)
	var seen []census.Sighting
	for _, a := range all {
		if b.link != nil && a.Index == b.link.Index {
			b.own[a.Prefix] = true
		}
		if !rtnl.Assignable(a.Prefix.Addr()) {
			continue
		}
		b.hostLinks[a.Index] = true
		name, mac := b.hostLink(a.Index)
		seen = append(seen, census.Sighting{Addr: a.Prefix.Addr(), Bridge: b.cfg.Name, Port: name, MAC: mac})
	}
	b.host.see(hostScope, seen)
	return nil
}

const hostScope = "host"

// hostLink names a link of the host, and its MAC, as far as they can be had.
func (b *Bridge) hostLink(index int) (name, mac string) {
	l := b.link
	if l == nil || l.Index != index {
		var err error
		if l, err = b.kernel.Link(rtnl.NoNetns, index); err != nil {
			return "", ""
		}
	}
	return l.Name, l.MAC.String()
}
