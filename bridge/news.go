package bridge

import (
	"encoding/binary"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/rtnl"
)

// neighboursAtOnce is how much news of neighbours one Settle reads, some 50 µs of
// it. What it does not read costs it a question about each address that it is
// called for; see [Bridge.stale].
const neighboursAtOnce = 64

// listening are the sockets that can have something to read.
func (b *Bridge) listening() []unix.PollFd {
	var all []unix.PollFd
	for _, fd := range append(b.probe.Sockets(), b.news.Links, b.news.Neighbours) {
		all = append(all, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	return all
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
	_, linksErr := b.news.Read(b.news.Links, rtnl.MostAtOnce, b.receive)
	if errors.Is(linksErr, rtnl.ErrOverrun) {
		b.cfg.Log.Warn("kernel news was lost, reading everything again", "bridge", b.cfg.Name)
		b.lost = true
		linksErr = nil
	}
	more, err := b.news.Read(b.news.Neighbours, neighboursAtOnce, b.receive)
	if errors.Is(err, rtnl.ErrOverrun) {
		b.recent.miss() // it may have been of anybody
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
	b.probe.Read(b.answered)
	if b.probe.Missed() { // what was in the way has just been read
		b.missAnswers()
	}
	b.placeAnswers(time.Now().Add(placeWithin))
	b.expireAnswers(now)
}

// receive notes what one message is about. It is not believed: between its
// sending and now everything may have changed once more.
func (b *Bridge) receive(nsid int, h rtnl.Header, body []byte) {
	if len(body) < 4 {
		return
	}
	switch h.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		if len(body) >= unix.SizeofIfInfomsg {
			b.receiveChild(nsid, int(int32(binary.NativeEndian.Uint32(body[4:]))), body)
			b.receiveLink(nsid, h.Type == unix.RTM_DELLINK, int(int32(binary.NativeEndian.Uint32(body[4:]))))
		}
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		b.receiveAddress(nsid, h.Type == unix.RTM_NEWADDR, body)
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		b.receiveNeighbour(body)
	case unix.RTM_DELNSID:
		b.receiveEnd(body)
	}
}

// receiveAddress notes whose addresses are to be listed again, and that this one
// was there: when the list is read it may be gone. A daemon that had stood still
// called an address free that a sandbox had used meanwhile, and it was given to
// the next at once.
func (b *Bridge) receiveAddress(nsid int, came bool, body []byte) {
	a, err := rtnl.ParseAddress(body)
	mere := err == nil && !rtnl.Assignable(a.Prefix.Addr())
	switch {
	case err != nil:
		b.recent.miss()
	case !mere:
		b.recent.note(a.Prefix.Addr())
	}
	switch {
	case nsid != rtnl.NoNetns:
		if b.spaces[nsid] != nil {
			b.spacesAgain[nsid] = true
		} else if b.nests[nsid] != nil {
			b.nestsAgain[nsid] = true
		} else if came && !mere {
			b.strangers[nsid] = true
			b.missHidden(nsid)
		}
		if in := b.insideOf(nsid); in != nil && came && err == nil {
			in.tell(a)
		}
	case mere && b.link != nil && a.Index != b.link.Index:
		// Of the link-local one that each port gets a second after it came,
		// and loses when it goes, nothing hangs.
	default:
		b.hostAgain = true
	}
}

func (b *Bridge) receiveLink(nsid int, gone bool, index int) {
	if nsid != rtnl.NoNetns {
		s := b.spaces[nsid]
		if s == nil {
			return
		}
		delete(s.macs, index)
		b.spacesAgain[nsid] = true
		for port, p := range s.ports {
			if gone && p.link.Peer == index { // perhaps it moved on to another namespace
				b.linksAgain[port] = true
			}
		}
		return
	}
	switch {
	case !b.isThere() || b.link.Index == index:
		b.lookAgain = true
		return
	case gone: // perhaps the far end of a port, which moved to a namespace
		for _, p := range b.ports {
			if p.link.Behind == rtnl.NoNetns && p.link.Peer == index {
				b.linksAgain[p.link.Index] = true
			}
		}
	}
	b.hostAgain = b.hostAgain || b.hostLinks[index] // it may have another name
	b.linksAgain[index] = true
}

// receiveNeighbour notes an entry of the neighbour table, or, by its MAC, one of
// the FDB that a neighbour's entry leans on.
func (b *Bridge) receiveNeighbour(body []byte) {
	if !b.isThere() || len(body) < unix.SizeofNdMsg {
		return
	}
	reachable := binary.NativeEndian.Uint16(body[8:])&unix.NUD_REACHABLE != 0
	if b.neighboursLost && (body[0] == unix.AF_BRIDGE || !reachable) {
		return // all are looked up again
	}
	e, err := rtnl.ParseEntry(body)
	switch {
	case err != nil:
		b.loseNeighbours() // news that we cannot read is lost news
		b.recent.miss()
	case body[0] == unix.AF_BRIDGE:
		for addr := range b.byMAC[e.MAC.String()] {
			b.neighbourAgain(addr)
		}
	case e.Index == b.link.Index && rtnl.Assignable(e.Addr):
		b.neighbourAgain(e.Addr)
		if e.State&unix.NUD_REACHABLE != 0 { // just now, though it may be gone by the look
			b.recent.note(e.Addr)
		}
	}
}

// receiveEnd notes that the kernel takes a namespace down and may give its id to
// another: from here on the id says nothing about the ports that led there.
func (b *Bridge) receiveEnd(body []byte) {
	id, err := rtnl.ParseNetnsID(body)
	if err != nil {
		b.lost = true
		return
	}
	if n := b.nests[id]; n != nil {
		n.ended, b.childrenAgain = true, true
	}
	if s := b.spaces[id]; s != nil {
		b.freezeSpace(s)
		for index := range s.ports {
			b.linksAgain[index] = true
		}
	}
}
