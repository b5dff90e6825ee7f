package main

import (
	"context"
	"sync"

	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
)

// A gate holds passes, which read the book first, before they begin. The zero
// value is open.
type gate struct {
	mu   sync.Mutex
	shut chan struct{} // nil: open
	met  bool          // a call waits before it
}

func (g *gate) pass() {
	g.mu.Lock()
	shut := g.shut
	g.met = shut != nil
	g.mu.Unlock()
	if shut != nil {
		<-shut
	}
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut == nil {
		g.shut, g.met = make(chan struct{}), false
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
		g.shut = nil
	}
}

func (g *gate) holds() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.met
}

// A gatedBook is read by passes when its gate is open.
type gatedBook struct {
	*netdb.Book
	gate *gate
}

func (b gatedBook) Leases() ([]*ipam.Lease, int64) {
	b.gate.pass()
	return b.Book.Leases()
}

// holdPasses waits until no pass is under way, and lets none begin before goOn:
// what a test makes meanwhile meets a pass all at once, or an allocation first,
// however late those come. No other may ask for a pass in between.
func (w *world) holdPasses() (goOn func()) {
	w.t.Helper()
	w.gate.close()
	w.program.reconciler.Kick()
	realtest.Eventually(w.t, wait, "the passes to be held", w.gate.holds)
	return w.gate.open
}

// watched restarts the daemon, and returns when its watchdog has read all that
// is there. A container that goes before that was never there for it, and its
// lease stays for the reconciler.
func (w *world) watched() {
	w.t.Helper()
	w.stopDaemon()
	w.start()
	alive, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if err := w.program.watchdog.Alive(alive); err != nil { // its loop begins with a reading
		w.t.Fatal(err)
	}
}
