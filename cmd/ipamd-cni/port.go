package main

import (
	"fmt"
	"os"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/bridge/rtnl"
	"github.com/ipamd/ipamd/internal/nsthread"
)

// A port is how a container's interface is plugged, as far as the main plugin has made it
// when it asks for addresses.
type port struct {
	mac    string // of the container's end
	host   string // the host's end; "" where there is none, or none yet
	index  int
	bridge string // that the host's end is a port of; "" for none
}

// binding is what a lease records of a port: what is empty is not known yet.
func (p port) binding(args *skel.CmdArgs) *api.BindRequest {
	return &api.BindRequest{Netns: args.Netns, HostInterface: p.host, MAC: p.mac}
}

// find looks at the interface that an ADD is for. A namespace that is none, and this
// process's own, are errors of CNI_NETNS. An interface that is not there is none: some
// main plugins make it later.
func find(args *skel.CmdArgs) (p port, err error) {
	inside, err := os.Open(args.Netns)
	if err != nil {
		return p, badNetns(args, err.Error())
	}
	defer inside.Close()
	if is, err := nsthread.IsNetns(int(inside.Fd())); err != nil || !is {
		return p, badNetns(args, "it is no network namespace")
	}
	if own, err := nsthread.IsOwn(int(inside.Fd())); err == nil && own {
		return p, badNetns(args, "it is the host's own network namespace")
	}
	host, err := rtnl.Dial(unix.NETLINK_ROUTE)
	if err != nil {
		return p, err
	}
	defer host.Close()
	guest, err := dialIn(inside)
	if err != nil {
		return p, fmt.Errorf("look into %s: %w", args.Netns, err)
	}
	defer guest.Close()
	end, err := guest.LinkByName(args.IfName)
	if rtnl.IsGone(err) {
		return p, nil
	}
	if err != nil {
		return p, fmt.Errorf("look for %s in %s: %w", args.IfName, args.Netns, err)
	}
	p.mac = end.MAC.String()
	if end.Kind != "veth" || end.Peer == 0 {
		return p, nil
	}
	// The index of a far end is one of its own namespace: only a link that leads back is it.
	far, err := host.Link(rtnl.NoNetns, end.Peer)
	if err != nil || far.Kind != "veth" || far.Peer != end.Index {
		return p, nil
	}
	p.host, p.index = far.Name, far.Index
	if far.Master != 0 {
		if m, err := host.Link(rtnl.NoNetns, far.Master); err == nil && m.Kind == "bridge" {
			p.bridge = m.Name
		}
	}
	return p, nil
}

// portBelow is find of an ADD below another main plugin, which has to be one of a bridge.
func portBelow(c *config, args *skel.CmdArgs) (port, error) {
	p, err := find(args)
	if err == nil && p.bridge == "" && c.Type != "bridge" {
		err = wrong("type", fmt.Sprintf("%q has made no port of a bridge by now, and on another link ipamd sees no container: its address would be another's one day. Use bridge, or ipamd itself", c.Type))
	}
	return p, err
}

// dialIn opens a netlink socket in another namespace, where it stays. Without the way home
// the thread is left to this goroutine alone, and the call is an error.
func dialIn(inside *os.File) (s *rtnl.Socket, err error) {
	err = nsthread.In(int(inside.Fd()), func() (err error) {
		s, err = rtnl.Dial(unix.NETLINK_ROUTE)
		return err
	})
	if err != nil && s != nil {
		s.Close()
		s = nil
	}
	return s, err
}

// stillPlugged reports whether the host has a link of that name and index.
func stillPlugged(name string, index int) bool {
	host, err := rtnl.Dial(unix.NETLINK_ROUTE)
	if err != nil {
		return true
	}
	defer host.Close()
	l, err := host.LinkByName(name)
	if rtnl.IsGone(err) {
		return false
	}
	return err != nil || index == 0 || l.Index == index
}

func badNetns(args *skel.CmdArgs, why string) error {
	return types.NewError(types.ErrInvalidNetNS, "CNI_NETNS "+args.Netns+": "+why, "")
}
