package admission

import (
	"net"
	"net/http"
	"sync"
)

// A Listener keeps at most so many connections open. A connection is spare while no call
// runs on it. For one too many a spare one is closed: of the holder that has the most
// connections, the one that is spare for longest.
// So a client which opens ten thousand, and sends nothing or half a request on each,
// shuts out itself only. When a call runs on each connection of that holder, the new one
// waits in the kernel's backlog.
//
// A call on a connection that the listener closed is not begun, so that none is
// carried out whose answer is lost.
type Listener struct {
	net.Listener
	most     int
	identify func(net.Conn) *Peer

	mu     sync.Mutex
	room   sync.Cond
	open   map[*Conn]struct{}
	spares uint64 // counts the connections that became spare
	closed bool
}

// A Conn is a connection with its peer.
type Conn struct {
	net.Conn
	Peer  *Peer
	ln    *Listener
	since uint64 // under the listener's lock: when it became spare; 0 while a call runs
}

// NewListener bounds the connections of ln; identify judges the peer of each.
func NewListener(ln net.Listener, most int, identify func(net.Conn) *Peer) *Listener {
	l := &Listener{Listener: ln, most: most, identify: identify, open: make(map[*Conn]struct{})}
	l.room.L = &l.mu
	return l
}

// Accept returns the next connection once there is room for it.
func (l *Listener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &Conn{Conn: raw, Peer: l.identify(raw), ln: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.open) >= l.most && !l.closed {
		if spare := l.evictable(c.Peer.Holder); spare != nil {
			l.drop(spare)
			l.mu.Unlock()
			spare.Conn.Close()
			l.mu.Lock()
		} else {
			l.room.Wait()
		}
	}
	if l.closed {
		raw.Close()
		return nil, net.ErrClosed
	}
	l.open[c] = struct{}{}
	return c, nil
}

// Close stops Accept.
func (l *Listener) Close() error {
	l.mu.Lock()
	l.closed = true
	l.room.Broadcast()
	l.mu.Unlock()
	return l.Listener.Close()
}

// CloseSpare closes the connections that no call is running on.
func (l *Listener) CloseSpare() {
	l.mu.Lock()
	var spare []*Conn
	for c := range l.open {
		if c.since > 0 {
			l.drop(c)
			spare = append(spare, c)
		}
	}
	l.mu.Unlock()
	for _, c := range spare {
		c.Conn.Close()
	}
}

// Watch is net/http's ConnState hook. A connection that has sent nothing yet,
// or half a request, is as spare as one between two calls.
func (l *Listener) Watch(c net.Conn, state http.ConnState) {
	if state == http.StateNew || state == http.StateIdle {
		c.(*Conn).End()
	}
}

// evictable returns the connection to close for a new one: of the holder that has the
// most, the new one counted, the connection that is spare for longest. It is nil when
// each of those has a call: no connection of a holder with fewer is closed then. It looks
// at each connection.
func (l *Listener) evictable(newcomer Holder) (longest *Conn) {
	count, most := map[Holder]int{newcomer: 1}, 0
	for c := range l.open {
		count[c.Peer.Holder]++
	}
	for _, n := range count {
		most = max(most, n)
	}
	for c := range l.open {
		if c.since > 0 && count[c.Peer.Holder] == most && (longest == nil || c.since < longest.since) {
			longest = c
		}
	}
	return longest
}

// drop forgets a connection that is about to be closed. From then on no call
// begins on it.
func (l *Listener) drop(c *Conn) {
	delete(l.open, c)
	l.room.Signal()
}

// Begin reports whether a call may begin on the connection. From then until
// End the listener leaves it open.
func (c *Conn) Begin() bool {
	c.ln.mu.Lock()
	defer c.ln.mu.Unlock()
	c.since = 0
	_, open := c.ln.open[c]
	return open
}

// End says that the call's answer is on its way to the peer as a whole.
func (c *Conn) End() {
	c.ln.mu.Lock()
	defer c.ln.mu.Unlock()
	if c.since == 0 {
		c.ln.spares++
		c.since = c.ln.spares
		c.ln.room.Signal()
	}
}

// Close makes room for another connection.
func (c *Conn) Close() error {
	c.ln.mu.Lock()
	c.ln.drop(c)
	c.ln.mu.Unlock()
	return c.Conn.Close()
}
