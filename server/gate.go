package server

import (
	"container/list"
	"net"
	"net/http"
	"sync"
)

// A gate is a listener that keeps at most so many connections open. One too
// many closes one on which no call has begun: of the peer that has the most,
// the one that has been so longest. So a client which opens ten thousand, and
// says nothing or half a request on each, shuts nobody out but itself. When a
// call runs on each connection of that peer, the next one waits in the kernel's
// backlog.
//
// A call on a connection that the gate closed is not begun, so that none is
// carried out whose answer is lost.
type gate struct {
	net.Listener
	most     int
	identify func(net.Conn) *peer

	mu     sync.Mutex
	room   sync.Cond
	open   int
	crowds map[holder]*crowd
	turn   uint64 // counts the connections that became spare
	shut   bool
}

// A crowd is the connections of one holder.
type crowd struct {
	open  int
	spare list.List // of *gated, those without a call, longest so first
}

// A gated is a connection with its peer.
type gated struct {
	net.Conn
	gate *gate
	peer *peer

	// Under the gate's lock.
	place *list.Element // in its crowd's spare; nil while a call runs
	since uint64        // the gate's turn when it became spare
	cut   bool          // it is closed, or about to be
}

func newGate(ln net.Listener, most int, identify func(net.Conn) *peer) *gate {
	g := &gate{Listener: ln, most: most, identify: identify, crowds: make(map[holder]*crowd)}
	g.room.L = &g.mu
	return g
}

// Accept returns the next connection once there is room for it.
func (g *gate) Accept() (net.Conn, error) {
	c, err := g.Listener.Accept()
	if err != nil {
		return nil, err
	}
	p := g.identify(c)
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.open >= g.most && !g.shut {
		gc := g.costliest(p.holder)
		if gc == nil {
			g.room.Wait()
			continue
		}
		g.drop(gc)
		g.mu.Unlock()
		gc.Conn.Close()
		g.mu.Lock()
	}
	if g.shut {
		c.Close()
		return nil, net.ErrClosed
	}
	g.open++
	if g.crowds[p.holder] == nil {
		g.crowds[p.holder] = new(crowd)
	}
	g.crowds[p.holder].open++
	return &gated{Conn: c, gate: g, peer: p}, nil
}

// Close stops Accept.
func (g *gate) Close() error {
	g.mu.Lock()
	g.shut = true
	g.room.Broadcast()
	g.mu.Unlock()
	return g.Listener.Close()
}

// closeSpare closes the connections that no call is running on.
func (g *gate) closeSpare() {
	g.mu.Lock()
	var spare []*gated
	for _, of := range g.crowds {
		for of.spare.Len() > 0 {
			gc := of.spare.Front().Value.(*gated)
			g.drop(gc)
			spare = append(spare, gc)
		}
	}
	g.mu.Unlock()
	for _, gc := range spare {
		gc.Conn.Close()
	}
}

// watch is net/http's ConnState hook. A connection that has said nothing yet,
// or half a request, is as spare as one between two calls.
func (g *gate) watch(c net.Conn, state http.ConnState) {
	if state == http.StateNew || state == http.StateIdle {
		c.(*gated).over()
	}
}

// costliest returns the connection to close for another one, or nil: of the
// crowd that is the largest when the newcomer is in. While each of its
// connections has a call, the newcomer waits; somebody else's idle one is none of
// theirs. It looks at each holder: there are no more than connections.
func (g *gate) costliest(newcomer holder) *gated {
	most := 1
	if own := g.crowds[newcomer]; own != nil {
		most += own.open
	}
	for of, crowd := range g.crowds {
		if of != newcomer {
			most = max(most, crowd.open)
		}
	}
	var it *gated
	for of, crowd := range g.crowds {
		size := crowd.open
		if of == newcomer {
			size++
		}
		first := crowd.spare.Front()
		if size < most || first == nil {
			continue
		}
		if gc := first.Value.(*gated); it == nil || gc.since < it.since {
			it = gc
		}
	}
	return it
}

// drop forgets a connection that is about to be closed. From then on no call
// begins on it.
func (g *gate) drop(gc *gated) {
	if gc.cut {
		return
	}
	gc.busy()
	gc.cut = true
	g.open--
	of := g.crowds[gc.peer.holder]
	if of.open--; of.open == 0 {
		delete(g.crowds, gc.peer.holder)
	}
	g.room.Signal()
}

// begin reports whether a call may begin on the connection. From then until
// over the gate leaves it alone.
func (gc *gated) begin() bool {
	gc.gate.mu.Lock()
	defer gc.gate.mu.Unlock()
	gc.busy()
	return !gc.cut
}

// over says that the call's answer is on its way to the peer as a whole.
func (gc *gated) over() {
	gc.gate.mu.Lock()
	defer gc.gate.mu.Unlock()
	if gc.cut || gc.place != nil {
		return
	}
	gc.gate.turn++
	gc.since = gc.gate.turn
	gc.place = gc.gate.crowds[gc.peer.holder].spare.PushBack(gc)
	gc.gate.room.Signal()
}

func (gc *gated) busy() {
	if gc.place != nil {
		gc.gate.crowds[gc.peer.holder].spare.Remove(gc.place)
		gc.place = nil
	}
}

// Close makes room for another connection.
func (gc *gated) Close() error {
	gc.gate.mu.Lock()
	gc.gate.drop(gc)
	gc.gate.mu.Unlock()
	return gc.Conn.Close()
}
