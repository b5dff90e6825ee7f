package bridge

import (
	"net/netip"
	"time"
)

// doubt notes that an address which answered before is about to be asked
// again. Until the question was sent the doubt has no date.
// It reports whether there is one.
func (b *Bridge) doubt(addr netip.Addr) bool {
	if _, seen := b.heard[addr]; !seen {
		return false
	}
	if _, doubted := b.doubts[addr]; !doubted {
		b.doubts[addr] = time.Time{}
	}
	return true
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

// expireAnswers drops the answers whose address kept silent for
// Config.ProbeWindow after a later question. All answers until now have been
// read. Where a question may not have arrived, or an answer got lost, the
// silence proves nothing and the next question begins another.
func (b *Bridge) expireAnswers(now time.Time) {
	looked := make(map[int]bool)
	for addr, since := range b.doubts {
		switch {
		case !b.reaches(b.heard[addr].origin):
			delete(b.doubts, addr)
		case !since.IsZero() && now.Sub(since) >= b.cfg.ProbeWindow:
			b.expire(addr, looked)
		}
	}
}

// missAnswers notes that answers may have been lost until now.
func (b *Bridge) missAnswers() {
	now := time.Now()
	b.missed.Store(&now)
	clear(b.doubts)
}

// MissedSince reports whether an answer to a probe may have been lost since a
// moment, as when a guest answers faster than answers are read: no silence since
// then proves anything. It is as of the last [Bridge.Settle], reads memory, and is
// safe for concurrent use.
func (b *Bridge) MissedSince(t time.Time) bool { return !b.missed.Load().Before(t) }

// expire drops an answer, unless its port has lost its carrier, of which the
// kernel's news comes up to a second late. Each port is looked at once.
func (b *Bridge) expire(addr netip.Addr, looked map[int]bool) {
	if from := b.heard[addr].origin; from.port != 0 {
		if !looked[from.port] {
			looked[from.port] = true
			b.readPort(from.port)
		}
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
	if b.lost || b.lookAgain || !b.isThere() || !b.link.Carries() {
		return false
	}
	if from.port == 0 {
		return true
	}
	p := b.ports[from.port]
	return p != nil && p.link.Carries() && !b.linksAgain[from.port]
}
