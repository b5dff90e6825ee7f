package plumb

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// CheckSlot is [Check] of a warm slot, which no sandbox has had: what its namespace has beside
// that which [MakeSlot] makes is a difference, too. It compares the links, whether they are up, the
// addresses of all of them, the routes, and the rules that choose a table of routes, of both
// families. A link that is down and has no address is none: the kernel makes some in each new
// namespace, such as sit0, once the modules are loaded that these are of. Link-local addresses of
// IPv6 are none either, nor what the kernel configured by router advertisements.
//
// It does not look at nftables, traffic control, neighbour entries or sysctls of the namespace.
func CheckSlot(ctx context.Context, s Spec) ([]Difference, error) {
	if s.Tap {
		return nil, fmt.Errorf("check slot: %w", invalid("tap", "true", "a warm slot is a network namespace"))
	}
	return check(ctx, s, func(w *work) ([]Difference, error) {
		for _, look := range []func() ([]Difference, error){w.differences, w.slotLinks, w.slotRoutes, w.slotRules} {
			if diffs, err := look(); err != nil || len(diffs) > 0 {
				return diffs, err
			}
		}
		return nil, nil
	})
}

// loIndex is that of lo in every namespace.
const loIndex = 1

// slotLinks compares the links of a slot, and what addresses they have.
func (w *work) slotLinks() (diffs []Difference, err error) {
	var links []netlink.Link
	err = steady(func() (err error) {
		links, err = w.inside.LinkList()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the links in %s: %w", w.spec.Netns, err)
	}
	addresses, err := w.slotAddresses()
	if err != nil {
		return nil, err
	}
	differ := func(field, want, have string) {
		diffs = append(diffs, Difference{Field: field, Want: want, Have: have})
	}
	for _, l := range links {
		a := l.Attrs()
		up := a.RawFlags&unix.IFF_UP != 0
		more := addresses[a.Index]
		switch a.Index {
		case loIndex:
			if !up {
				differ("lo", "up", "down")
			}
			if i := slices.Index(more, loopback4); i >= 0 {
				more = slices.Delete(more, i, i+1)
			} else {
				differ("addresses", loopback4.String()+" on lo", "")
			}
			if i := slices.Index(more, loopback6); i >= 0 {
				more = slices.Delete(more, i, i+1)
			}
		case w.guest.Attrs().Index:
			if a.RawFlags&unix.IFF_NOARP != 0 {
				differ("guest", "ARP on", "ARP off")
			}
			if a.RawFlags&unix.IFF_MULTICAST == 0 {
				differ("guest", "multicast on", "multicast off")
			}
			if a.MasterIndex != 0 {
				differ("guest", "a link by itself", "a port of another link")
			}
			for _, p := range w.spec.Addresses { // each once
				if i := slices.Index(more, p); i >= 0 {
					more = slices.Delete(more, i, i+1)
				}
			}
		default:
			if up {
				differ("links", "lo and "+w.spec.Guest, a.Name+" too")
			}
		}
		for _, p := range more {
			differ("addresses", texts(w.spec.Addresses), fmt.Sprintf("%s on %s", p, a.Name))
		}
		delete(addresses, a.Index)
	}
	for _, more := range addresses { // of a link that came meanwhile
		differ("links", "lo and "+w.spec.Guest, "one with "+texts(more))
	}
	return diffs, nil
}

var loopback4, loopback6 = netip.MustParsePrefix("127.0.0.1/8"), netip.MustParsePrefix("::1/128")

// slotAddresses lists the addresses that each link was [given], by its index: advertisements of routers
// any guest can send to all slots. One that the kernel will take away, or that it shall not choose, has
// 0 as its length: no address that is made here has that.
func (w *work) slotAddresses() (map[int][]netip.Prefix, error) {
	var list []netlink.Addr
	err := steady(func() (err error) {
		list, err = w.inside.AddrList(nil, netlink.FAMILY_ALL)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the addresses in %s: %w", w.spec.Netns, err)
	}
	of := make(map[int][]netip.Prefix)
	for _, a := range list {
		p, ok := given(a)
		if !ok {
			continue
		}
		if a.PreferedLft != math.MaxUint32 { // never longer than its whole lifetime
			p = netip.PrefixFrom(p.Addr(), 0)
		}
		of[a.LinkIndex] = append(of[a.LinkIndex], p)
	}
	return of, nil
}

// slotRoutes compares the routes of a slot in all tables. Those that the kernel makes are of
// addresses, which are compared themselves, and of routers that it has received.
func (w *work) slotRoutes() (diffs []Difference, err error) {
	var list []netlink.Route
	err = steady(func() (err error) {
		list, err = w.inside.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	made, local := make(map[Route]bool), make(map[netip.Addr]bool)
	for _, l := range list {
		r, ok := routeOf(l)
		if l.Family != netlink.FAMILY_V4 && l.Family != netlink.FAMILY_V6 || !ok {
			continue
		}
		inMain := l.Table == unix.RT_TABLE_MAIN
		kernels := l.Protocol == unix.RTPROT_KERNEL || l.Protocol == unix.RTPROT_RA || l.Protocol == unix.RTPROT_UNSPEC && !inMain // IPv6 of older kernels
		switch {
		case inMain && w.plain(l) && (kernels || slices.Contains(w.spec.Routes, r)):
			made[r] = true
		case l.Table == unix.RT_TABLE_LOCAL && l.Type == unix.RTN_LOCAL && kernels:
			local[r.To.Addr()] = true
		case !kernels:
			diffs = append(diffs, Difference{Field: "routes", Want: "those of the spec", Have: routeText(l, r)})
		}
	}
	want := slices.Clone(w.spec.Routes)
	for _, p := range w.spec.Addresses {
		if !p.IsSingleIP() {
			want = append(want, Route{To: p.Masked()})
		}
		if p.Addr().Is4() && !local[p.Addr()] { // the kernel makes that of IPv6 some time after the address
			diffs = append(diffs, Difference{Field: "routes", Want: "local " + p.Addr().String()})
		}
	}
	for _, r := range want {
		if !made[r] {
			diffs = append(diffs, Difference{Field: "routes", Want: r.String()})
		}
	}
	return diffs, nil
}

// plain says that a route leads to the sandbox's end, by nothing but its destination and gateway.
func (w *work) plain(l netlink.Route) bool {
	by := l.Protocol == unix.RTPROT_KERNEL || l.Protocol == unix.RTPROT_RA || // the metric is its own
		l.Src == nil && l.MTU == 0 && (l.Priority == 0 || l.Priority == metric6 && l.Family == netlink.FAMILY_V6)
	return by && l.LinkIndex == w.guest.Attrs().Index && l.Type == unix.RTN_UNICAST && l.Tos == 0 &&
		len(l.MultiPath) == 0 && l.Via == nil && l.Encap == nil
}

// routeText says what a route is that ipamd did not make.
func routeText(l netlink.Route, r Route) string {
	kinds := map[int]string{unix.RTN_UNICAST: "", unix.RTN_LOCAL: "local ", unix.RTN_BLACKHOLE: "blackhole ", unix.RTN_UNREACHABLE: "unreachable ",
		unix.RTN_PROHIBIT: "prohibit ", unix.RTN_THROW: "throw "}
	kind, known := kinds[l.Type]
	if !known {
		kind = fmt.Sprintf("type %d ", l.Type)
	}
	if l.Table != unix.RT_TABLE_MAIN {
		return fmt.Sprintf("%s%s in table %d", kind, r, l.Table)
	}
	return kind + r.String()
}

// kernelRules are the tables by the priorities of the rules that a new namespace has.
var kernelRules = map[int]map[int]int{
	netlink.FAMILY_V4: {0: unix.RT_TABLE_LOCAL, 32766: unix.RT_TABLE_MAIN, 32767: unix.RT_TABLE_DEFAULT},
	netlink.FAMILY_V6: {0: unix.RT_TABLE_LOCAL, 32766: unix.RT_TABLE_MAIN},
}

// slotRules compares the rules that choose a table of routes.
func (w *work) slotRules() (diffs []Difference, err error) {
	for family, tables := range kernelRules {
		var list []netlink.Rule
		err := steady(func() (err error) {
			list, err = w.inside.RuleList(family)
			return err
		})
		if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
			continue // a kernel without rules, or without the family
		}
		if err != nil {
			return nil, fmt.Errorf("list rules: %w", err)
		}
		missing := make(map[int]bool)
		for priority := range tables {
			missing[priority] = true
		}
		for _, have := range list {
			want := *netlink.NewRule()
			want.Family, want.Priority, want.Table = family, have.Priority, tables[have.Priority]
			want.Protocol = have.Protocol // older kernels do not say it
			if !missing[have.Priority] || !reflect.DeepEqual(have, want) {
				diffs = append(diffs, Difference{Field: "rules", Want: "those of a new namespace", Have: have.String()})
			}
			delete(missing, have.Priority)
		}
		for priority := range missing {
			diffs = append(diffs, Difference{Field: "rules", Want: fmt.Sprintf("%d, to table %d", priority, tables[priority])})
		}
	}
	return diffs, nil
}
