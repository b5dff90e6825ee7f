package server_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/apidoc"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/netdbtest"
	"github.com/ipamd/ipamd/server/servertest"
)

// A world is a server whose book has a lease in each state.
type world struct {
	*speaker
	life       *life
	ids, addrs []string // of the leases: reserved, bound, paused, releasing, cooling, quarantined, gone
}

func newWorld(t testing.TB, doc *apidoc.Doc) *world {
	t.Helper()
	l := &life{TB: t}
	rig := servertest.Start(l)
	w := &world{life: l, speaker: &speaker{rig, doc, &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", rig.Socket)
		}}}}}
	l.Cleanup(w.http.CloseIdleConnections)
	ctx, client := context.Background(), netdbtest.Who(ipam.ByClient, "test")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"reserved", "bound", "paused", "releasing", "cooling", "quarantined", "gone"} {
		lease := netdbtest.Reserve(l, w.Book, name)
		switch name {
		case "bound", "paused", "releasing", "cooling":
			_, err := w.Book.Bind(ctx, client, lease.ID, 0, ipam.Binding{HostInterface: "veth-" + name})
			must(err)
		}
		switch name {
		case "paused":
			_, err := w.Book.Pause(ctx, client, lease.ID, 0)
			must(err)
		case "releasing":
			_, err := w.Book.Release(ctx, client, lease.ID, "", 0)
			must(err)
		case "cooling", "gone", "quarantined":
			netdbtest.Cool(l, w.Book, lease)
		}
		if name == "quarantined" {
			q, err := w.Book.Quarantine(ctx, netdbtest.Who(ipam.ByOperator, "set_aside"), lease.Addr, json.RawMessage(`[{"note":"test"}]`))
			must(err)
			lease = q
		}
		w.ids, w.addrs = append(w.ids, lease.ID), append(w.addrs, lease.Addr.String())
	}
	_, err := w.Book.Cancel(ctx, client, "cancelled", 1)
	must(err)
	seen := netip.MustParseAddr("10.8.64.200")
	w.Board.Replace(census.Netns, map[string][]census.Sighting{"3": {{Addr: seen, Witness: census.Netns, Port: "veth3"}}}, nil)
	return w
}

// end stops the server and checks the book.
func (w *world) end(t testing.TB) {
	w.life.TB = t
	w.life.end()
}

// A life is a part of a test's: what is cleaned up with it need not wait for
// the end of all inputs.
type life struct {
	testing.TB
	ends []func()
}

func (l *life) Cleanup(f func()) { l.ends = append(l.ends, f) }

func (l *life) Context() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	l.Cleanup(cancel)
	return ctx
}

func (l *life) TempDir() string {
	dir, err := os.MkdirTemp("", "ipamd-fuzz")
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (l *life) end() {
	for _, f := range slices.Backward(l.ends) {
		f()
	}
}
