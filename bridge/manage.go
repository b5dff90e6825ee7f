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

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/rtnl"
)

// apply makes the bridge what the config describes and returns it as it is
// then. Only differences are written, so twice equals once, and its own
// events lead to no more writing. What others put on the bridge stays.
func (b *Bridge) apply(l *rtnl.Link) (*rtnl.Link, error) {
	if l == nil {
		if err := b.make(); err != nil {
			return nil, err
		}
		made, err := b.kernel.LinkByName(b.cfg.Name)
		if err != nil {
			return nil, fmt.Errorf("look up bridge %s: %w", b.cfg.Name, err)
		}
		b.pinned = made.Index
		b.cfg.Log.Info("made bridge", "bridge", made.Name, "mac", made.MAC)
		l = made
	}
	if l.Kind != "bridge" {
		return l, nil // refused by judge: another's link
	}
	if err := b.applyLink(l); err != nil {
		return l, err
	}
	if err := b.applyGateways(l); err != nil {
		return l, err
	}
	return l, b.place.do(b.forward)
}

// make adds the bridge. It is up from the beginning, forwards at once, and has
// a MAC that was set by name: one that the kernel chose would follow the
// lowest port's, and every guest's idea of the gateway with it.
func (b *Bridge) make() error {
	if err := b.kernel.AddBridge(b.cfg.Name, ownMAC(b.cfg.Name), b.want.Load().MTU); err != nil {
		return fmt.Errorf("make bridge %s: %w", b.cfg.Name, err)
	}
	return nil
}

// applyLink sets what differs, one message for each, and notes it in l.
func (b *Bridge) applyLink(l *rtnl.Link) error {
	set := func(what string, err error) error {
		if err != nil {
			return fmt.Errorf("set %s of bridge %s: %w", what, l.Name, err)
		}
		b.cfg.Log.Info("mended bridge", "bridge", l.Name, "what", what)
		return nil
	}
	if l.STP || l.ForwardDelay != 0 {
		if err := set("STP and forward delay", b.kernel.ForwardAtOnce(l.Index)); err != nil {
			return err
		}
		l.STP, l.ForwardDelay = false, 0
	}
	if b.pinned != l.Index {
		// A bridge that was there keeps its MAC, for the guests know it; but
		// from now on it is one set by name. Netlink does not tell whether it
		// was already, so this is done once for each bridge.
		if err := set("MAC", b.kernel.SetMAC(l.Index, l.MAC)); err != nil {
			return err
		}
		b.pinned = l.Index
	}
	if b.want.Load().MTU != 0 && l.MTU != b.want.Load().MTU {
		if err := set("MTU", b.kernel.SetMTU(l.Index, b.want.Load().MTU)); err != nil {
			return err
		}
		l.MTU = b.want.Load().MTU
	}
	if !l.Up() {
		if err := set("up", b.kernel.SetUp(l.Index)); err != nil {
			return err
		}
		l.Flags |= unix.IFF_UP
	}
	return nil
}

func (b *Bridge) applyGateways(l *rtnl.Link) error {
	all, err := b.kernel.Addresses(rtnl.NoNetns)
	if err != nil {
		return fmt.Errorf("list addresses of bridge %s: %w", l.Name, err)
	}
	for _, gw := range b.want.Load().Gateways {
		if slices.Contains(all, rtnl.Address{Prefix: gw, Index: l.Index}) {
			continue
		}
		if err := b.kernel.AddAddress(l.Index, gw); err != nil {
			return fmt.Errorf("add gateway %v to bridge %s: %w", gw, l.Name, err)
		}
		b.cfg.Log.Info("mended bridge", "bridge", l.Name, "what", "gateway", "addr", gw)
	}
	return nil
}

// forward lets the namespace route between the bridge and the world. Call it
// on a thread inside.
func (b *Bridge) forward() error {
	err := setSysctl("net/ipv4/ip_forward", "1")
	if slices.ContainsFunc(b.want.Load().Gateways, func(p netip.Prefix) bool { return p.Addr().Is6() }) {
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
