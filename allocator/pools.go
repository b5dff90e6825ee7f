package allocator

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
)

// complete fills in what a request leaves open and refuses what cannot be
// stored.
func (r *Request) complete(a *Allocator) error {
	if r.UID == "" {
		r.UID = r.Sandbox
	}
	if r.Attempt == 0 {
		r.Attempt = 1
	}
	if r.Pool == "" {
		r.Pool = a.Pool
	}
	if r.Interface == "" {
		r.Interface = DefaultInterface
	}
	if r.BindWithin == 0 {
		r.BindWithin = a.BindWithin
	}
	if !slices.Contains([]Family{AnyFamily, V4, V6, Dual}, r.Family) {
		return &ipam.FieldError{Field: "family", Reason: fmt.Sprintf("%q is none of v4, v6, dual", r.Family)}
	}
	if r.Family == Dual && r.Address.IsValid() {
		return &ipam.FieldError{Field: "address", Reason: "a wish is for one address; ask for v4 and v6 apart"}
	}
	if a := r.Address; a.IsValid() {
		if why := ipam.NoHost(netip.PrefixFrom(a, a.BitLen())); why != "" {
			return &ipam.FieldError{Field: "address", Reason: why}
		}
	}
	if r.Family == Dual && r.PrefixLen != 0 {
		return &ipam.FieldError{Field: "prefix_length", Reason: "is of one family; ask for v4 and v6 apart"}
	}
	stored := netdb.Reservation{Sandbox: r.Sandbox, UID: r.UID, Interface: r.Interface, Attempt: r.Attempt,
		BindWithin: r.BindWithin, Labels: r.Labels, Naming: netdb.Naming{Want: r.HostName}, Slot: r.Slot}
	return stored.Check()
}

// pools returns the pools that a request draws from, v4 first. Pools of one
// name, one of each family, serve a dual request.
func (a *Allocator) pools(r *Request) ([]*ipam.Pool, error) {
	var v4, v6 *ipam.Pool
	var names []string
	for _, p := range a.Book.Pools() {
		names = append(names, p.Name)
		if p.Name != r.Pool {
			continue
		}
		if p.Prefix.Addr().Is4() {
			v4 = p
		} else {
			v6 = p
		}
	}
	if v4 == nil && v6 == nil {
		return nil, &ipam.FieldError{Field: "pool", Reason: fmt.Sprintf("there is no pool %.80q; there is: %s", r.Pool, strings.Join(slices.Compact(names), ", "))}
	}
	family := r.Family
	if family == AnyFamily {
		switch {
		case r.Address.Is4(), !r.Address.IsValid() && v4 != nil:
			family = V4
		default:
			family = V6
		}
	}
	out := make([]*ipam.Pool, 0, 2)
	if family != V6 {
		out = append(out, v4)
	}
	if family != V4 {
		out = append(out, v6)
	}
	for i, p := range out {
		if p == nil {
			missing := V4
			if family == V6 || i == 1 {
				missing = V6
			}
			return nil, &ipam.FieldError{Field: "family", Reason: fmt.Sprintf("pool %s has no %s prefix", r.Pool, missing)}
		}
		if r.Address.IsValid() && r.Address.Is4() != p.Prefix.Addr().Is4() {
			return nil, &ipam.FieldError{Field: "address", Reason: fmt.Sprintf("%s is not of family %s", r.Address, family)}
		}
	}
	return out, nil
}
