package bridge

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/rtnl"
	"github.com/ipamd/ipamd/census"
)

// Desired is the whole of what the kernel's bridge has to be, from [Open] on.
type Desired struct {
	Gateways []netip.Prefix // addresses, with prefix lengths, that must be on the bridge
	Former   []netip.Prefix // gateways that no pool needs any more: they go, if ipamd put them there
	MTU      int            // bytes, where the bridge is managed; 0 leaves it alone
}

func (d Desired) equal(other Desired) bool {
	return d.MTU == other.MTU && slices.Equal(d.Gateways, other.Gateways) && slices.Equal(d.Former, other.Former)
}

// Set replaces the whole of what the bridge has to be. A managed bridge is made so
// before it returns, any other is judged by it: see [Bridge.Ready]. A former gateway goes
// if ipamd put it there, in this process or an earlier one. What a person added stays, and
// so does what is neither wanted nor former: a book that was lost may have had a pool with
// it, whose sandboxes run. A gateway whose prefix length changes is on the bridge all the
// while. The same state again is one system call.
//
// An error means that the kernel could not be asked, or that ctx ended. The state is
// the wanted one nevertheless, unless the Bridge was closed or ctx ended while others had
// the lock, and the next reading sees to it. It is safe for concurrent use.
func (b *Bridge) Set(ctx context.Context, want Desired) error {
	want.Gateways, want.Former = slices.Clone(want.Gateways), slices.Clone(want.Former)
	if err := b.mu.LockContext(ctx); err != nil {
		return err
	}
	if old := b.device.want; !b.closed && !want.equal(old) {
		b.device.want, b.device.again = want, true
	}
	b.mu.Unlock()
	return b.Settle(ctx)
}

// A device is the bridge's own link: what it has to be, what it is, and why no address
// may be handed out on it.
type device struct {
	name   string
	manage bool
	log    *slog.Logger
	inside bridgeNetns
	want   Desired
	judged atomic.Pointer[judgement]
	shown  atomic.Pointer[rtnl.Link] // link, for those without the lock

	link   *rtnl.Link             // nil when there is none
	addrs  []rtnl.Address         // all the host's; none before they were read
	broken error                  // why it could not be repaired
	failed map[netip.Prefix]error // why a gateway could not be put there
	theirs []netip.Prefix         // unwanted addresses of the bridge that ipamd did not put there
	pinned int                    // index of the bridge whose MAC was set by name
	again  bool                   // it is to be looked at again
}

// look looks the link up, and repairs it if it is managed; another is true of a link
// that was not there before. An error means that the kernel could not be asked.
func (d *device) look(k *rtnl.Socket) (another bool, err error) {
	d.again = false
	l, err := k.LinkByName(d.name)
	if rtnl.IsGone(err) {
		l, err = nil, nil
	}
	if err != nil {
		d.again = true
		err = fmt.Errorf("look up bridge %s: %w", d.name, err)
		d.unready("the kernel could not be asked about "+d.name, err)
		return false, err
	}
	if d.manage {
		l, d.broken = d.repair(k, l)
	}
	another = (l == nil) != (d.link == nil) || l != nil && (l.Index != d.link.Index || l.Kind != d.link.Kind)
	d.set(l)
	return another, nil
}

func (d *device) set(l *rtnl.Link) {
	d.link = l
	d.shown.Store(l)
}

func (d *device) isThere() bool { return d.link != nil && d.link.Kind == "bridge" }

// absentError says that no bridge is there.
type absentError string

func (e absentError) Error() string { return string(e) }

func (absentError) Is(target error) bool { return target == census.ErrNoBridge }

// absent says why there is nothing to see where no bridge is. The witnesses
// are silent then: what was on it may well be alive.
func absent(name string, l *rtnl.Link) error {
	if l == nil {
		return absentError(name + " is missing, so nothing is known of what was on it")
	}
	return absentError(name + " is not a bridge, so nothing is known of what should be on it")
}

// staying lists the former gateways that are on the bridge yet, as far as is known.
func (d *device) staying() []netip.Prefix {
	if d.addrs == nil {
		return d.want.Former
	}
	return slices.DeleteFunc(slices.Clone(d.want.Former), func(p netip.Prefix) bool {
		return d.link == nil || slices.Contains(d.theirs, p) || !slices.Contains(d.addrs, rtnl.Address{Prefix: p, Index: d.link.Index})
	})
}

// missing lists the gateways that the bridge is without.
func (d *device) missing() (out []netip.Prefix) {
	for _, gw := range d.want.Gateways {
		if d.link == nil || !slices.Contains(d.addrs, rtnl.Address{Prefix: gw, Index: d.link.Index}) {
			out = append(out, gw)
		}
	}
	return out
}

// commands make the bridge ready by hand: a link that is there and is no bridge is a
// person's to remove. A link that goes down loses its IPv6 addresses.
func (d *device) commands(gateways []netip.Prefix) (out []string) {
	var unset *sysctlError
	switch {
	case errors.As(d.broken, &unset) && (errors.Is(unset, unix.EROFS) || errors.Is(unset, fs.ErrPermission)):
		return []string{unset.command()}
	case d.broken != nil || d.link != nil && !d.isThere():
		return nil
	case d.link == nil:
		out = append(out, "ip link add "+d.name+" type bridge")
	}
	for _, gateway := range gateways {
		for _, a := range d.addrs { // IPv6 has an address once on a link, whatever its prefix length
			if d.link != nil && a.Index == d.link.Index && gateway.Addr().Is6() && a.Prefix.Addr() == gateway.Addr() {
				out = append(out, "ip addr del "+a.Prefix.String()+" dev "+d.name)
			}
		}
		out = append(out, "ip addr add "+gateway.String()+" dev "+d.name)
	}
	if d.link == nil || !d.link.Up() {
		out = append(out, "ip link set "+d.name+" up")
	}
	return out
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
	if e := b.device.judged.Load().not; e != nil {
		s.Ready, s.Reason = false, e.Reason
	}
	if l := b.device.shown.Load(); l != nil {
		s.MAC, s.MTU = l.MAC.String(), l.MTU
	}
	return s
}
