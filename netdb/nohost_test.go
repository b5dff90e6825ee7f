package netdb

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

// A pool has no address that can be no host's: not the limited broadcast address, nor an
// unspecified, loopback, link-local or multicast one.
func TestNoPoolOfAddressesThatAreNoHosts(t *testing.T) {
	for prefix, want := range map[string]string{
		"0.0.0.0/8": "no host", "0.0.0.0/0": "no host", "127.0.0.0/24": "loopback", "96.0.0.0/3": "127.0.0.0/8 of it", "169.254.7.0/24": "link-local",
		"224.0.0.0/24": "multicast", "239.255.0.0/16": "multicast", "255.255.255.0/24": "broadcast", "255.255.255.255/32": "broadcast",
		"::/64": "loopback", "::1/128": "loopback", "fe80::/64": "link-local", "ff02::/64": "multicast", "::/0": "loopback",
	} {
		s := PoolSpec{Name: "default", Prefix: netip.MustParsePrefix(prefix), Bridge: "rt0"}
		var fe *FieldError
		if err := s.Check(); !errors.As(err, &fe) || fe.Field != "pool.prefix" || !strings.Contains(fe.Reason, want) {
			t.Errorf("%s: %v, want %q", prefix, err, want)
		}
	}
	for _, prefix := range []string{"10.0.0.0/8", "100.64.0.0/10", "192.168.0.0/16", "223.255.255.0/24", "240.0.0.0/24", "fd00::/8", "2001:db8::/32", "fec0::/64"} {
		s := PoolSpec{Name: "default", Prefix: netip.MustParsePrefix(prefix), Bridge: "rt0"}
		if err := s.Check(); err != nil {
			t.Errorf("%s: %v", prefix, err)
		}
	}
}
