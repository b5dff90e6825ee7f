package server

import (
	"net"
	"net/http"
	"path/filepath"
	"testing"
)

// TestGateBegin: on a connection that was chosen to be closed no call begins,
// and one on which a call has begun is not chosen.
func TestGateBegin(t *testing.T) {
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	whose := make(chan holder, 1)
	g := newGate(ln, 3, func(net.Conn) *peer { return &peer{holder: <-whose} })
	defer g.Close()
	next := func(h holder) *gated {
		t.Helper()
		c, err := net.Dial("unix", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		whose <- h
		in, err := g.Accept()
		if err != nil {
			t.Fatal(err)
		}
		g.watch(in, http.StateNew)
		return in.(*gated)
	}
	a, b := holder{uid: 1}, holder{uid: 2}
	other, busy, half := next(b), next(a), next(a)
	if !busy.begin() {
		t.Error("a call may not begin on a connection that nobody closes")
	}
	g.watch(half, http.StateActive)
	third := next(a)
	if half.begin() {
		t.Error("a call begins on a connection that was closed")
	}
	if !other.begin() || !third.begin() {
		t.Error("the wrong connection was closed")
	}
	g.watch(busy, http.StateIdle)
	next(b)
	if busy.begin() || !third.begin() {
		t.Error("not the one that had no call was closed")
	}
	for _, c := range []*gated{other, busy, half, third} {
		c.Close()
		g.watch(c, http.StateIdle) // what net/http may still say of it
		c.Close()
	}
	if g.open != 1 || len(g.crowds) != 1 {
		t.Errorf("%d open of %d holders, want the last one", g.open, len(g.crowds))
	}
}
