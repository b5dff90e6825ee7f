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

// repair makes the bridge what is wanted, but for its gateways, and returns it as it is
// then. Only differences are written, so twice equals once, and its own
// events lead to no more writing. What others put on the bridge stays.
func (d *device) repair(k *rtnl.Socket, l *rtnl.Link) (*rtnl.Link, error) {
	if l == nil {
		// It is up from the beginning, forwards at once, and has a MAC that was set by
		// name: one that the kernel chose would follow the lowest port's, and every
		// guest's idea of the gateway with it.
		if err := k.AddBridge(d.name, ownMAC(d.name), d.want.MTU); err != nil {
			return nil, fmt.Errorf("make bridge %s: %w", d.name, err)
		}
		made, err := k.LinkByName(d.name)
		if err != nil {
			return nil, fmt.Errorf("look up bridge %s: %w", d.name, err)
		}
		d.pinned = made.Index
		d.log.Info("made bridge", "bridge", made.Name, "mac", made.MAC)
		l = made
	}
	if l.Kind != "bridge" {
		return l, nil // refused by judge: another's link
	}
	if err := d.repairLink(k, l); err != nil {
		return l, err
	}
	return l, d.place.do(d.forward)
}

// repairLink sets what differs, one message for each, and notes it in l.
func (d *device) repairLink(k *rtnl.Socket, l *rtnl.Link) error {
	set := func(what string, err error) error {
		if err != nil {
			return fmt.Errorf("set %s of bridge %s: %w", what, l.Name, err)
		}
		d.log.Info("repaired bridge", "bridge", l.Name, "what", what)
		return nil
	}
	if l.STP || l.ForwardDelay != 0 {
		if err := set("STP and forward delay", k.ForwardAtOnce(l.Index)); err != nil {
			return err
		}
		l.STP, l.ForwardDelay = false, 0
	}
	if d.pinned != l.Index {
		// A bridge that was there keeps its MAC, for the guests know it; but
		// from now on it is one set by name. Netlink does not show whether it
		// was already, so this is done once for each bridge.
		if err := set("MAC", k.SetMAC(l.Index, l.MAC)); err != nil {
			return err
		}
		d.pinned = l.Index
	}
	if mtu := d.want.MTU; mtu != 0 && l.MTU != mtu {
		if err := set("MTU", k.SetMTU(l.Index, mtu)); err != nil {
			return err
		}
		l.MTU = mtu
	}
	if !l.Up() {
		if err := set("up", k.SetUp(l.Index)); err != nil {
			return err
		}
		l.Flags |= unix.IFF_UP
	}
	return nil
}

// addGateways adds those that a managed bridge is without, and reports whether it did.
func (d *device) addGateways(k *rtnl.Socket) (added bool) {
	if !d.manage || d.broken != nil || !d.isThere() {
		return false
	}
	for _, gw := range d.missing() {
		if err := k.AddAddress(d.link.Index, gw); err != nil {
			d.broken = fmt.Errorf("add gateway %v to bridge %s: %w", gw, d.name, err)
			break
		}
		added = true
		d.log.Info("repaired bridge", "bridge", d.name, "what", "gateway", "addr", gw)
	}
	return added
}

// forward lets the namespace route between the bridge and the world. Call it
// on a thread inside.
func (d *device) forward() error {
	err := setSysctl("net/ipv4/ip_forward", "1")
	if slices.ContainsFunc(d.want.Gateways, func(p netip.Prefix) bool { return p.Addr().Is6() }) {
		err = errors.Join(err, setSysctl("net/ipv6/conf/all/forwarding", "1"))
	}
	return err
}

// setSysctl writes a value under /proc/sys, whose net part belongs to the
// namespace of the calling thread, unless it is there already.
func setSysctl(name, value string) error {
	file := "/proc/sys/" + name
	now, err := os.ReadFile(file)
	if err == nil && strings.TrimSpace(string(now)) != value {
		err = os.WriteFile(file, []byte(value), 0)
	}
	if err != nil {
		return fmt.Errorf("set sysctl %s to %s: %w", name, value, err)
	}
	return nil
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
