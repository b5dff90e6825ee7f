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
	return l, d.inside.do(d.forward)
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

// setGateways adds the gateways that a managed bridge is without, and then takes those off
// it that are former ones and that ipamd put there: the kernel keeps with an address who
// made it, so an earlier daemon's are known too, and what a person added stays. It reports
// whether it changed any.
//
// The old one goes last, so that a gateway whose prefix length changes is there all the
// while, and its connected route. IPv6 has an address once on a link, whatever
// its prefix length: there the new one follows the old one at once.
func (d *device) setGateways(k *rtnl.Socket) (changed bool) {
	if !d.manage || d.broken != nil || !d.isThere() {
		return false
	}
	over := d.leftOver(k)
	d.failed = make(map[netip.Prefix]error) // of another gateway it is no failure
	for _, gw := range d.missing() {
		if i := slices.IndexFunc(over, func(o netip.Prefix) bool { return o.Addr() == gw.Addr() && gw.Addr().Is6() }); i >= 0 {
			changed = d.removeGateway(k, over[i]) || changed
			over = slices.Delete(over, i, i+1)
		}
		switch err := k.AddAddress(d.link.Index, gw); {
		case err == nil:
			d.log.Info("repaired bridge", "bridge", d.name, "what", "gateway", "addr", gw)
		case !errors.Is(err, unix.EEXIST):
			d.failed[gw] = fmt.Errorf("add gateway %v to bridge %s: %w", gw, d.name, err)
			continue
		}
		changed = true // or by another, meanwhile
	}
	for _, gw := range over {
		if slices.Contains(d.want.Former, gw) {
			changed = d.removeGateway(k, gw) || changed
		}
	}
	return changed
}

// leftOver lists the addresses that ipamd put on the bridge and that are wanted no more.
func (d *device) leftOver(k *rtnl.Socket) []netip.Prefix {
	unwanted := func(p netip.Prefix) bool { return rtnl.Assignable(p.Addr()) && !slices.Contains(d.want.Gateways, p) }
	if !slices.ContainsFunc(d.addrs, func(a rtnl.Address) bool { return a.Index == d.link.Index && unwanted(a.Prefix) }) {
		return nil
	}
	ours, err := k.OursOn(d.link.Index)
	if err != nil {
		d.log.Warn("former gateways stay on the bridge", "bridge", d.name, "err", err)
		return nil
	}
	d.theirs = nil
	for _, a := range d.addrs {
		if a.Index == d.link.Index && unwanted(a.Prefix) && !slices.Contains(ours, a.Prefix) {
			d.theirs = append(d.theirs, a.Prefix)
		}
	}
	return slices.DeleteFunc(ours, func(p netip.Prefix) bool { return !unwanted(p) })
}

// removeGateway takes an address off the bridge. One that cannot be taken off does
// no harm: the next look tries again.
func (d *device) removeGateway(k *rtnl.Socket, gw netip.Prefix) (removed bool) {
	err := d.inside.do(func() error { return d.keepOthers(gw) })
	if err == nil {
		err = k.RemoveAddress(d.link.Index, gw)
	}
	if err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
		d.log.Warn("former gateway stays on the bridge", "bridge", d.name, "addr", gw, "err", err)
		return false
	}
	d.log.Info("repaired bridge", "bridge", d.name, "what", "former gateway", "addr", gw)
	return true
}

// keepOthers has those addresses stay that the kernel counts as secondary to this one, for
// they are in its subnet and came later: without this setting it removes them with it. Call
// it on a thread inside.
func (d *device) keepOthers(gw netip.Prefix) error {
	secondary := func(a rtnl.Address) bool {
		return a.Index == d.link.Index && a.Prefix != gw && a.Prefix.Masked() == gw.Masked()
	}
	if !gw.Addr().Is4() || !slices.ContainsFunc(d.addrs, secondary) && !slices.ContainsFunc(d.want.Gateways, func(p netip.Prefix) bool { return p.Masked() == gw.Masked() }) {
		return nil
	}
	return setSysctl("net/ipv4/conf/"+d.name+"/promote_secondaries", "1")
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
		return &sysctlError{name, value, err}
	}
	return nil
}

// A sysctlError is a value below /proc/sys that is not as a managed bridge needs it, and that
// could not be set: the shipped unit lets ipamd only read there.
type sysctlError struct {
	name, value string
	err         error
}

func (e *sysctlError) Error() string {
	return fmt.Sprintf("set sysctl %s to %s: %v", e.name, e.value, e.err)
}
func (e *sysctlError) Unwrap() error { return e.err }

// command sets it until the next boot.
func (e *sysctlError) command() string {
	return "sysctl -w " + strings.ReplaceAll(e.name, "/", ".") + "=" + e.value
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
