package allocator

import (
	"net/netip"
	"sync"
)

// reportedMost bounds how many addresses are remembered.
const reportedMost = 4096

// reported remembers addresses that are in use and not quarantined, because the pool's
// share of quarantines is used up: each is logged and counted once, and not at every
// request that meets it. Beyond reportedMost it begins anew.
type reported struct {
	mu   sync.Mutex
	seen map[netip.Addr]struct{}
}

// add reports whether the address is new.
func (s *reported) add(a netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, old := s.seen[a]; old {
		return false
	}
	if s.seen == nil || len(s.seen) >= reportedMost {
		s.seen = make(map[netip.Addr]struct{})
	}
	s.seen[a] = struct{}{}
	return true
}
