// Package poolmap draws the addresses of a pool for a person, a letter and a colour
// for what each of them is, and counts them. It reads what the socket says of pools
// and leases, and asks no daemon.
package poolmap

import (
	"fmt"
	"math/big"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/ranges"
	"github.com/ipamd/ipamd/internal/term"
)

// A Map is one pool's prefix with what is known about each address in it.
// It holds one entry a lease, never one an address: a /64 is as cheap as a
// /24.
type Map struct {
	pool     api.Pool
	All      ranges.Range
	reserved map[netip.Addr]byte // by the rules of the family, and the gateway
	excluded []ranges.Range      // sorted, apart from each other
	letters  map[netip.Addr]byte // of the leases
	held     []netip.Addr        // the leases' addresses, sorted
	outside  []api.Lease         // leases of the pool that its prefix no longer covers
	prefixes []delegated
}

// A delegated prefix has its lease's letter in every cell.
type delegated struct {
	prefix netip.Prefix
	letter byte
}

// New reads what is known of a pool; leases of other pools are left out. An error is a
// prefix or an exclusion that cannot be read.
func New(pool api.Pool, leases []api.Lease) (*Map, error) {
	prefix, err := netip.ParsePrefix(pool.Prefix)
	if err != nil {
		return nil, fmt.Errorf("draw pool %s: %w", term.Word(pool.Name), err)
	}
	f := &Map{pool: pool, All: ranges.Of(prefix), reserved: map[netip.Addr]byte{}, letters: map[netip.Addr]byte{}}
	f.reserve(prefix)
	var excluded netipx.IPSetBuilder
	for _, text := range pool.Exclude {
		s, err := ranges.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("draw pool %s: exclude %w", term.Word(pool.Name), err)
		}
		if s.From.Is4() != f.All.From.Is4() {
			continue
		}
		if part, ok := s.Clip(f.All); ok {
			excluded.AddRange(netipx.IPRangeFrom(part.From, part.To))
		}
	}
	set, err := excluded.IPSet()
	if err != nil {
		return nil, fmt.Errorf("draw pool %s: exclude %w", term.Word(pool.Name), err)
	}
	for _, r := range set.Ranges() {
		f.excluded = append(f.excluded, ranges.Between(r.From(), r.To()))
	}
	for _, l := range leases {
		if l.PoolUID != pool.UID {
			continue
		}
		addr, err := netip.ParseAddr(l.Address)
		if err != nil || !f.All.Contains(addr) {
			f.outside = append(f.outside, l)
			continue
		}
		if p, err := addr.Prefix(l.PrefixLength); err == nil && l.PrefixLength != 0 {
			f.prefixes = append(f.prefixes, delegated{p, letter(l.State)})
		}
		f.letters[addr] = letter(l.State)
		f.held = append(f.held, addr)
	}
	slices.SortFunc(f.held, netip.Addr.Compare)
	return f, nil
}

// reserve marks what a prefix keeps for itself: IPv4's network and broadcast
// address, except on a /31 (RFC 3021) and a /32; IPv6's subnet-router
// anycast address (RFC 4291, 2.6.1), except on a /127 (RFC 6164) and a /128. And what is
// kept for a sandbox.
func (f *Map) reserve(prefix netip.Prefix) {
	if f.All.From.BitLen()-prefix.Bits() > 1 {
		f.reserved[f.All.From] = unusable
		if f.All.From.Is4() {
			f.reserved[f.All.To] = unusable
		}
	}
	if gw, err := netip.ParseAddr(f.pool.Gateway); err == nil && f.All.Contains(gw) {
		f.reserved[gw] = gateway
	}
	for _, r := range f.pool.Reservation {
		if a, err := netip.ParseAddr(r.Address); err == nil && f.All.Contains(a) {
			f.reserved[a] = kept
		}
	}
}

// at is the letter of one address.
func (f *Map) at(a netip.Addr) byte {
	if l, ok := f.letters[a]; ok {
		return l
	}
	for _, p := range f.prefixes {
		if p.prefix.Contains(a) {
			return p.letter
		}
	}
	if l, ok := f.reserved[a]; ok {
		return l
	}
	if f.isExcluded(a) {
		return excluded
	}
	return free
}

func (f *Map) isExcluded(a netip.Addr) bool {
	return slices.ContainsFunc(f.excluded, func(s ranges.Range) bool { return s.Contains(a) })
}

// heldIn is the leases' addresses inside s.
func (f *Map) heldIn(s ranges.Range) []netip.Addr {
	from, _ := slices.BinarySearchFunc(f.held, s.From, netip.Addr.Compare)
	to, found := slices.BinarySearchFunc(f.held, s.To, netip.Addr.Compare)
	if found {
		to++
	}
	return f.held[from:to]
}

// tally counts the addresses of s by letter, without walking the free ones.
func (f *Map) tally(s ranges.Range) map[byte]*big.Int {
	counts := map[byte]*big.Int{}
	add := func(l byte, n *big.Int) {
		if counts[l] == nil {
			counts[l] = new(big.Int)
		}
		counts[l].Add(counts[l], n)
	}
	one := big.NewInt(1)
	outside := new(big.Int) // excluded addresses that have another letter
	rest := s.Size()
	named := func(a netip.Addr, l byte) {
		add(l, one)
		rest.Sub(rest, one)
		if f.isExcluded(a) {
			outside.Add(outside, one)
		}
	}
	for _, a := range f.heldIn(s) {
		named(a, f.letters[a])
	}
	for a, l := range f.reserved {
		if _, leased := f.letters[a]; !leased && s.Contains(a) {
			named(a, l)
		}
	}
	barred := new(big.Int)
	for _, e := range f.excluded {
		if part, ok := e.Clip(s); ok {
			barred.Add(barred, part.Size())
		}
	}
	barred.Sub(barred, outside)
	add(excluded, barred)
	add(free, rest.Sub(rest, barred))
	return counts
}
