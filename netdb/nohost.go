package netdb

import "net/netip"

// noHost are addresses that no host of a network has for itself.
var noHost = []struct {
	prefix netip.Prefix
	what   string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "of this network and no host (RFC 1122)"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("255.255.255.255/32"), "the limited broadcast address"},
	{netip.MustParsePrefix("::/127"), "unspecified or loopback"},
	{netip.MustParsePrefix("::ffff:0:0/96"), "IPv4 in IPv6"},
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
}

// NoHost says which of the addresses of a prefix can be no host's own, and why; "" when each
// can be one's.
func NoHost(p netip.Prefix) string {
	for _, no := range noHost {
		if no.prefix.Overlaps(p) {
			if no.prefix.Bits() <= p.Bits() {
				return p.String() + " is " + no.what
			}
			return no.prefix.String() + " of it is " + no.what
		}
	}
	return ""
}
