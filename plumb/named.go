package plumb

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Named are the names of ports that look as if [Make] had made them: veths and taps with a name as
// [HostName] gives, and a MAC as [HostMAC]. Whose they are, only their owners know.
func Named(ctx context.Context) (map[string]bool, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	defer h.Close()
	links, err := h.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	out := make(map[string]bool)
	for _, l := range links {
		a := l.Attrs()
		digits, is := strings.CutPrefix(a.Name, "sb")
		if _, err := hex.DecodeString(digits); is && err == nil && len(digits) == 12 && (l.Type() == "veth" || isTap(l)) &&
			len(a.HardwareAddr) == 6 && a.HardwareAddr[0] == 0xfe {
			out[a.Name] = true
		}
	}
	return out, nil
}
