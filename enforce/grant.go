package enforce

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/workload"
)

// A Mode is what becomes of a packet that the book does not allow.
type Mode string

const (
	Off     Mode = "off"     // no table of ours is in the kernel
	Observe Mode = "observe" // it is counted, and goes on
	Enforce Mode = "enforce" // it is counted and dropped
)

// Policy is what an operator decides.
type Policy struct {
	Mode         Mode
	DropUnleased bool // ports without a lease may send nothing
	// Trusted are the links that DropUnleased does not apply to, an uplink for example: whole
	// names, or the beginning of a name and a star. Without a lease they may use what is no
	// lease's and no gateway's; with one they are as every port.
	Trusted []string
}

// Trusts reports whether a port of that name is trusted as long as it has no lease.
func (p Policy) Trusts(port string) bool {
	return p.DropUnleased && slices.ContainsFunc(p.Trusted, func(pattern string) bool {
		begin, any := strings.CutSuffix(pattern, "*")
		return port == pattern || any && strings.HasPrefix(port, begin)
	})
}

// trusts reports whether some port may be trusted.
func (p Policy) trusts() bool { return p.DropUnleased && len(p.Trusted) > 0 }

// What is known of our bridges, of their ports, and of where these lead.
type (
	Port          = census.Port
	Bridge        = census.Bridge
	RecordedNetns = census.RecordedNetns
	Into          = census.Into
)

// A Grant is one address that one port may use.
type Grant struct {
	Lease string
	Port  int    // 0: none, and the address is kept from all
	MAC   string // "" where the lease records none: any MAC may use it
	Addr  netip.Prefix
}

// Where finds the ports of a lease among those that are there, as [workload.Recorded.Has] has it. inside
// answers for a lease that names no link which ports lead into its namespace, and for one whose link has
// another name than it records: that may be another link, which has the index of the recorded
// one, and where another port leads into the namespace it is.
func Where(l *ipam.Lease, ports []Port, recorded workload.Recorded, inside func(*ipam.Lease) []int) (at []int) {
	if !workload.MayUse(l.State) {
		return nil
	}
	if l.HostInterface == "" {
		if l.Netns == "" || inside == nil {
			return nil
		}
		for _, i := range inside(l) {
			if slices.ContainsFunc(ports, func(p Port) bool { return p.Index == i }) {
				at = append(at, i)
			}
		}
		return at
	}
	for _, p := range ports {
		if !recorded.Has(l, p.Index, p.Name) {
			continue
		}
		if p.Name != l.HostInterface && l.Netns != "" && inside != nil {
			if into := inside(l); len(into) > 0 && !slices.Contains(into, p.Index) {
				continue
			}
		}
		at = append(at, p.Index)
	}
	return at
}

// Grants are what a lease allows on those ports. Without one, such as a hibernated sandbox's,
// a lease still keeps its address from others; but not one whose port may be there and is not
// known, which would be kept from its own address: Docker's, that never names a port, or one that
// is bound by a namespace into which none of our ports leads, for its sandbox runs in another inside.
func Grants(l *ipam.Lease, at []int) []Grant {
	if len(at) == 0 && workload.MayUse(l.State) && (l.HostInterface != "" || l.Netns != "" && l.State == ipam.Paused) {
		at = []int{0}
	}
	out := make([]Grant, len(at))
	for i, port := range at {
		out[i] = Grant{Lease: l.ID, Port: port, MAC: l.MAC, Addr: l.Prefix()}
	}
	return out
}

func sortGrants(g []Grant) {
	slices.SortFunc(g, func(a, b Grant) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), a.Addr.Addr().Compare(b.Addr.Addr()), cmp.Compare(a.Lease, b.Lease))
	})
}
