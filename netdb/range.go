package netdb

import (
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"net/netip"
	"strings"

	"go4.org/netipx"
)

// ParseRange reads "10.8.64.200-10.8.64.250", "10.8.64.7" or "10.8.64.16/28".
func ParseRange(s string) (Range, error) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return prefixRange(p.Masked()), nil
	}
	if a, err := netip.ParseAddr(s); err == nil {
		return Range{a, a}, nil
	}
	from, to, isRange := strings.Cut(s, "-")
	if !isRange {
		return Range{}, fmt.Errorf("%q is no address, range or prefix", s)
	}
	r, err := netipx.ParseIPRange(strings.TrimSpace(from) + "-" + strings.TrimSpace(to))
	if err != nil {
		return Range{}, fmt.Errorf("%q is no range of addresses", s)
	}
	return Range{r.From(), r.To()}, nil
}

// String writes the range as [ParseRange] reads it.
func (r Range) String() string {
	if r.From == r.To {
		return r.From.String()
	}
	return r.From.String() + "-" + r.To.String()
}

// size returns how many addresses the range holds.
func (r Range) size() *big.Int {
	from, to := r.From.As16(), r.To.As16()
	n := new(big.Int).SetBytes(to[:])
	n.Sub(n, new(big.Int).SetBytes(from[:]))
	return n.Add(n, big.NewInt(1))
}

func saturated(n *big.Int) uint64 {
	if !n.IsUint64() {
		return math.MaxUint64
	}
	return n.Uint64()
}

func saturatingAdd(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return sum
}

// prefixRange returns the first and the last address of a masked prefix.
func prefixRange(p netip.Prefix) Range { return Range{p.Addr(), netipx.PrefixLastIP(p)} }
