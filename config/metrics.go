package config

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Metrics is where metrics can be read beside the socket, which always
// has them.
type Metrics struct {
	Listen string `toml:"listen" comment:"A TCP address on which /metrics, and nothing else, can be read by any host that reaches it, like\n'127.0.0.1:9713'. A port alone, ':9713', is on 127.0.0.1. Empty: there is none.\nThe shipped unit allows no IP, and wants a drop-in for it: OPERATIONS.md, Configure."`
}

// AddrPort reads the address; the zero value is none. Names are refused: what
// they stand for can change between the check and the start.
func (m Metrics) AddrPort() (netip.AddrPort, error) {
	if m.Listen == "" {
		return netip.AddrPort{}, nil
	}
	if port, ok := strings.CutPrefix(m.Listen, ":"); ok {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return netip.AddrPort{}, fmt.Errorf("%.40q has no port from 0 to 65535", m.Listen)
		}
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(n)), nil
	}
	at, err := netip.ParseAddrPort(m.Listen)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%.80q is no address with a port, like '127.0.0.1:9713' or '[::1]:9713'", m.Listen)
	}
	return at, nil
}

func (m Metrics) check(ps *Problems) {
	if _, err := m.AddrPort(); err != nil {
		ps.add("metrics.listen", "%v", err)
	}
}
