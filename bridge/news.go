package bridge

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// news are the kernel's own announcements. One socket hears of links and
// addresses in every namespace that a port leads to; neighbours are heard of
// in the bridge's namespace only, on a second one, for those of a thousand
// guests would drown the rest.
type news struct {
	links, neighbours int          // descriptors
	overran           map[int]bool // those that lost something and were not read empty since
	buf, oob          []byte
}

// newsBuffer is the wanted receive buffer, in bytes: about 4 000 link events.
const newsBuffer = 8 << 20

// mostAtOnce bounds what is read from one socket while everybody waits. It is
// more than a buffer holds, so all that was there is read; but a guest that
// sends from ever new MACs makes news as fast as they can be read.
const mostAtOnce = 1 << 15

// neighboursAtOnce is how much news of neighbours one Settle reads, some 50 µs of
// it. What it does not read costs it a question about each address that it is
// called for; see [Bridge.stale].
const neighboursAtOnce = 64

// leastMemory is less than the kernel charges a socket for any message, in
// bytes: its struct sk_buff and skb_shared_info have more.
const leastMemory = 512

// queued is how many messages there are to be read from a socket now, at
// most: what comes while they are read is not waited for, by which a flooder
// would say how long everybody waits.
func queued(fd int) int {
	charged, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MEMINFO) // the first of it: SK_MEMINFO_RMEM_ALLOC
	if err != nil {
		return mostAtOnce // whoever reads it is told what is wrong
	}
	return min(charged/leastMemory+1, mostAtOnce)
}

// openNews opens both sockets in the thread's namespace.
func openNews() (*news, error) {
	links, err := listen(true, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_NSID)
	if err != nil {
		return nil, err
	}
	neighbours, err := listen(false, unix.RTNLGRP_NEIGH)
	if err != nil {
		_ = unix.Close(links)
		return nil, err
	}
	return &news{links: links, neighbours: neighbours, overran: make(map[int]bool), buf: make([]byte, mostMessage), oob: make([]byte, 64)}, nil
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

func (n *news) close() {
	_ = unix.Close(n.links)
	_ = unix.Close(n.neighbours)
}

// read takes in what is there now. errOverrun means that some of it was lost.
//
// A socket that overran hears nothing more until all that is in it was read,
// and does not tell so again. Whoever stopped at the error missed what happened
// while everything was read anew.
func (n *news) read(fd int, take func(nsid int, h header, body []byte)) error {
	for there, taken := queued(fd), 0; taken < mostAtOnce && (taken < there || n.overran[fd]); taken++ {
		size, oobSize, _, _, err := unix.Recvmsg(fd, n.buf, n.oob, 0)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return n.lost(fd, true)
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENOBUFS):
			n.overran[fd] = true
			continue
		case err != nil:
			return fmt.Errorf("read kernel news: %w", err)
		}
		nsid := sender(n.oob[:oobSize])
		eachMessage(n.buf[:size], func(h header, body []byte) { take(nsid, h, body) })
	}
	return n.lost(fd, false)
}

// readNeighbours is read for the news of neighbours, but at most so many
// messages. more reports that some may be left. A guest that sends from ever new
// addresses and MACs makes this news as fast as it can be read.
func (n *news) readNeighbours(most int, take func(nsid int, h header, body []byte)) (more bool, err error) {
	fd := n.neighbours
	for range most {
		size, err := unix.Read(fd, n.buf)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return false, n.lost(fd, true)
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ENOBUFS):
			n.overran[fd] = true
		case err != nil:
			return false, fmt.Errorf("read kernel news: %w", err)
		default:
			eachMessage(n.buf[:size], func(h header, body []byte) { take(noSpace, h, body) })
		}
	}
	return true, n.lost(fd, false)
}

// lost tells whether something was, since the socket was last read empty.
func (n *news) lost(fd int, empty bool) error {
	if !n.overran[fd] {
		return nil
	}
	n.overran[fd] = !empty
	return errOverrun
}

// sender is the namespace that a message comes from: noSpace for the own one.
func sender(oob []byte) int {
	for len(oob) >= unix.CmsgLen(4) {
		h, data, rest, err := unix.ParseOneSocketControlMessage(oob)
		if err != nil {
			break
		}
		if h.Level == unix.SOL_NETLINK && h.Type == unix.NETLINK_LISTEN_ALL_NSID && len(data) >= 4 {
			return int(int32(binary.NativeEndian.Uint32(data)))
		}
		oob = rest
	}
	return noSpace
}

// listening are the sockets that can have something to read.
func (b *Bridge) listening() []unix.PollFd {
	return []unix.PollFd{
		{Fd: int32(b.news.links), Events: unix.POLLIN},
		{Fd: int32(b.news.neighbours), Events: unix.POLLIN},
		{Fd: int32(b.probe.arp.fd), Events: unix.POLLIN},
		{Fd: int32(b.probe.ndp.fd), Events: unix.POLLIN},
	}
}

// drain takes in all news and notes what is to be read again.
func (b *Bridge) drain() {
	now := time.Now()
	if n, err := unix.Poll(b.listening(), 0); n == 0 && err == nil {
		b.neighboursMore.Store(false)
		b.placeAnswers(time.Now().Add(placeWithin))
		b.expireAnswers(now)
		return
	}
	linksErr := b.news.read(b.news.links, b.hear)
	if errors.Is(linksErr, errOverrun) {
		b.cfg.Log.Warn("kernel news was lost, reading everything again", "bridge", b.cfg.Name)
		b.lost = true
		linksErr = nil
	}
	more, err := b.news.readNeighbours(neighboursAtOnce, b.hear)
	if errors.Is(err, errOverrun) {
		b.lately.miss() // it may have been of anybody
		b.loseNeighbours()
		err = nil
	}
	b.neighboursMore.Store(more)
	if err := errors.Join(linksErr, err); err != nil {
		b.trouble = err
		b.unready("the kernel's news about "+b.cfg.Name+" cannot be read", err)
		b.silence(err)
		b.alarm.ring() // Run opens the sockets again
		return
	}
	b.probe.read(b.answered)
	if b.probe.missed() { // what was in the way has just been read
		b.missAnswers()
	}
	b.placeAnswers(time.Now().Add(placeWithin))
	b.expireAnswers(now)
}

// hear notes what one message is about. It is not believed: between its
// sending and now everything may have changed once more.
func (b *Bridge) hear(nsid int, h header, body []byte) {
	if len(body) < 4 {
		return
	}
	switch h.typ {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		if len(body) >= unix.SizeofIfInfomsg {
			b.hearChild(nsid, int(int32(binary.NativeEndian.Uint32(body[4:]))), body)
			b.hearLink(nsid, h.typ == unix.RTM_DELLINK, int(int32(binary.NativeEndian.Uint32(body[4:]))))
		}
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		b.hearAddress(nsid, h.typ == unix.RTM_NEWADDR, body)
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		b.hearNeighbour(body)
	case unix.RTM_DELNSID:
		b.hearEnd(body)
	}
}

// hearAddress notes whose addresses are to be listed again, and that this one
// was there: when the list is read it may be gone. A daemon that had stood still
// called an address free that a sandbox had used meanwhile, and it was given to
// the next at once.
func (b *Bridge) hearAddress(nsid int, came bool, body []byte) {
	a, err := parseAddress(body)
	mere := err == nil && !counts(a.prefix.Addr())
	switch {
	case err != nil:
		b.lately.miss()
	case !mere:
		b.lately.note(a.prefix.Addr())
	}
	switch {
	case nsid != noSpace:
		if b.spaces[nsid] != nil {
			b.spacesAgain[nsid] = true
		} else if b.nests[nsid] != nil {
			b.nestsAgain[nsid] = true
		} else if b.partly[nsid] != nil && came && !mere {
			b.missChild() // the link that has it may be one of those that were not listed
		}
		if in := b.insideOf(nsid); in != nil && came && err == nil {
			in.tell(a)
		}
	case mere && b.link != nil && a.index != b.link.index:
		// Of the link-local one that each port gets a second after it came,
		// and loses when it goes, nothing hangs.
	default:
		b.hostAgain = true
	}
}

func (b *Bridge) hearLink(nsid int, gone bool, index int) {
	if nsid != noSpace {
		s := b.spaces[nsid]
		if s == nil {
			return
		}
		delete(s.macs, index)
		b.spacesAgain[nsid] = true
		for port, p := range s.ports {
			if gone && p.link.peer == index { // perhaps it moved on to another namespace
				b.linksAgain[port] = true
			}
		}
		return
	}
	switch {
	case !b.isThere() || b.link.index == index:
		b.lookAgain = true
		return
	case gone: // perhaps the far end of a port, which moved to a namespace
		for _, p := range b.ports {
			if p.link.behind == noSpace && p.link.peer == index {
				b.linksAgain[p.link.index] = true
			}
		}
	}
	b.hostAgain = b.hostAgain || b.hostLinks[index] // it may have another name
	b.linksAgain[index] = true
}

// hearNeighbour notes an entry of the neighbour table, or, by its MAC, one of
// the FDB that a neighbour's entry leans on.
func (b *Bridge) hearNeighbour(body []byte) {
	if !b.isThere() || len(body) < unix.SizeofNdMsg {
		return
	}
	reachable := binary.NativeEndian.Uint16(body[8:])&unix.NUD_REACHABLE != 0
	if b.neighboursLost && (body[0] == unix.AF_BRIDGE || !reachable) {
		return // all are looked up again
	}
	e, err := parseEntry(body)
	switch {
	case err != nil:
		b.loseNeighbours() // news that we cannot read is lost news
		b.lately.miss()
	case body[0] == unix.AF_BRIDGE:
		for addr := range b.byMAC[e.mac.String()] {
			b.neighbourAgain(addr)
		}
	case e.index == b.link.index && counts(e.addr):
		b.neighbourAgain(e.addr)
		if e.state&unix.NUD_REACHABLE != 0 { // just now, though it may be gone by the look
			b.lately.note(e.addr)
		}
	}
}

// hearEnd notes that the kernel takes a namespace down and may give its id to
// another: from here on the id says nothing about the ports that led there.
func (b *Bridge) hearEnd(body []byte) {
	const sizeofRtgenmsg = 4 // padded
	err := attributes(body, sizeofRtgenmsg, func(ad *netlink.AttributeDecoder) {
		if ad.Type() != unix.NETNSA_NSID {
			return
		}
		id := int(ad.Int32())
		if n := b.nests[id]; n != nil {
			n.ended, b.childrenAgain = true, true
		}
		if s := b.spaces[id]; s != nil {
			b.freezeSpace(s)
			for index := range s.ports {
				b.linksAgain[index] = true
			}
		}
	})
	if err != nil {
		b.lost = true
	}
}
