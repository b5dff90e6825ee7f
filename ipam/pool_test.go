package ipam_test

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/ranges"
	"github.com/ipamd/ipamd/ipam"
)

// A pool has no address that can be no host's: not the limited broadcast address, nor an
// unspecified, loopback, link-local or multicast one.
func TestNoPoolOfAddressesThatAreNoHosts(t *testing.T) {
	for prefix, want := range map[string]string{
		"0.0.0.0/8": "no host", "0.0.0.0/0": "no host", "127.0.0.0/24": "loopback", "96.0.0.0/3": "127.0.0.0/8 of it", "169.254.7.0/24": "link-local",
		"224.0.0.0/24": "multicast", "239.255.0.0/16": "multicast", "255.255.255.0/24": "broadcast", "255.255.255.255/32": "broadcast",
		"::/64": "loopback", "::1/128": "loopback", "fe80::/64": "link-local", "ff02::/64": "multicast", "::/0": "loopback",
	} {
		s := ipam.PoolSpec{Name: "default", Prefix: netip.MustParsePrefix(prefix), Bridge: "rt0"}
		var fe *ipam.FieldError
		if err := s.Check(); !errors.As(err, &fe) || fe.Field != "pool.prefix" || !strings.Contains(fe.Reason, want) {
			t.Errorf("%s: %v, want %q", prefix, err, want)
		}
	}
	for _, prefix := range []string{"10.0.0.0/8", "100.64.0.0/10", "192.168.0.0/16", "223.255.255.0/24", "240.0.0.0/24", "fd00::/8", "2001:db8::/32", "fec0::/64"} {
		s := ipam.PoolSpec{Name: "default", Prefix: netip.MustParsePrefix(prefix), Bridge: "rt0"}
		if err := s.Check(); err != nil {
			t.Errorf("%s: %v", prefix, err)
		}
	}
}

// A pool is refused for want of an address when, and only when, its gateway and its
// exclusions take each one: a random test against a look at each.
func TestAPoolHasAnAddressToGive(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	full := 0
	for range 5000 {
		prefix := netip.MustParsePrefix([]string{"10.8.64.0/29", "10.8.64.8/30", "10.8.64.0/31", "10.8.64.7/32", "fd00::/126", "fd00::8/127", "fd00::9/128"}[r.IntN(7)])
		s := ipam.PoolSpec{Name: "p", Prefix: prefix, Bridge: "rt0"}
		all := ranges.Of(prefix)
		var addrs []netip.Addr
		for a := all.From; all.Contains(a); a = a.Next() {
			addrs = append(addrs, a)
		}
		if hosts := s.Hosts(); r.IntN(2) == 0 {
			if g := addrs[r.IntN(len(addrs))]; hosts.Contains(g) {
				s.Gateway = g
			}
		}
		for range r.IntN(4) {
			i, j := r.IntN(len(addrs)), r.IntN(len(addrs))
			s.Exclude = append(s.Exclude, ranges.Between(addrs[min(i, j)], addrs[max(i, j)]))
		}
		some := slices.ContainsFunc(addrs, func(a netip.Addr) bool { return s.OutsideAddr(a) == "" })
		if !some {
			full++
		}
		if err := s.Check(); (err == nil) != some {
			t.Fatalf("%s, gateway %v, without %v: %v, and it has one: %t", prefix, s.Gateway, s.Exclude, err, some)
		}
	}
	if full == 0 {
		t.Error("no pool was full")
	}
}

// P5: an address with a zone, or one of IPv4 in IPv6's form, is another key than the address that a witness sees: of
// what is given behind it no witness would be asked.
func TestNoPoolOfAddressesInAnotherForm(t *testing.T) {
	plain := func() ipam.PoolSpec {
		return ipam.PoolSpec{Name: "p", Prefix: netip.MustParsePrefix("fd00:8::/64"), Bridge: "rt0", Gateway: netip.MustParseAddr("fd00:8::1"),
			DNS: []netip.Addr{netip.MustParseAddr("fe80::53%eth0")}}
	}
	zoned := netip.MustParseAddr("fd00:8::5%rt0")
	for name, change := range map[string]func(*ipam.PoolSpec){
		"the gateway": func(s *ipam.PoolSpec) { s.Gateway = zoned },
		"the end of an exclusion": func(s *ipam.PoolSpec) {
			s.Exclude = []ipam.Range{ranges.Between(netip.MustParseAddr("fd00:8::4"), zoned)}
		},
		"a reservation": func(s *ipam.PoolSpec) { s.Kept = []ipam.Kept{{Sandbox: "a", Address: zoned}} },
	} {
		s := plain()
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		if change(&s); s.Check() == nil {
			t.Errorf("%s is taken: %+v", name, s)
		}
	}
}
