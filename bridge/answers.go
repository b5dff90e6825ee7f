package bridge

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/census"
)

// An origin is where an answer came from, by index: names change.
type origin struct {
	bridge int
	port   int // 0 when the forwarding table did not say
}

// answered posts an answer, with the port that it came by: the one where the
// bridge heard the frame's source, which it learned from this very frame or a
// later one. What an answer says inside is only what somebody says: a flooder
// that spoke of another's MAC had another's port named, or none.
func (b *Bridge) answered(addr netip.Addr, source, says net.HardwareAddr) {
	if b.link == nil {
		return // of a bridge that went meanwhile
	}
	from := origin{bridge: b.link.index, port: b.behind(source)}
	s := census.Sighting{Addr: addr, Bridge: b.cfg.Name, MAC: source.String()}
	if from.port != 0 {
		s.Port = b.ports[from.port].link.name
	}
	if !bytes.Equal(source, says) {
		s.Note = fmt.Sprintf("it says that the address is at %s", says)
		switch at := b.behind(says); {
		case at != 0 && at != from.port:
			s.Note += ", which is behind " + b.ports[at].link.name
		case at != 0 || addr.Is4(): // as a bond's or a proxy's may be
			s.Says = says.String()
		}
	}
	b.heard[addr] = from
	delete(b.doubts, addr)
	b.answers.see(addr.String(), []census.Sighting{s})
}

// behind is the port that the bridge last heard a MAC from, by index; 0 when it
// knows of none. The MAC of the host's own end of a port is in the table, too,
// and nobody behind the port has it.
func (b *Bridge) behind(mac net.HardwareAddr) int {
	f, err := b.kernel.forwarding(b.link.index, b.link.vlan, mac)
	if err != nil || f.state&unix.NUD_PERMANENT != 0 || b.ports[f.index] == nil {
		return 0
	}
	return f.index
}

func (b *Bridge) dropAnswer(addr netip.Addr) {
	delete(b.heard, addr)
	delete(b.doubts, addr)
	b.answers.drop(addr.String())
}

// dropAnswersFrom takes answers off the board whose origin went: the port, or
// the whole bridge, and who answered with it.
func (b *Bridge) dropAnswersFrom(gone func(origin) bool) {
	for addr, from := range b.heard {
		if gone(from) {
			b.dropAnswer(addr)
		}
	}
}

// doubt notes that an address which answered before is about to be asked
// again. Until the question was sent the doubt has no date.
func (b *Bridge) doubt(addr netip.Addr) {
	if _, seen := b.heard[addr]; !seen {
		return
	}
	if _, doubted := b.doubts[addr]; !doubted {
		b.doubts[addr] = time.Time{}
	}
}

// doubtSince dates a doubt by the question that was sent, or ends it when none
// was. One that has a date already keeps it: the silence began then.
func (b *Bridge) doubtSince(addr netip.Addr, sent bool) {
	switch since, doubted := b.doubts[addr]; {
	case !doubted || !since.IsZero():
	case sent:
		b.doubts[addr] = time.Now()
	default:
		delete(b.doubts, addr)
	}
}

// expireAnswers lets go of the answers whose address kept silent for
// Config.ProbeWindow after a later question. All answers until now have been
// read. Where a question may not have arrived, or an answer got lost, the
// silence proves nothing and the next question begins another.
func (b *Bridge) expireAnswers(now time.Time) {
	if len(b.doubts) == 0 {
		return
	}
	missed := b.probe.missed()
	for addr, since := range b.doubts {
		switch {
		case missed || !b.reaches(b.heard[addr]):
			delete(b.doubts, addr)
		case !since.IsZero() && now.Sub(since) >= b.cfg.ProbeWindow:
			b.expire(addr)
		}
	}
}

// expire lets go of an answer, unless its port has lost its carrier, of which
// the kernel's news comes up to a second late.
func (b *Bridge) expire(addr netip.Addr) {
	if from := b.heard[addr]; from.port != 0 {
		b.readPort(from.port)
		if !b.reaches(from) {
			delete(b.doubts, addr)
			return
		}
	}
	b.dropAnswer(addr)
}

// reaches reports whether a question surely arrives where an answer came
// from. A link that is in the news may have been down.
func (b *Bridge) reaches(from origin) bool {
	if b.lost || b.lookAgain || !b.isThere() || !b.link.carries() {
		return false
	}
	if from.port == 0 {
		return true
	}
	p := b.ports[from.port]
	return p != nil && p.link.carries() && !b.linksAgain[from.port]
}
