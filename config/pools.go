package config

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/ipamd/ipamd/internal/ranges"
	"github.com/ipamd/ipamd/ipam"
)

// NoGateway says that a pool has none on its prefix.
const NoGateway = "none"

// PoolSpecs returns the pools as the book knows them, the default one first.
func (c Config) PoolSpecs() ([]ipam.PoolSpec, error) {
	var ps Problems
	specs := c.specs(&ps)
	return specs, ps.err()
}

// specs returns the pools that are right, and adds what is wrong with the
// others.
func (c Config) specs(ps *Problems) []ipam.PoolSpec {
	if len(c.Pools) == 0 {
		ps.add("pool", "there is none; without any [[pool]] there is the default one")
	}
	var specs []ipam.PoolSpec
	bridge := false // its name is wrong, and that was reported
	for i, p := range c.Pools {
		key := fmt.Sprintf("pool[%d]", i)
		spec, ok := p.spec(c.Bridge.Name, key, ps)
		if !ok {
			continue
		}
		if err := spec.Check(); err != nil {
			field, reason := key, err.Error()
			var fe *ipam.FieldError
			if errors.As(err, &fe) {
				field, reason = key+strings.TrimPrefix(fe.Field, "pool"), fe.Reason
			}
			if field == key+".bridge" && p.Bridge == "" {
				if bridge {
					continue
				}
				field, bridge = "bridge.name", true
			}
			ps.add(field, "%s", reason)
			continue
		}
		if !overlaps(specs, spec, key, ps) {
			specs = append(specs, spec)
		}
	}
	return specs
}

// overlaps compares a pool with those above it.
func overlaps(above []ipam.PoolSpec, spec ipam.PoolSpec, key string, ps *Problems) bool {
	for _, other := range above {
		switch {
		case other.Name == spec.Name && other.Prefix.Addr().Is4() == spec.Prefix.Addr().Is4():
			ps.add(key+".name", "%q names two pools of one family, %s and %s", spec.Name, other.Prefix, spec.Prefix)
			return true
		case other.Prefix.Overlaps(spec.Prefix):
			ps.add(key+".prefix", "%s overlaps pool %s, which has %s", spec.Prefix, other.Name, other.Prefix)
			return true
		}
	}
	return false
}

// RepairUnnamed is what to do about a pool of the book that the configuration does not name.
const RepairUnnamed = "ipamctl explain pool_not_configured"

// spec reads the addresses of a pool on a bridge. What they mean together is the book's
// to check.
func (p Pool) spec(bridge, key string, ps *Problems) (ipam.PoolSpec, bool) {
	before := len(*ps)
	s := ipam.PoolSpec{Name: p.Name, Bridge: cmp.Or(p.Bridge, bridge), Prefix: ps.prefix(key+".prefix", p.Prefix),
		Cooldown: time.Duration(p.Cooldown), CooldownMin: time.Duration(p.CooldownMin), Exhausted: p.Exhausted, MTU: p.MTU}
	switch p.Gateway {
	case "":
		s.Gateway = ipam.FirstHost(s.Prefix)
	case NoGateway:
	default:
		s.Gateway = ps.address(key+".gateway", p.Gateway)
	}
	for _, text := range p.Exclude {
		r, err := ranges.Parse(text)
		if err != nil {
			ps.add(key+".exclude", "%v", err)
		}
		s.Exclude = append(s.Exclude, r)
	}
	for _, r := range p.Routes {
		s.Routes = append(s.Routes, ipam.Route{
			Destination: ps.prefix(key+".routes", r.Destination),
			Via:         ps.address(key+".routes", r.Via),
		})
	}
	for _, text := range p.DNS {
		s.DNS = append(s.DNS, ps.address(key+".dns", text))
	}
	for _, text := range p.Labels {
		name, value, ok := strings.Cut(text, "=")
		if _, twice := s.Labels[name]; !ok || twice {
			ps.add(key+".labels", "%.60q is no label, like 'zone=a', or is there twice", text)
		}
		if s.Labels == nil {
			s.Labels = make(map[string]string)
		}
		s.Labels[name] = value
	}
	if p.Warm != (Warm{}) {
		s.Warm = &ipam.Warm{Size: p.Warm.Size, Max: p.Warm.Max, Strategy: p.Warm.Strategy}
	}
	for _, k := range p.Kept {
		s.Kept = append(s.Kept, ipam.Kept{Sandbox: k.Sandbox, Address: ps.address(key+".reservation", k.Address)})
	}
	return s, len(*ps) == before
}

func (ps *Problems) prefix(key, text string) netip.Prefix {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		ps.add(key, "%.60q is no prefix, like 10.8.64.0/24", text)
	}
	return p
}

func (ps *Problems) address(key, text string) netip.Addr {
	a, err := netip.ParseAddr(text)
	if err != nil {
		ps.add(key, "%.60q is no address", text)
	}
	return a
}
