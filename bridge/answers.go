package bridge

import (
	"container/list"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/ipamd/ipamd/bridge/probe"
	"github.com/ipamd/ipamd/census"
)

const (
	// locateEvery is the least time between two looks for the port that one
	// address is answered from.
	locateEvery = 100 * time.Millisecond
	// askAgainEvery is the least time between two rounds of askAgain: an answer wakes who reads it, and that one
	// asks again.
	askAgainEvery = 2 * time.Second
	// locateWithin is how long one drain may look for ports, with the lock held,
	// once it has made locateLeast lookups. One takes some 10 µs, and
	// twenty times as long beside a flood.
	locateWithin = 2 * time.Millisecond
	locateLeast  = 16
	// mostLooksFor bounds how often it is looked for by which port a suspected answer came.
	mostLooksFor = 5
	// mostAnswers bounds the answers by one port that are on the board: a guest may
	// answer for a whole /64. One that gives way to a later one is probed again
	// before its address is given.
	mostAnswers = 1024
)

// An origin is where an answer came from, by index: names change.
type origin struct {
	bridge int
	port   int // 0 when the forwarding table did not say
}

// An answer is one that is on the board.
type answer struct {
	probe.Reply
	origin
	located time.Time // when its port was looked for; zero: not yet
	looks   int       // how often it was looked for in vain by which port it came
	// proxied: it came by that port, whose namespace does not have the address.
	proxied bool
	share   *list.Element // of those by the same port
}

// answers is the probe witness. A silence proves nothing where a question may not
// have arrived, or an answer got lost.
type answers struct {
	*report
	bridge string        // its name
	window time.Duration // how long an address that answered may keep silent
	ask    func(netip.Addr) (sent bool)
	listen func() (*probe.Ingress, error)

	known     map[netip.Addr]answer
	byPort    map[int]*list.List         // their addresses, the oldest first; 0 is an unknown port
	unlocated map[netip.Addr]probe.Reply // answers since, of which the port is to be found
	doubts    map[netip.Addr]time.Time   // those that were probed again since, and when
	missed    atomic.Pointer[time.Time]  // when an answer may have been lost last
	ingress   *probe.Ingress             // nil while no answer is suspected
	suspected time.Time                  // when one was last
	asked     time.Time                  // when askAgain asked last
}

// receive takes in the last of the answers that came for an address. What is new in it
// is posted by locate. A silence ends with any of them.
func (a *answers) receive(addr netip.Addr, s probe.Reply) {
	delete(a.doubts, addr)
	if h, old := a.known[addr]; old && h.Reply == s && h.looks == 0 && time.Since(h.located) < locateEvery {
		delete(a.unlocated, addr)
		return
	}
	a.unlocated[addr] = s
}

// locate posts the answers that came, each with the port that it came by: the
// one where the bridge last saw the frame's source, which it learned from this
// very frame or a later one. What an answer says inside is only a claim
// of its sender, who can name a MAC behind another port.
//
// Every address that was answered for is on the board when it returns. Where it was
// answered from may have to wait for the next drain, once the time is up: with one
// question to the kernel for each, a flood of 50 000 answers a second holds up the
// allocations of all pools for up to 2 s. An answer that was located stands until the
// next one is.
func (a *answers) locate(w wire, until time.Time) {
	if w.link == nil || len(a.unlocated) == 0 {
		return
	}
	now := time.Now()
	if a.ingress != nil {
		a.ingress.Read(w.isPort)
	}
	asks, lookups := ingressAsks, locateLeast
	behind := make(map[probe.MAC]int)
	lookUp := func(s probe.Reply) bool { // false: there is no time
		for _, m := range []probe.MAC{s.From, s.Says} {
			if _, known := behind[m]; known {
				continue
			}
			if lookups <= 0 && !time.Now().Before(until) {
				return false
			}
			lookups--
			behind[m] = w.behind(m)
		}
		return true
	}
	for addr, s := range a.unlocated {
		h, old := a.known[addr]
		if now.Sub(h.located) < locateEvery {
			continue
		}
		if !lookUp(s) {
			if !old {
				a.post(w, addr, answer{Reply: s}, 0, "")
			}
			continue
		}
		port, says := behind[s.From], behind[s.Says]
		note, looks := "", 0
		came, checked := a.unmask(w, addr, s, port, &asks)
		proxied := checked && came == port
		if checked && !proxied {
			note = forged(w.ports[port].link.Name)
			if port, says = came, 0; came == 0 {
				note += "; by which port the answer came is not known"
				if h.Reply == s {
					looks = h.looks
				}
				looks++
			}
		}
		a.post(w, addr, answer{Reply: s, origin: origin{port: port}, located: now, looks: looks, proxied: proxied}, says, note)
		if looks == 0 || looks > mostLooksFor { // else the answer to the question of just now may show it
			delete(a.unlocated, addr)
		}
	}
}

// post puts an answer on the board, of which the oldest by its port gives way; says is
// the port of the MAC that it speaks of, 0 when none is known, and note what else there
// is to say.
func (a *answers) post(w wire, addr netip.Addr, h answer, says int, note string) {
	h.bridge = w.link.Index
	s := census.Sighting{Addr: addr, Bridge: a.bridge, MAC: h.From.String(), Note: note}
	if h.port != 0 {
		s.Port = w.ports[h.port].link.Name
	}
	if h.From != h.Says && note == "" {
		s.Note = fmt.Sprintf("it says that the address is at %s", h.Says)
		switch {
		case says != 0 && says != h.port:
			s.Note += ", which is behind " + w.ports[says].link.Name
		case h.located.IsZero(): // it may be another's
		case says != 0 || addr.Is4(): // as a bond's or a proxy's may be
			s.Says = h.Says.String()
		}
	}
	a.unshare(addr)
	of := a.byPort[h.port]
	if of == nil {
		of = list.New()
		a.byPort[h.port] = of
	}
	h.share = of.PushBack(addr)
	a.known[addr] = h
	if of.Len() > mostAnswers {
		a.remove(of.Front().Value.(netip.Addr))
	}
	a.see(addr.String(), []census.Sighting{s})
}

// unshare takes an address out of those that its port answered for.
func (a *answers) unshare(addr netip.Addr) {
	h := a.known[addr]
	if h.share == nil {
		return
	}
	of := a.byPort[h.port]
	of.Remove(h.share)
	if of.Len() == 0 {
		delete(a.byPort, h.port)
	}
}

func (a *answers) remove(addr netip.Addr) {
	a.unshare(addr)
	delete(a.known, addr)
	delete(a.doubts, addr)
	delete(a.unlocated, addr)
	a.drop(addr.String())
}

// removeFrom takes answers off the board whose origin went: the port, or
// the whole bridge. Another sender's later answer, which was not located yet, stands in
// for it.
func (a *answers) removeFrom(w wire, gone func(origin) bool) {
	for addr, h := range a.known {
		if !gone(h.origin) {
			continue
		}
		if next, other := a.unlocated[addr]; other && next.From != h.From && h.bridge == w.link.Index {
			a.post(w, addr, answer{Reply: next}, 0, "")
		} else {
			a.remove(addr)
		}
	}
}

// doubt notes that an address which answered before is about to be probed
// again. Until the question was sent the doubt has no date.
// It reports whether there is one.
func (a *answers) doubt(addr netip.Addr) bool {
	if _, seen := a.known[addr]; !seen {
		return false
	}
	if _, doubted := a.doubts[addr]; !doubted {
		a.doubts[addr] = time.Time{}
	}
	return true
}

// doubtSince dates a doubt by the question that was sent, or ends it when none
// was. One that has a date already keeps it: the silence began then.
func (a *answers) doubtSince(addr netip.Addr, sent bool) {
	switch since, doubted := a.doubts[addr]; {
	case !doubted || !since.IsZero():
	case sent:
		a.doubts[addr] = time.Now()
	default:
		delete(a.doubts, addr)
	}
}

// expire takes the answers off the board whose address kept silent for the window after
// a later question, unless the question may not have reached their origin: the kernel's
// news that a port lost its carrier comes up to a second late, so each port is looked
// at once. All answers until now have been read.
func (a *answers) expire(now time.Time, reaches func(origin) bool, look func(port int)) {
	looked := make(map[int]bool)
	for addr, since := range a.doubts {
		from := a.known[addr].origin
		due := !since.IsZero() && now.Sub(since) >= a.window
		if due && from.port != 0 && !looked[from.port] && reaches(from) {
			looked[from.port] = true
			look(from.port)
		}
		switch {
		case !reaches(from):
			delete(a.doubts, addr)
		case due:
			a.remove(addr)
		}
	}
}

// askAgain asks for the answers that came by no port that is known, a few at a time and the oldest first. Their
// port may have gone before they were read: no news ends them then, and without a question they would stand for good.
func (a *answers) askAgain(now time.Time, reaches func(origin) bool) {
	of := a.byPort[0]
	if of == nil || now.Sub(a.asked) < askAgainEvery || !reaches(origin{}) {
		return
	}
	a.asked = now
	for e, asks := of.Front(), ingressAsks; e != nil && asks > 0; e, asks = e.Next(), asks-1 {
		addr := e.Value.(netip.Addr)
		if _, doubted := a.doubts[addr]; !doubted {
			a.doubt(addr)
			a.doubtSince(addr, a.ask(addr))
		}
	}
}

// lose notes that answers may have been lost until now.
func (a *answers) lose() {
	now := time.Now()
	a.missed.Store(&now)
	clear(a.doubts)
}

// notice takes in that an address came to a namespace, or went: what answered for it had
// not the address then, or has it no more.
func (a *answers) notice(addr netip.Addr) {
	if h := a.known[addr]; h.proxied {
		h.proxied = false
		a.known[addr] = h
	}
}

// MissedSince reports whether an answer to a probe may have been lost since a
// moment, as when a guest answers faster than answers are read: no silence since
// then proves anything. It is as of the last [Bridge.Settle], reads memory, and is
// safe for concurrent use.
func (b *Bridge) MissedSince(t time.Time) bool { return !b.answers.missed.Load().Before(t) }
