package netdb

import (
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/free"
)

// splitRange divides a range into what the pool could give and what it could not.
func splitRange(s *ipam.PoolSpec, r ipam.Range) (inside, outside []ipam.Range) {
	if r.From == r.To {
		if s.OutsideAddr(r.From) == "" {
			return []ipam.Range{r}, nil
		}
		return nil, []ipam.Range{r}
	}
	if part, some := s.Hosts().Clip(r); some {
		inside = free.Rest(part, s.Refused()...)
	}
	if len(inside) == 1 && inside[0] == r {
		return inside, nil
	}
	return inside, free.Rest(r, inside...)
}

// gives reports whether the pool could give an address of a range.
func gives(s *ipam.PoolSpec, r ipam.Range) bool {
	inside, _ := splitRange(s, r)
	return len(inside) > 0
}
