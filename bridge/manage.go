package bridge

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// mend makes the bridge what the config describes and returns it as it is
// then. Only differences are written, so twice equals once, and its own
// events lead to no more writing. What others put on the bridge stays.
func (b *Bridge) mend(l *link) (*link, error) {
	if l == nil {
		if err := b.make(); err != nil {
			return nil, err
		}
		made, err := b.kernel.linkByName(b.cfg.Name)
		if err != nil {
			return nil, fmt.Errorf("look up bridge %s: %w", b.cfg.Name, err)
		}
		b.pinned = made.index
		b.cfg.Log.Info("made bridge", "bridge", made.name, "mac", made.mac)
		l = made
	}
	if l.kind != "bridge" {
		return l, nil // refused by judge: somebody else's link
	}
	if err := b.mendLink(l); err != nil {
		return l, err
	}
	if err := b.mendGateways(l); err != nil {
		return l, err
	}
	return l, b.place.do(b.forward)
}

// make adds the bridge. It is up from the beginning, forwards at once, and has
// a MAC that was set by name: one that the kernel chose would follow the
// lowest port's, and every guest's idea of the gateway with it.
func (b *Bridge) make() error {
	req, err := withAttributes(ifinfo(0, unix.IFF_UP, unix.IFF_UP), func(ae *netlink.AttributeEncoder) {
		ae.String(unix.IFLA_IFNAME, b.cfg.Name)
		ae.Bytes(unix.IFLA_ADDRESS, ownMAC(b.cfg.Name))
		if b.cfg.MTU != 0 {
			ae.Uint32(unix.IFLA_MTU, uint32(b.cfg.MTU))
		}
		bridgeInfo(ae, func(data *netlink.AttributeEncoder) {
			data.Uint32(unix.IFLA_BR_STP_STATE, 0)
			data.Uint32(unix.IFLA_BR_FORWARD_DELAY, 0)
		})
	})
	if err == nil {
		err = b.kernel.change(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, req)
	}
	if err != nil {
		return fmt.Errorf("make bridge %s: %w", b.cfg.Name, err)
	}
	return nil
}

func bridgeInfo(ae *netlink.AttributeEncoder, fill func(*netlink.AttributeEncoder)) {
	ae.Nested(unix.IFLA_LINKINFO, func(info *netlink.AttributeEncoder) error {
		info.String(unix.IFLA_INFO_KIND, "bridge")
		info.Nested(unix.IFLA_INFO_DATA, func(data *netlink.AttributeEncoder) error {
			fill(data)
			return nil
		})
		return nil
	})
}

// mendLink sets what differs, one message for each, and notes it in l.
func (b *Bridge) mendLink(l *link) error {
	set := func(what string, flags uint32, fill func(*netlink.AttributeEncoder)) error {
		req, err := withAttributes(ifinfo(l.index, flags, flags), fill)
		if err == nil {
			err = b.kernel.change(unix.RTM_NEWLINK, 0, req)
		}
		if err != nil {
			return fmt.Errorf("set %s of bridge %s: %w", what, l.name, err)
		}
		b.cfg.Log.Info("mended bridge", "bridge", l.name, "what", what)
		return nil
	}
	if l.stp || l.forwardDelay != 0 {
		// STP first: while it is on, the kernel refuses a delay of zero.
		for _, attr := range []uint16{unix.IFLA_BR_STP_STATE, unix.IFLA_BR_FORWARD_DELAY} {
			err := set("STP and forward delay", 0, func(ae *netlink.AttributeEncoder) {
				bridgeInfo(ae, func(data *netlink.AttributeEncoder) { data.Uint32(attr, 0) })
			})
			if err != nil {
				return err
			}
		}
		l.stp, l.forwardDelay = false, 0
	}
	if b.pinned != l.index {
		// A bridge that was there keeps its MAC, for the guests know it; but
		// from now on it is one set by name. Netlink does not tell whether it
		// was already, so this is done once for each bridge.
		err := set("MAC", 0, func(ae *netlink.AttributeEncoder) { ae.Bytes(unix.IFLA_ADDRESS, l.mac) })
		if err != nil {
			return err
		}
		b.pinned = l.index
	}
	if b.cfg.MTU != 0 && l.mtu != b.cfg.MTU {
		err := set("MTU", 0, func(ae *netlink.AttributeEncoder) { ae.Uint32(unix.IFLA_MTU, uint32(b.cfg.MTU)) })
		if err != nil {
			return err
		}
		l.mtu = b.cfg.MTU
	}
	if !l.up() {
		if err := set("up", unix.IFF_UP, func(*netlink.AttributeEncoder) {}); err != nil {
			return err
		}
		l.flags |= unix.IFF_UP
	}
	return nil
}

func (b *Bridge) mendGateways(l *link) error {
	all, err := b.kernel.addresses(noSpace)
	if err != nil {
		return fmt.Errorf("list addresses of bridge %s: %w", l.name, err)
	}
	for _, gw := range b.cfg.Gateways {
		if slices.Contains(all, address{gw, l.index}) {
			continue
		}
		if err := b.kernel.addAddress(l.index, gw); err != nil {
			return fmt.Errorf("add gateway %v to bridge %s: %w", gw, l.name, err)
		}
		b.cfg.Log.Info("mended bridge", "bridge", l.name, "what", "gateway", "addr", gw)
	}
	return nil
}

// forward lets the namespace route between the bridge and the world. Call it
// on a thread inside.
func (b *Bridge) forward() error {
	err := setSysctl("net/ipv4/ip_forward", "1")
	if slices.ContainsFunc(b.cfg.Gateways, func(p netip.Prefix) bool { return p.Addr().Is6() }) {
		err = errors.Join(err, setSysctl("net/ipv6/conf/all/forwarding", "1"))
	}
	return err
}

// ownMAC derives a bridge's MAC from the machine and the bridge's name: the
// same after each restart, another on each machine, and marked as locally
// administered (IEEE 802, section 8.4).
func ownMAC(bridge string) net.HardwareAddr {
	id, _ := os.ReadFile("/etc/machine-id") // without one the name must do
	sum := sha256.Sum256([]byte("bridge " + strings.TrimSpace(string(id)) + " " + bridge))
	mac := net.HardwareAddr(sum[:6])
	mac[0] = mac[0]&^0x01 | 0x02
	return mac
}
