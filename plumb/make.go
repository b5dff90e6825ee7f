package plumb

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// A Port is what was made, as a bind records it.
type Port struct {
	Host      string // the bridge's end
	HostIndex int
	Guest     string
	MAC       net.HardwareAddr // of the sandbox's end; behind a tap the one that the machine is to have
	Netns     string
	Inode     uint64 // of the namespace that Netns led to
	Made      bool   // by this call; false: it was there before, and may be in use
}

// step is called after each change of the kernel; a test ends the process there.
var step = func(string) {}

// Make makes the port, or finishes one of the same owner that is there, whole or in
// part, also after addresses or routes of it were changed. What fails in a call that
// began it leaves nothing; a port that was there before stays.
//
// A name or a namespace of another is refused as a [FieldError] and nothing is
// changed. So is a port of this owner in another namespace: it may be in use, and
// is to be removed first.
func Make(ctx context.Context, s Spec) (Port, error) {
	if err := s.Validate(); err != nil {
		return Port{}, fmt.Errorf("make port: %w", err)
	}
	w, err := open(ctx, &s)
	if err != nil {
		return Port{}, fmt.Errorf("make port %s: %w", s.Host, err)
	}
	defer w.close()
	made, err := w.make()
	if err == nil {
		err = ctx.Err()
	}
	if err != nil && made {
		err = errors.Join(err, remove(w.outside, s.Host, s.Owner))
	}
	if err != nil {
		return Port{}, fmt.Errorf("make port %s: %w", s.Host, err)
	}
	p := w.port()
	p.Made = made
	return p, nil
}

// A work has what one call needs of the kernel.
type work struct {
	spec    *Spec
	ns      netns.NsHandle
	inode   uint64
	outside *netlink.Handle
	inside  *netlink.Handle
	bridge  netlink.Link
	host    netlink.Link
	guest   netlink.Link
}

func (w *work) make() (made bool, err error) {
	if w.spec.Tap {
		return w.tap()
	}
	// Before anything of the port is on the bridge: an address that was seen there has to cool.
	if slices.ContainsFunc(w.spec.Addresses, func(p netip.Prefix) bool { return p.Addr().Is6() }) {
		if err := w.hasIPv6(); err != nil {
			return false, err
		}
	}
	if made, err = w.pair(); err == nil {
		err = w.configure(!made)
	}
	return made, err
}

func open(ctx context.Context, s *Spec) (_ *work, err error) {
	w, err := openEnds(ctx, s)
	if err != nil {
		return nil, err
	}
	w.bridge, err = w.outside.LinkByName(s.Bridge)
	switch {
	case isGone(err):
		err = &FieldError{Field: "bridge", Value: s.Bridge, Err: ErrMissing}
	case err != nil:
		err = fmt.Errorf("look up bridge %s: %w", s.Bridge, err)
	case w.bridge.Type() != "bridge":
		err = &FieldError{Field: "bridge", Value: s.Bridge, Why: "it is a " + w.bridge.Type(), Err: ErrInvalid}
	default:
		return w, nil
	}
	w.close()
	return nil, err
}

// openEnds is open without the bridge.
func openEnds(ctx context.Context, s *Spec) (_ *work, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w := &work{spec: s, ns: netns.None()}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	if !s.Tap {
		if w.ns, w.inode, err = openNetns(s.Netns); err != nil {
			return nil, err
		}
	}
	if w.outside, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	if !s.Tap {
		if w.inside, err = netlink.NewHandleAt(w.ns, unix.NETLINK_ROUTE); err != nil {
			return nil, fmt.Errorf("open netlink in %s: %w", s.Netns, err)
		}
	}
	return w, nil
}

func (w *work) close() {
	for _, h := range []*netlink.Handle{w.inside, w.outside} {
		if h != nil {
			h.Close()
		}
	}
	if w.ns.IsOpen() {
		_ = w.ns.Close()
	}
}

// pair makes both ends, or finds those of the same owner. made: they are this call's.
func (w *work) pair() (made bool, err error) {
	s := w.spec
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.HardwareAddr, attrs.Flags = s.Host, s.MTU, HostMAC(s.Owner), net.FlagUp
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerHardwareAddr, veth.PeerNamespace = s.Guest, s.MAC, netlink.NsFd(w.ns)
	err = w.outside.LinkAdd(veth)
	if made = err == nil; made {
		step("pair")
		w.host = veth
		if w.guest, err = w.inside.LinkByName(s.Guest); err != nil {
			err = fmt.Errorf("look up %s in %s: %w", s.Guest, s.Netns, err)
		}
	} else if errors.Is(err, unix.EEXIST) {
		err = w.find()
	} else {
		err = fmt.Errorf("add the pair: %w", err)
	}
	if err != nil {
		return made, err
	}
	return made, w.plug()
}

// plug makes the host's end a port of the bridge.
func (w *work) plug() error {
	if w.host.Attrs().MasterIndex == w.bridge.Attrs().Index {
		return nil
	}
	if err := w.outside.LinkSetMaster(w.host, w.bridge); err != nil {
		return fmt.Errorf("plug into %s: %w", w.spec.Bridge, err)
	}
	step("master")
	return nil
}

// find looks up the ends of a pair that is there already. The kernel does not say
// which of the two names exists.
func (w *work) find() error {
	if err := w.ends(); err != nil {
		return err
	}
	if w.host == nil { // both went meanwhile: the caller asks again
		return &FieldError{Field: "host", Value: w.spec.Host, Why: "it went away in this moment", Err: ErrMissing}
	}
	return nil
}

// ends looks up both ends of the owner's pair; neither of them is there where there is none. Of
// another's link at either place it is an error.
func (w *work) ends() (err error) {
	s := w.spec
	w.guest = nil
	if w.host, err = hostEnd(w.outside, s.Host, s.Owner); err != nil {
		return err
	}
	guest, err := w.inside.LinkByName(s.Guest)
	switch {
	case err != nil && !isGone(err):
		return fmt.Errorf("look up %s in %s: %w", s.Guest, s.Netns, err)
	case w.host == nil && err == nil:
		return &FieldError{Field: "guest", Value: s.Guest, Why: "a link of this name is in " + s.Netns, Err: ErrTaken}
	case w.host == nil:
		return nil
	case err != nil || !peers(w.host, guest):
		return &FieldError{Field: "netns", Value: s.Netns, Why: "the port is there and leads to another namespace or interface", Err: ErrTaken}
	}
	w.guest = guest
	return nil
}

// hostEnd looks up the bridge's end of an owner's port; nil: it is not there.
func hostEnd(h *netlink.Handle, name, owner string) (netlink.Link, error) {
	l, err := h.LinkByName(name)
	switch {
	case isGone(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("look up %s: %w", name, err)
	case l.Type() != "veth" && !isTap(l) || !slices.Equal(l.Attrs().HardwareAddr, HostMAC(owner)):
		return nil, &FieldError{Field: "host", Value: name, Why: "a link of this name is another's", Err: ErrTaken}
	}
	return l, nil
}

// peers reports whether two links are the ends of one pair.
func peers(host, guest netlink.Link) bool {
	return guest.Type() == "veth" && host.Attrs().ParentIndex == guest.Attrs().Index && guest.Attrs().ParentIndex == host.Attrs().Index
}

// configure gives the sandbox's end what the spec says. again: it may have some
// of it, or more.
func (w *work) configure(again bool) error {
	if again {
		if err := w.restore(); err != nil {
			return err
		}
	}
	lo := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: 1}} // of every namespace
	if err := w.inside.LinkSetUp(lo); err != nil {
		return fmt.Errorf("set lo up in %s: %w", w.spec.Netns, err)
	}
	if err := notify(w.ns, w.guest.Attrs().Index); err != nil {
		return fmt.Errorf("have %s announced: %w", w.spec.Guest, err)
	}
	step("notify")
	for _, p := range w.spec.Addresses {
		err := w.inside.AddrAdd(w.guest, address(p))
		if err != nil && !errors.Is(err, unix.EEXIST) { // of this link: another call of the same owner may finish it
			return fmt.Errorf("add address %s: %w", p, err)
		}
		step("address")
	}
	// Not before: what comes up with its address is announced by the kernel.
	if err := w.inside.LinkSetUp(w.guest); err != nil {
		return fmt.Errorf("set %s up: %w", w.spec.Guest, err)
	}
	step("up")
	for _, r := range w.spec.Routes {
		err := w.inside.RouteAdd(w.route(r))
		if errors.Is(err, unix.EEXIST) {
			err = w.routed(r)
		}
		if err != nil {
			return &FieldError{Field: "routes", Value: r.String(), Why: err.Error(), Err: ErrInvalid}
		}
		step("route")
	}
	return nil
}

// routed says that a destination to which there is a route already is reached as the spec
// says, or by another link: of a sandbox with two interfaces on the bridge the first keeps
// the default route, and others to where both lead. Where a route of a router advertisement has
// the destination the spec's is made beside it.
func (w *work) routed(r Route) error {
	own, others, err := routesTo(w.inside, w.guest, r)
	switch {
	case err != nil || others || slices.Contains(own, r):
		return err
	case len(own) == 0 && r.To.Addr().Is6():
		return w.inside.RouteAppend(w.route(r))
	default:
		return unix.EEXIST
	}
}

// address is ready at once: who gave it has probed already, and an IPv6 address
// would be of no use for its first second or two.
func address(p netip.Prefix) *netlink.Addr {
	return &netlink.Addr{IPNet: ipNet(p), Flags: unix.IFA_F_NODAD}
}

// routeProtocol marks the routes that are made here among those that a sandbox adds itself.
const routeProtocol netlink.RouteProtocol = 108 // no number of /etc/iproute2/rt_protos

func (w *work) route(r Route) *netlink.Route {
	route := &netlink.Route{LinkIndex: w.guest.Attrs().Index, Dst: ipNet(r.To), Protocol: routeProtocol}
	if r.Via.IsValid() {
		route.Gw = r.Via.AsSlice()
	} else {
		route.Scope = netlink.SCOPE_LINK
	}
	return route
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func (w *work) port() Port {
	if w.spec.Tap {
		return Port{Host: w.spec.Host, HostIndex: w.host.Attrs().Index, MAC: w.spec.machine()}
	}
	mac := w.guest.Attrs().HardwareAddr
	if w.spec.MAC != nil {
		mac = w.spec.MAC
	}
	return Port{Host: w.spec.Host, HostIndex: w.host.Attrs().Index, Guest: w.spec.Guest, MAC: mac, Netns: w.spec.Netns, Inode: w.inode}
}

func isGone(err error) bool {
	gone := new(netlink.LinkNotFoundError)
	return errors.As(err, gone) || errors.Is(err, unix.ENODEV)
}
