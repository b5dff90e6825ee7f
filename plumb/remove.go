package plumb

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Remove takes a port away: both of its ends go, wherever the other one is, and with
// it addresses and routes. It needs the name of the bridge's end and the owner,
// and no namespace. A port that is not there is no error; a link of another owner is
// [ErrTaken], and stays.
//
// The kernel takes 15 to 30 ms for it, as it waits for all its processors.
func Remove(ctx context.Context, host, owner string) error {
	err := ctx.Err()
	if err == nil {
		err = linkName("host", host)
	}
	if err == nil {
		var h *netlink.Handle
		if h, err = netlink.NewHandle(unix.NETLINK_ROUTE); err == nil {
			defer h.Close()
			err = remove(h, host, owner)
		}
	}
	if err != nil {
		return fmt.Errorf("remove port %s: %w", host, err)
	}
	return nil
}

func remove(h *netlink.Handle, host, owner string) error {
	l, err := hostEnd(h, host, owner)
	if err != nil || l == nil {
		return err
	}
	// By its index: a link that took the name meanwhile is another.
	err = h.LinkDel(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: l.Attrs().Index}})
	if isGone(err) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	return err
}
