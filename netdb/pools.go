package netdb

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"

	"github.com/google/uuid"
)

var poolName = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9._-]{0,61}[a-zA-Z0-9])?$`)

// FirstHost returns the address that is a pool's gateway unless it says
// otherwise: the first that a host may have. A prefix of one address has
// none to spare, and the result is zero.
func FirstHost(p netip.Prefix) netip.Addr {
	if !p.IsValid() || p.IsSingleIP() {
		return netip.Addr{}
	}
	s := PoolSpec{Prefix: p.Masked()}
	return s.hosts().From
}

// Check returns a [FieldError] for the first part that makes no pool.
func (s *PoolSpec) Check() error {
	p := s.Prefix
	switch {
	case !poolName.MatchString(s.Name):
		return invalid("pool.name", "%.80q is not 1 to 63 letters, digits, dots, dashes or underscores", s.Name)
	case !p.IsValid():
		return invalid("pool.prefix", "is missing")
	case p.Addr().Is4In6() || p.Addr().Zone() != "":
		return invalid("pool.prefix", "%s is neither plain IPv4 nor plain IPv6", p)
	case p != p.Masked():
		return invalid("pool.prefix", "%s has host bits set; did you mean %s?", p, p.Masked())
	}
	all := prefixRange(p)
	if s.Gateway.IsValid() {
		if !all.Contains(s.Gateway) {
			return invalid("pool.gateway", "%s is not in %s", s.Gateway, p)
		}
		if !s.hosts().Contains(s.Gateway) {
			return invalid("pool.gateway", "%s is no host address of %s", s.Gateway, p)
		}
	}
	if err := checkInterface(s.Bridge); err != nil {
		return invalid("pool.bridge", "%.40q is no interface name", s.Bridge)
	}
	for _, r := range s.Exclude {
		if !all.Contains(r.From) || !all.Contains(r.To) || r.To.Less(r.From) {
			return invalid("pool.exclude", "%s is not in %s", r, p)
		}
	}
	for _, r := range s.Routes {
		if !r.Destination.IsValid() || r.Destination != r.Destination.Masked() {
			return invalid("pool.routes", "destination %s is no masked prefix", r.Destination)
		}
		if !r.Via.IsValid() || r.Via.Is4() != r.Destination.Addr().Is4() {
			return invalid("pool.routes", "%s via %s: the families differ", r.Destination, r.Via)
		}
	}
	for _, a := range s.DNS {
		if !a.IsValid() {
			return invalid("pool.dns", "has an address that is none")
		}
	}
	if newIndex().addPool(&Pool{PoolSpec: *s}).size == 0 {
		return invalid("pool.prefix", "%s has no address to give: its gateway and exclusions take all", p)
	}
	return nil
}

// Family is 4 or 6.
func (s *PoolSpec) family() int {
	if s.Prefix.Addr().Is4() {
		return 4
	}
	return 6
}

func (s *PoolSpec) encode() (spec, hash string) {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // addresses and strings always marshal
	}
	return string(b), specHash(string(b))
}

func specHash(spec string) string {
	sum := sha256.Sum256([]byte(spec))
	return hex.EncodeToString(sum[:])
}

func addrText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// EnsurePool makes the pool with this name and family be as spec says, and
// returns it. The same spec again changes nothing; another one raises the
// generation. A prefix can be changed only while no lease is in it
// ([ErrPoolNotEmpty]), and never into another pool's ([ErrOverlap]). An
// exclusion over a lease leaves the lease alone: the address is not given
// again.
func (b *Book) EnsurePool(ctx context.Context, who Who, spec PoolSpec) (*Pool, error) {
	if err := spec.Check(); err != nil {
		return nil, err
	}
	want := Pool{PoolSpec: spec, UID: uuid.Must(uuid.NewV7()).String(), Generation: 1, State: "active"}
	var out *Pool
	err := b.update(ctx, func(t *tx) error {
		p, reason := want, "pool_created"
		p.Created = t.now
		for _, pi := range t.idx.order {
			other := pi.pool
			if other.Name != p.Name || other.family() != p.family() {
				if other.Prefix.Overlaps(p.Prefix) {
					return fmt.Errorf("pool %s, %s: %w: %s has %s", p.Name, p.Prefix, ErrOverlap, other.Name, other.Prefix)
				}
				continue
			}
			_, was := other.encode()
			if _, now := p.encode(); now == was {
				out = other
				return nil
			}
			if rows := pi.rows(); other.Prefix != p.Prefix && rows > 0 {
				return fmt.Errorf("pool %s: %w: %d addresses of %s are in use or rest; it cannot become %s",
					p.Name, ErrPoolNotEmpty, rows, other.Prefix, p.Prefix)
			}
			p.UID, p.Created, p.Generation, reason = other.UID, other.Created, other.Generation+1, "pool_changed"
		}
		out = &p
		who := who
		who.Reason = reason
		t.staged.stage(step{pool: &p, change: &Change{Rev: t.staged.rev + 1, At: t.now, Subject: OfPool, PoolUID: p.UID, Pool: p.Name, Who: who}})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (pi *poolIndex) rows() (n int) {
	for _, c := range pi.count {
		n += c
	}
	return n
}
