package admission

import (
	"net"
	"net/http"
	"path/filepath"
	"testing"
)

// TestListenerBegin: on a connection that was chosen to be closed no call begins,
// and one on which a call has begun is not chosen.
func TestListenerBegin(t *testing.T) {
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	whose := make(chan Holder, 1)
	g := NewListener(ln, 3, func(net.Conn) *Peer { return &Peer{Holder: <-whose} })
	defer g.Close()
	next := func(h Holder) *Conn {
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
		g.Watch(in, http.StateNew)
		return in.(*Conn)
	}
	a, b := Holder{UID: 1}, Holder{UID: 2}
	other, busy, half := next(b), next(a), next(a)
	if !busy.Begin() {
		t.Error("a call may not begin on a connection that is not closed")
	}
	g.Watch(half, http.StateActive)
	third := next(a)
	if half.Begin() {
		t.Error("a call begins on a connection that was closed")
	}
	if !other.Begin() || !third.Begin() {
		t.Error("the wrong connection was closed")
	}
	g.Watch(busy, http.StateIdle)
	next(b)
	if busy.Begin() || !third.Begin() {
		t.Error("not the one that had no call was closed")
	}
	for _, c := range []*Conn{other, busy, half, third} {
		c.Close()
		g.Watch(c, http.StateIdle) // what net/http may still say of it
		c.Close()
	}
	if len(g.open) != 1 {
		t.Errorf("%d open, want the last one", len(g.open))
	}
}
