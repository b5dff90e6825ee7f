package bridge

import (
	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/probe"
	"github.com/ipamd/ipamd/bridge/rtnl"
)

// A wire is the bridge as a witness may look at it: the socket to ask the kernel on, its
// link, its ports by index, which are not to be changed, and the id by which its
// namespace knows itself.
type wire struct {
	*rtnl.Socket
	link  *rtnl.Link
	ports map[int]*port
	self  int
}

func (w wire) isPort(index int) bool { return w.ports[index] != nil }

// listedPort finds a port in the list of all: where the link cannot be read, and is no port, nothing
// else says that it is none. One that is not there is ENODEV.
func (w wire) listedPort(index int) (found *rtnl.Link, err error) {
	err = rtnl.Steady(func() error {
		found = nil
		return w.PortsOf(w.link.Index, func(l *rtnl.Link) {
			if l.Index == index {
				found = l
			}
		})
	})
	if err == nil && found == nil {
		err = unix.ENODEV
	}
	return found, err
}

// parent is the name of the link that another is stacked on, if that is the bridge or a port
// of it, and empty else.
func (w wire) parent(index int) string {
	switch p := w.ports[index]; {
	case index == w.link.Index:
		return w.link.Name
	case p != nil:
		return p.link.Name
	}
	return ""
}

// behind is the port that the bridge last saw a MAC behind, by index; 0 when it
// knows of none. The MAC of the host's own end of a port is in the table, too,
// and no guest behind the port has it.
func (w wire) behind(m probe.MAC) int {
	f, err := w.Forwarding(w.link.Index, w.link.VLAN, m[:])
	if err != nil || f.State&unix.NUD_PERMANENT != 0 || !w.isPort(f.Index) {
		return 0
	}
	return f.Index
}
