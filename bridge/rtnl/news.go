package rtnl

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// News are the kernel's own announcements. One socket receives news of links and
// addresses in every namespace that a port leads to; news of neighbours comes
// in the bridge's namespace only, on a second one, for those of a thousand
// guests would drown the rest.
type News struct {
	Links, Neighbours int          // descriptors
	Self              int          // id by which their namespace knows itself; Unassigned: it had none
	overran           map[int]bool // those that lost something and were not read empty since
	buf, oob          []byte
}

// newsBuffer is the wanted receive buffer, in bytes: about 4 000 link events.
const newsBuffer = 8 << 20

// MostAtOnce bounds what is read from one socket with the bridge's lock held. It is
// more than a buffer holds, so all that was there is read; but a guest that
// sends from ever new MACs makes news as fast as they can be read.
const MostAtOnce = 1 << 15

// leastMemory is less than the kernel charges a socket for any message, in
// bytes: its struct sk_buff and skb_shared_info have more.
const leastMemory = 512

// Queued is how many messages there are to be read from a socket now, at
// most: what comes while they are read is not waited for, by which a flooder
// would decide how long the lock is held.
func Queued(fd int) int {
	charged, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MEMINFO) // the first of it: SK_MEMINFO_RMEM_ALLOC
	if err != nil {
		return MostAtOnce // the reader gets the error
	}
	return min(charged/leastMemory+1, MostAtOnce)
}

// Subscribe opens both sockets in the thread's namespace, which knows itself by the id self.
func Subscribe(self int) (*News, error) {
	links, err := listen(true, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_NSID)
	if err != nil {
		return nil, err
	}
	neighbours, err := listen(false, unix.RTNLGRP_NEIGH)
	if err != nil {
		_ = unix.Close(links)
		return nil, err
	}
	return &News{Links: links, Neighbours: neighbours, Self: self, overran: make(map[int]bool), buf: make([]byte, mostMessage), oob: make([]byte, 64)}, nil
}

func listen(everywhere bool, groups ...int) (int, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return -1, fmt.Errorf("open kernel news: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, newsBuffer); err != nil {
		// Without CAP_NET_ADMIN at home it is as big as the system allows;
		// a smaller one is only slower.
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, newsBuffer)
	}
	if everywhere {
		err = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_LISTEN_ALL_NSID, 1)
	}
	err = errors.Join(err, unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}))
	for _, g := range groups {
		err = errors.Join(err, unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, g))
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("open kernel news: %w", err)
	}
	return fd, nil
}

func (n *News) Close() {
	_ = unix.Close(n.Links)
	_ = unix.Close(n.Neighbours)
}

// Read takes in what is there now, at most so many messages; more reports that some may
// be left. ErrOverrun means that some was lost.
//
// A message that is longer than the buffer is given with what of its body came, in which
// the fixed part is whole: a guest makes the news of a link of its own so long, and it is no
// reason to read everything again.
//
// A socket that overran receives nothing more until all that is in it was read,
// and does not report it again. A reader that stopped at the error would miss what happened
// while everything was read anew.
func (n *News) Read(fd, most int, take func(nsid int, h Header, body []byte)) (more bool, err error) {
	for there, taken := Queued(fd), 0; taken < most && (taken < there || n.overran[fd]); taken++ {
		size, oobSize, truncated, err := receive(fd, n.buf, n.oob)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return false, n.lost(fd, true)
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENOBUFS):
			n.overran[fd] = true
			continue
		case err != nil:
			return false, fmt.Errorf("read kernel news: %w", err)
		}
		nsid := Sender(n.oob[:oobSize], n.Self)
		eachMessage(n.buf[:size], truncated, func(h Header, body []byte) { take(nsid, h, body) })
	}
	return true, n.lost(fd, false)
}

// lost reports whether something was, since the socket was last read empty.
func (n *News) lost(fd int, empty bool) error {
	if !n.overran[fd] {
		return nil
	}
	n.overran[fd] = !empty
	return ErrOverrun
}

// Sender is the namespace that a message comes from: NoNetns for the own one, which knows
// itself by the id self.
//
// Kernels before June 2026 (6.12, 6.18 and older; upstream 88b126b39f97 and 70f8592ee905)
// name the own namespace too: by its id for itself once it has one, and by -1 when another
// listener was served first. Taken for another's, that news is passed over, and a port that
// comes is not seen. So it is on such a kernel without CAP_NET_ADMIN, once the kernel gives
// the id behind our back.
func Sender(oob []byte, self int) int {
	for len(oob) >= unix.CmsgLen(4) {
		h, data, rest, err := unix.ParseOneSocketControlMessage(oob)
		if err != nil {
			break
		}
		if h.Level == unix.SOL_NETLINK && h.Type == unix.NETLINK_LISTEN_ALL_NSID && len(data) >= 4 {
			if id := int(int32(binary.NativeEndian.Uint32(data))); id >= 0 && id != self {
				return id
			}
			break
		}
		oob = rest
	}
	return NoNetns
}
