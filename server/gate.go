package server

import (
	"container/list"
	"net"
	"net/http"
	"sync"
)

// A gate is a listener that keeps at most so many connections open. One too
// many closes the connection that has been idle longest, so that a client
// which opens ten thousand and says nothing shuts nobody out; when none is
// idle, the next connection waits in the kernel's backlog.
type gate struct {
	net.Listener
	most int

	mu    sync.Mutex
	room  sync.Cond
	open  int
	idle  list.List                // of *gated, longest idle first
	where map[*gated]*list.Element // its place in idle
	shut  bool
}

type gated struct {
	net.Conn
	gate *gate
	once sync.Once
}

func newGate(ln net.Listener, most int) *gate {
	g := &gate{Listener: ln, most: most, where: make(map[*gated]*list.Element)}
	g.room.L = &g.mu
	return g
}

// Accept returns the next connection once there is room for it.
func (g *gate) Accept() (net.Conn, error) {
	c, err := g.Listener.Accept()
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.open >= g.most && !g.shut {
		longest := g.idle.Front()
		if longest == nil {
			g.room.Wait()
			continue
		}
		gc := longest.Value.(*gated)
		g.busy(gc)
		g.mu.Unlock()
		gc.Close()
		g.mu.Lock()
	}
	if g.shut {
		c.Close()
		return nil, net.ErrClosed
	}
	g.open++
	return &gated{Conn: c, gate: g}, nil
}

// Close stops Accept.
func (g *gate) Close() error {
	g.mu.Lock()
	g.shut = true
	g.room.Broadcast()
	g.mu.Unlock()
	return g.Listener.Close()
}

// closeIdle closes the connections that no call is running on.
func (g *gate) closeIdle() {
	g.mu.Lock()
	var idle []*gated
	for gc := range g.where {
		idle = append(idle, gc)
	}
	g.mu.Unlock()
	for _, gc := range idle {
		gc.Close()
	}
}

// watch is net/http's ConnState hook. A connection that has said nothing yet
// is as idle as one between two calls.
func (g *gate) watch(c net.Conn, state http.ConnState) {
	gc := c.(*gated)
	g.mu.Lock()
	defer g.mu.Unlock()
	switch state {
	case http.StateNew, http.StateIdle:
		g.where[gc] = g.idle.PushBack(gc)
		g.room.Signal()
	default:
		g.busy(gc)
	}
}

func (g *gate) busy(gc *gated) {
	if e, ok := g.where[gc]; ok {
		g.idle.Remove(e)
		delete(g.where, gc)
	}
}

// Close makes room for another connection.
func (gc *gated) Close() error {
	gc.once.Do(func() {
		gc.gate.mu.Lock()
		gc.gate.open--
		gc.gate.busy(gc)
		gc.gate.room.Signal()
		gc.gate.mu.Unlock()
	})
	return gc.Conn.Close()
}
