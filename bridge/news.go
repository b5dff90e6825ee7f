package bridge

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/probe"
	"github.com/ipamd/ipamd/bridge/rtnl"
)

// drain takes in all news and answers, and notes what is to be read again.
func (b *Bridge) drain() {
	now := time.Now()
	b.netns.stacked.until = time.Time{}
	if b.readNews(); b.trouble == nil {
		b.answers.locate(b.wire(), time.Now().Add(locateWithin))
		b.answers.expire(now, b.reaches, func(port int) { b.netns.readPort(b.wire(), port) })
		b.answers.askAgain(now, b.reaches)
	}
}

func (b *Bridge) readNews() {
	if n, err := unix.Poll(b.listening(), 0); n == 0 && err == nil {
		b.neighbour.more.Store(false)
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
		b.recent.miss() // it may have been of any address
		b.neighbour.lose()
		err = nil
	}
	b.neighbour.more.Store(more)
	if err := errors.Join(linksErr, err); err != nil {
		b.trouble = err
		b.device.unready("the kernel's news about "+b.cfg.Name+" cannot be read", err)
		b.silence(err)
		b.wakeup.wake() // Run opens the sockets again
		return
	}
	b.probe.Read(func(addr netip.Addr, s probe.Reply) {
		if b.device.link != nil { // else it is of a bridge that went meanwhile
			b.answers.receive(addr, s)
		}
	})
	if b.probe.Missed() { // what was in the way has just been read
		b.answers.lose()
	}
}

// reaches reports whether a question surely arrives where an answer came
// from. A link that is in the news may have been down.
func (b *Bridge) reaches(from origin) bool {
	switch {
	case !b.isKnown() || b.device.again:
		return false
	case from.port == 0 && len(b.netns.ports) == 0: // what answered is not on the bridge any more
		return true
	case !b.device.link.Carries():
		return false
	}
	p := b.netns.ports[from.port]
	return from.port == 0 || p != nil && p.link.Carries() && !b.netns.linksAgain[from.port]
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
			index := int(int32(binary.NativeEndian.Uint32(body[4:])))
			gone := h.Type == unix.RTM_DELLINK
			b.netns.receiveStacked(nsid, index, body)
			b.receiveLink(nsid, gone, index)
		}
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		b.receiveAddress(nsid, h.Type == unix.RTM_NEWADDR, body)
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		if b.device.isThere() {
			b.neighbour.receive(b.device.link.Index, body)
		}
	case unix.RTM_DELNSID:
		if nsid != rtnl.NoNetns { // an id in another's table, which may be as one here
			return
		}
		if id, err := rtnl.ParseNetnsID(body); err != nil {
			b.lost = true
		} else {
			b.netns.receiveEnd(id)
		}
	}
}

func (b *Bridge) receiveLink(nsid int, gone bool, index int) {
	if nsid == rtnl.NoNetns {
		if !b.device.isThere() || b.device.link.Index == index {
			b.device.again = true
			return
		}
		b.host.again = b.host.again || b.host.links[index] // it may have another name
	}
	b.netns.receiveLink(nsid, gone, index)
}

// receiveAddress notes whose addresses are to be listed again, and that this one
// was there: when the list is read it may be gone. An address that was in use while the
// daemon stood still is not free at once.
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
		b.netns.receiveAddress(nsid, came, a, err)
	case mere && b.device.link != nil && a.Index != b.device.link.Index:
		// Nothing depends on the link-local one that each port gets a second after it
		// came, and loses when it goes.
	default:
		b.host.again = true
	}
}
