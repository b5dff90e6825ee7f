package plumb

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A Difference is one thing of a port that is not as its spec says.
type Difference struct {
	Field string // of the spec; of a slot also lo, links, rules
	Want  string
	Have  string // "": it is not there
}

func (d Difference) String() string {
	if d.Have == "" {
		return fmt.Sprintf("%s: %s is not there", d.Field, d.Want)
	}
	return fmt.Sprintf("%s: %s, not %s", d.Field, d.Have, d.Want)
}

// Check reports how the kernel differs from the spec, and changes nothing. What the
// sandbox added itself, such as a route or an IPv6 link-local address, is no
// difference; an address of the pool's kind is. Nor is a route whose destination another link
// of the sandbox has, nor what the kernel configured by a router advertisement (RFC 4862), which
// any guest of the bridge can send to all. An error means that it could not be
// read, which says nothing of the port.
func Check(ctx context.Context, s Spec) ([]Difference, error) {
	return check(ctx, s, (*work).differences)
}

func check(ctx context.Context, s Spec, look func(*work) ([]Difference, error)) ([]Difference, error) {
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("check port: %w", err)
	}
	w, err := open(ctx, &s)
	if refused := new(FieldError); errors.As(err, &refused) && errors.Is(err, ErrMissing) {
		return []Difference{{Field: refused.Field, Want: refused.Value}}, nil
	}
	if err == nil {
		defer w.close()
		var diffs []Difference
		if diffs, err = look(w); err == nil {
			return diffs, nil
		}
	}
	return nil, fmt.Errorf("check port %s: %w", s.Host, err)
}

func (w *work) differences() (diffs []Difference, err error) {
	s := w.spec
	differ := func(field, want, have string) {
		if want != have {
			diffs = append(diffs, Difference{Field: field, Want: want, Have: have})
		}
	}
	taken := new(FieldError)
	if w.host, err = hostEnd(w.outside, s.Host, s.Owner); errors.As(err, &taken) {
		return []Difference{{Field: "host", Want: s.Host, Have: "a link of another"}}, nil
	} else if err != nil {
		return nil, err
	}
	if w.host == nil {
		return []Difference{{Field: "host", Want: s.Host}}, nil
	}
	if h := w.host.Attrs(); h.MasterIndex != w.bridge.Attrs().Index {
		differ("bridge", s.Bridge, "no port of it")
	} else if h.RawFlags&unix.IFF_UP == 0 {
		differ("host", "up", "down")
	}
	if s.Tap != isTap(w.host) {
		return append(diffs, Difference{Field: "tap", Want: fmt.Sprint(s.Tap), Have: fmt.Sprint(!s.Tap)}), nil
	}
	if s.Tap {
		if s.MTU != 0 {
			differ("mtu", fmt.Sprint(s.MTU), fmt.Sprint(w.host.Attrs().MTU))
		}
		return diffs, nil
	}
	w.guest, err = w.inside.LinkByName(s.Guest)
	switch {
	case isGone(err):
		return append(diffs, Difference{Field: "guest", Want: s.Guest}), nil
	case err != nil:
		return nil, fmt.Errorf("look up %s in %s: %w", s.Guest, s.Netns, err)
	case !peers(w.host, w.guest):
		return append(diffs, Difference{Field: "guest", Want: s.Guest, Have: "a link that does not lead to " + s.Host}), nil
	}
	g := w.guest.Attrs()
	if g.RawFlags&unix.IFF_UP == 0 {
		differ("guest", "up", "down")
	}
	if s.MTU != 0 {
		differ("mtu", fmt.Sprint(s.MTU), fmt.Sprint(g.MTU))
	}
	if s.MAC != nil {
		differ("mac", s.MAC.String(), g.HardwareAddr.String())
	}
	more, err := w.inTables()
	return append(diffs, more...), err
}

// inTables compares addresses and routes.
func (w *work) inTables() (diffs []Difference, err error) {
	have, err := addressesOf(w.inside, w.guest)
	if err != nil {
		return nil, err
	}
	for _, p := range w.spec.Addresses {
		if !slices.Contains(have, p) {
			diffs = append(diffs, Difference{Field: "addresses", Want: p.String()})
		}
	}
	for _, p := range have {
		if !slices.Contains(w.spec.Addresses, p) {
			diffs = append(diffs, Difference{Field: "addresses", Want: texts(w.spec.Addresses), Have: p.String()})
		}
	}
	for _, r := range w.spec.Routes {
		own, others, err := routesTo(w.inside, w.guest, r)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(own, r) && (len(own) > 0 || !others) {
			diffs = append(diffs, Difference{Field: "routes", Want: r.String()})
		}
	}
	return diffs, nil
}

func texts(all []netip.Prefix) string {
	var b []string
	for _, p := range all {
		b = append(b, p.String())
	}
	return strings.Join(b, " ")
}

// tries bounds how often a list is read whose reading a change cut short: such a
// list is never taken for a whole one.
const tries = 10

func steady(list func() error) (err error) {
	for range tries {
		if err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return err
		}
	}
	return err
}

// addressesOf lists the addresses that a link was [given].
func addressesOf(h *netlink.Handle, link netlink.Link) (all []netip.Prefix, err error) {
	var list []netlink.Addr
	err = steady(func() (err error) {
		list, err = h.AddrList(link, netlink.FAMILY_ALL)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the addresses of %s: %w", link.Attrs().Name, err)
	}
	for _, a := range list {
		if p, ok := given(a); ok {
			all = append(all, p)
		}
	}
	return all, nil
}

// given returns an address and its length as a link was given them. Link-local ones of IPv6, and those
// of which [advertised] says that the kernel made them, are none.
func given(a netlink.Addr) (p netip.Prefix, ok bool) {
	ip, ok := netip.AddrFromSlice(a.IP)
	ones, _ := a.Mask.Size()
	if ip = ip.Unmap(); !ok || ip.Is6() && ip.IsLinkLocalUnicast() || advertised(a) {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(ip, ones), true
}

// advertised says that an address may be of a router advertisement: it is of IPv6 and ends by
// itself. One guest sends an advertisement to all ports of the bridge, so it is no difference.
func advertised(a netlink.Addr) bool { return a.IP.To4() == nil && a.Flags&unix.IFA_F_PERMANENT == 0 }

// routesTo lists the routes to the destination of want that leave by a link, and whether there
// are any by others. One of a router advertisement is in neither, unless it is want itself.
func routesTo(h *netlink.Handle, link netlink.Link, want Route) (own []Route, others bool, err error) {
	list, err := routeList(h, nil)
	if err != nil {
		return nil, false, err
	}
	for _, l := range list {
		r, ok := routeOf(l)
		switch {
		case !ok || r.To != want.To || l.Protocol == unix.RTPROT_RA && r != want:
		case l.LinkIndex == link.Attrs().Index:
			own = append(own, r)
		default:
			others = true
		}
	}
	return own, others, nil
}

// routeList lists the routes of a link; nil: of all.
func routeList(h *netlink.Handle, link netlink.Link) (list []netlink.Route, err error) {
	err = steady(func() (err error) {
		list, err = h.RouteList(link, netlink.FAMILY_ALL)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	return list, nil
}

func routeOf(l netlink.Route) (Route, bool) {
	if l.Dst == nil {
		return Route{}, false
	}
	via, _ := netip.AddrFromSlice(l.Gw)
	to, _ := netip.AddrFromSlice(l.Dst.IP)
	ones, _ := l.Dst.Mask.Size()
	return Route{To: netip.PrefixFrom(to.Unmap(), ones), Via: via.Unmap()}, true
}
