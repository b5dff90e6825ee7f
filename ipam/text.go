package ipam

import "net/netip"

// Texts writes addresses as they stand at the socket and in sentences; none of none.
func Texts(addrs []netip.Addr) (all []string) {
	for _, a := range addrs {
		all = append(all, a.String())
	}
	return all
}
