package ipam

import (
	"cmp"
	"errors"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"time"

	"github.com/ipamd/ipamd/internal/ranges"
)

// A Range is an inclusive range of addresses of one family.
type Range = ranges.Range

// A Route is handed to the sandbox with its address.
type Route struct {
	Destination netip.Prefix `json:"destination"`
	Via         netip.Addr   `json:"via"`
}

// A PoolSpec is what an operator wants of a pool. Name and family together
// are unique: a v4 and a v6 pool of one name serve dual-stack requests.
type PoolSpec struct {
	Name    string       `json:"name"`
	Prefix  netip.Prefix `json:"prefix"`
	Gateway netip.Addr   `json:"gateway"` // zero: none on this prefix (a /32)
	Bridge  string       `json:"bridge"`
	Exclude []Range      `json:"exclude,omitempty"`
	Routes  []Route      `json:"routes,omitempty"`
	DNS     []netip.Addr `json:"dns,omitempty"`
	Kept    []Kept       `json:"reservation,omitempty"`

	// What is zero is as the daemon has it.
	Cooldown    time.Duration `json:"cooldown,omitempty"`
	CooldownMin time.Duration `json:"cooldown_min,omitempty"`
	Exhausted   string        `json:"exhausted,omitempty"` // "oldest" or "strict"
	MTU         int           `json:"mtu,omitempty"`       // bytes, of the sandbox's interface

	Labels map[string]string `json:"labels,omitempty"`
	Warm   *Warm             `json:"warm,omitempty"` // nil: no slot is kept ready
}

// A Pool is a pool of the book.
type Pool struct {
	PoolSpec
	UID        string
	Generation int64
	State      string // PoolActive or PoolDraining
	Created    Stamp
}

// What a pool's state may be. One that drains gives no address; the leases that it has
// stay as they are.
const (
	PoolActive   = "active"
	PoolDraining = "draining"
)

// checkPlain refuses an address of the prefix that is another key than the one that a witness sees. A name
// server may have a zone: that is a link of the sandbox.
func (s *PoolSpec) checkPlain() error {
	of := map[string][]netip.Addr{"pool.gateway": {s.Gateway}}
	for _, r := range s.Exclude {
		of["pool.exclude"] = append(of["pool.exclude"], r.From, r.To)
	}
	for _, k := range s.Kept {
		of["pool.reservation"] = append(of["pool.reservation"], k.Address)
	}
	for _, field := range slices.Sorted(maps.Keys(of)) {
		for _, a := range of[field] {
			if a.Is4In6() || a.Zone() != "" {
				return Invalid(field, "%s is neither plain IPv4 nor plain IPv6; write %s", a, a.Unmap().WithZone(""))
			}
		}
	}
	return nil
}

// A Policy says which cooling addresses may be given again, and when.
type Policy struct {
	Cooldown    time.Duration // full wait after confirmed removal
	CooldownMin time.Duration // at exhaustion, never before this
	Strict      bool          // refuse rather than reuse before Cooldown
}

// Policy is the pool's own policy, and the daemon's where the pool has none.
func (s *PoolSpec) Policy(daemon Policy) Policy {
	p := Policy{cmp.Or(s.Cooldown, daemon.Cooldown), cmp.Or(s.CooldownMin, daemon.CooldownMin), daemon.Strict}
	if s.Exhausted != "" {
		p.Strict = s.Exhausted == "strict"
	}
	p.CooldownMin = min(p.CooldownMin, p.Cooldown) // where one of them is the daemon's
	return p
}

// A Kept address is given to one sandbox only, by its name, and to no other also while
// that sandbox is away or everything else is exhausted.
type Kept struct {
	Sandbox string     `json:"sandbox"`
	Address netip.Addr `json:"address"`
}

// KeptFor is the sandbox that a pool keeps an address for, "" for none.
func (s *PoolSpec) KeptFor(a netip.Addr) string {
	for _, k := range s.Kept {
		if k.Address == a {
			return k.Sandbox
		}
	}
	return ""
}

// A PoolName is what is remembered of a pool's name beyond the pool itself.
type PoolName struct {
	Name       string
	Family     int    // 4 or 6
	Generation int64  // the last one of a pool of the name that was removed, 0 before
	Configured string // what the configuration said of it last, as the book keeps that; "" for nothing
}

// A Usage is what a pool holds, counted from memory.
type Usage struct {
	Pool    Pool
	Size    uint64 // addresses that can be given at all; saturates at 2^64-1
	Free    uint64 // addresses without a row; saturates likewise
	Kept    uint64 // addresses without a row that are kept for their sandboxes, not among Free
	ByState map[State]int
	Outside int // rows that the pool could not give any more, see netdb.Book.Outside
	// QuarantineCap is how many may be quarantined without an operator.
	QuarantineCap int
}

var poolName = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9._-]{0,61}[a-zA-Z0-9])?$`)

// Check returns a [FieldError] for the first part that makes no pool.
func (s *PoolSpec) Check() error {
	p := s.Prefix
	switch {
	case !poolName.MatchString(s.Name):
		return Invalid("pool.name", "%.80q is not 1 to 63 letters, digits, dots, dashes or underscores", s.Name)
	case !p.IsValid():
		return Invalid("pool.prefix", "is missing")
	case p.Addr().Is4In6() || p.Addr().Zone() != "":
		return Invalid("pool.prefix", "%s is neither plain IPv4 nor plain IPv6", p)
	case p != p.Masked():
		return Invalid("pool.prefix", "%s has host bits set; did you mean %s?", p, p.Masked())
	}
	if why := NoHost(p); why != "" {
		return Invalid("pool.prefix", "it cannot be a pool: %s", why)
	}
	all := ranges.Of(p)
	if err := s.checkPlain(); err != nil {
		return err
	}
	if s.Gateway.IsValid() {
		if !all.Contains(s.Gateway) {
			return Invalid("pool.gateway", "%s is not in %s", s.Gateway, p)
		}
		if !s.Hosts().Contains(s.Gateway) {
			return Invalid("pool.gateway", "%s is no host address of %s", s.Gateway, p)
		}
	}
	if err := CheckInterface(s.Bridge); err != nil {
		return Invalid("pool.bridge", "%.40q is no interface name", s.Bridge)
	}
	for _, r := range s.Exclude {
		if !all.Contains(r.From) || !all.Contains(r.To) || r.To.Less(r.From) {
			return Invalid("pool.exclude", "%s is not in %s", r, p)
		}
	}
	for _, r := range s.Routes {
		if !r.Destination.IsValid() || r.Destination != r.Destination.Masked() {
			return Invalid("pool.routes", "destination %s is no masked prefix", r.Destination)
		}
		if !r.Via.IsValid() || r.Via.Is4() != r.Destination.Addr().Is4() {
			return Invalid("pool.routes", "%s via %s: the families differ", r.Destination, r.Via)
		}
	}
	for _, a := range s.DNS {
		if !a.IsValid() {
			return Invalid("pool.dns", "has an address that is none")
		}
	}
	if err := cmp.Or(s.checkSettings(), s.checkKept()); err != nil {
		return err
	}
	if !s.hasRoom() {
		return Invalid("pool.prefix", "%s has no address to give: its gateway and exclusions take all", p)
	}
	return nil
}

// maxCooldown bounds a pool's cooldown: a longer one is a unit that was mistaken.
const maxCooldown = 365 * 24 * time.Hour

// checkSettings is Check of what the daemon has a value for, too.
func (s *PoolSpec) checkSettings() error {
	least := 68 // RFC 791
	if s.Family() == 6 {
		least = 1280 // RFC 8200, section 5
	}
	switch {
	case s.Cooldown < 0 || s.Cooldown > maxCooldown:
		return Invalid("pool.cooldown", "%v is not up to %v", s.Cooldown, maxCooldown)
	case s.CooldownMin < 0 || s.CooldownMin > maxCooldown:
		return Invalid("pool.cooldown_min", "%v is not up to %v", s.CooldownMin, maxCooldown)
	case s.Cooldown > 0 && s.CooldownMin > s.Cooldown:
		return Invalid("pool.cooldown_min", "%v is longer than the cooldown, which is %v", s.CooldownMin, s.Cooldown)
	case s.Exhausted != "" && s.Exhausted != "oldest" && s.Exhausted != "strict":
		return Invalid("pool.exhausted", "%.40q is neither oldest nor strict", s.Exhausted)
	case s.MTU != 0 && (s.MTU < least || s.MTU > 65535):
		return Invalid("pool.mtu", "%d is not %d to 65535", s.MTU, least)
	}
	if err := s.Warm.check(); err != nil {
		return err
	}
	if err := CheckLabels(s.Labels); err != nil {
		var fe *FieldError
		errors.As(err, &fe)
		return Invalid("pool.labels", "%s", fe.Reason)
	}
	return nil
}

// checkKept returns a [FieldError] for the first kept address that the pool cannot
// give, or that is kept twice.
func (s *PoolSpec) checkKept() error {
	addrs, sandboxes := make(map[netip.Addr]string), make(map[string]netip.Addr)
	for _, k := range s.Kept {
		if err := CheckName("pool.reservation", k.Sandbox); err != nil {
			return Invalid("pool.reservation", "the sandbox of %s %s", AddrText(k.Address), err.(*FieldError).Reason)
		}
		if note := s.OutsideAddr(k.Address); note != "" {
			return Invalid("pool.reservation", "%q cannot have %s: it is %s", k.Sandbox, AddrText(k.Address), note)
		}
		if other, is := addrs[k.Address]; is {
			return Invalid("pool.reservation", "%s is for both %q and %q", k.Address, other, k.Sandbox)
		}
		if other, is := sandboxes[k.Sandbox]; is {
			return Invalid("pool.reservation", "%q has both %s and %s", k.Sandbox, other, k.Address)
		}
		addrs[k.Address], sandboxes[k.Sandbox] = k.Sandbox, k.Address
	}
	return nil
}

// Family is 4 or 6.
func (s *PoolSpec) Family() int {
	if s.Prefix.Addr().Is4() {
		return 4
	}
	return 6
}

// FamilyName is the family as the socket and the metrics write it: v4 or v6.
func (s *PoolSpec) FamilyName() string {
	if s.Family() == 4 {
		return "v4"
	}
	return "v6"
}
