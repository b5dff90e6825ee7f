package bridge

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/ipamd/ipamd/bridge/rtnl"
)

// look reads the bridge's own link and the host's addresses again, repairs the
// bridge if it is managed, and says whether it is ready. An error means
// that the kernel could not be asked; a bridge that is not as it should be is
// no error but not ready.
func (b *Bridge) look() error {
	if err := b.lookLink(); err != nil {
		return err
	}
	if err := b.readHost(); err != nil {
		b.unready("the addresses of "+b.cfg.Name+" could not be listed", err)
		return err
	}
	b.judge()
	return nil
}

// lookLink is look without the host's addresses, of which there may be one for
// each port.
func (b *Bridge) lookLink() error {
	b.lookAgain = false
	l, err := b.kernel.LinkByName(b.cfg.Name)
	if rtnl.IsGone(err) {
		l, err = nil, nil
	}
	if err != nil {
		b.lookAgain = true
		err = fmt.Errorf("look up bridge %s: %w", b.cfg.Name, err)
		b.unready("the kernel could not be asked about "+b.cfg.Name, err)
		return err
	}
	if b.cfg.Manage {
		l, b.broken = b.apply(l)
	}
	if !sameBridge(b.link, l) {
		b.lost = true // nothing that is known is about this one
		b.neighbour.whole = errUnread
		clear(b.unplaced)
	}
	b.setLink(l)
	if b.isThere() {
		b.dropAnswersFrom(func(o origin) bool { return o.bridge != l.Index })
	}
	if err := b.probe.Aim(l); err != nil {
		b.lookAgain = true
		b.unready("no probe can be sent on "+b.cfg.Name, err)
		return err
	}
	return nil
}

func (b *Bridge) setLink(l *rtnl.Link) {
	b.link = l
	b.shown.Store(l)
}

func sameBridge(a, b *rtnl.Link) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Index == b.Index && a.Kind == b.Kind
}

func (b *Bridge) isThere() bool { return b.link != nil && b.link.Kind == "bridge" }

// absent says why there is nothing to see where no bridge is. The witnesses
// are silent then: what was on it may well be alive.
func (b *Bridge) absent() error { return absent(b.cfg.Name, b.link) }

func absent(name string, l *rtnl.Link) error {
	if l == nil {
		return fmt.Errorf("%s is missing, so nothing is known of what was on it", name)
	}
	return fmt.Errorf("%s is not a bridge, so nothing is known of what should be on it", name)
}

// judge says from memory whether addresses may be handed out, as far as the
// bridge goes.
func (b *Bridge) judge() {
	l := b.link
	switch {
	case b.broken != nil:
		b.unready(fmt.Sprintf("%s could not be made ready (%v)", b.cfg.Name, b.broken), b.broken)
	case l == nil:
		b.unready(b.cfg.Name+" is missing", nil)
	case l.Kind == "":
		b.unready(l.Name+" is not a bridge but a network card", nil)
	case l.Kind != "bridge":
		b.unready(fmt.Sprintf("%s is not a bridge but a link of kind %s", l.Name, l.Kind), nil)
	case !l.Up():
		b.unready(l.Name+" is down", nil)
	case len(b.missingGateways()) != 0:
		b.unready(fmt.Sprintf("%s is without the gateway %s", l.Name, strings.Join(b.missingGateways(), " and ")), nil)
	default:
		if b.ready.Swap(nil) != nil {
			b.cfg.Log.Info("bridge is ready", "bridge", l.Name)
		}
	}
}

func (b *Bridge) missingGateways() []string {
	var out []string
	for _, gw := range b.want.Load().Gateways {
		if !b.own[gw] {
			out = append(out, gw.String())
		}
	}
	return out
}

func (b *Bridge) unready(reason string, cause error) {
	now := &NotReadyError{Reason: reason, Since: time.Now(), Repair: b.repair(), cause: cause}
	old := b.ready.Load()
	if old != nil {
		now.Since = old.Since
	}
	b.ready.Store(now)
	// That it has not been looked at at the start, nor is at the end, is no news.
	if old != nil && old.Reason != reason && !errors.Is(cause, ErrClosed) {
		b.cfg.Log.Warn("bridge is not ready", "bridge", b.cfg.Name, "reason", reason)
	}
}

// repair is what makes the bridge ready by hand: a link that is there and is no
// bridge is a person's to remove. A link that goes down loses its IPv6 addresses.
func (b *Bridge) repair() (commands []string) {
	name := b.cfg.Name
	switch {
	case b.broken != nil || b.link != nil && !b.isThere():
		return nil
	case b.link == nil:
		commands = append(commands, "ip link add "+name+" type bridge")
	}
	for _, gateway := range b.missingGateways() {
		commands = append(commands, "ip addr add "+gateway+" dev "+name)
	}
	if b.link == nil || !b.link.Up() {
		commands = append(commands, "ip link set "+name+" up")
	}
	return commands
}

// Ready returns nil when addresses may be handed out, else a
// [NotReadyError]: the bridge is missing, not a bridge, down, or without a
// gateway. It reads memory and never waits; [Bridge.Settle] brings the memory
// up to date.
func (b *Bridge) Ready() error {
	if e := b.ready.Load(); e != nil {
		return e
	}
	return nil
}

// MTU returns the bridge's, in bytes; 0 when there is no bridge. Like
// [Bridge.Ready] it reads memory and never waits.
func (b *Bridge) MTU() int { return b.Status().MTU }

// Status describes the bridge for a person.
type Status struct {
	Name    string
	Ready   bool
	Reason  string // why it is not ready; one sentence
	Managed bool
	Ports   int
	MAC     string // "" when there is no bridge
	MTU     int    // bytes; 0 when there is no bridge
	Gaps    []Gap
}

// Status returns what is known now. It is safe for concurrent use and, like
// [Bridge.Ready], never waits.
func (b *Bridge) Status() Status {
	s := Status{Name: b.cfg.Name, Managed: b.cfg.Manage, Ports: len(b.PortNames()), Ready: true, Gaps: b.Gaps()}
	if e := b.ready.Load(); e != nil {
		s.Ready, s.Reason = false, e.Reason
	}
	if l := b.shown.Load(); l != nil {
		s.MAC, s.MTU = l.MAC.String(), l.MTU
	}
	return s
}

// prefixes are addresses with their prefix lengths.
type prefixes map[netip.Prefix]bool
