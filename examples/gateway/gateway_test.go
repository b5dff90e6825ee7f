package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/netdb/netdbtest"
	"github.com/ipamd/ipamd/routes"
	"github.com/ipamd/ipamd/server"
	"github.com/ipamd/ipamd/server/servertest"
	"github.com/ipamd/ipamd/server/socket"
)

const port = 8000

// A runner is a host with a bridge, and a daemon's server that can be stopped.
type runner struct {
	*testing.T
	host *nstest.NS
	book *netdb.Book
	path string
}

// serve answers on the socket until stop.
func (r *runner) serve() (stop func()) {
	r.Helper()
	s, err := server.New(servertest.Config(&servertest.Rig{Book: r.book, Log: new(servertest.Log), Board: census.NewBoard()}))
	if err != nil {
		r.Fatal(err)
	}
	ln, err := socket.Listen(r.path, 0o666, -1)
	if err != nil {
		r.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, ln) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			r.Error(err)
		}
	})
	r.Cleanup(stop)
	return stop
}

// sandbox has one that is bound, and answers with its name.
func (r *runner) sandbox(name string) *ipam.Lease {
	r.Helper()
	l := netdbtest.Reserve(r, r.book, name)
	p := r.host.Port("rt0", l.Addr.String()+"/24")
	var ln net.Listener
	var err error
	p.NS.Do(func() { ln, err = net.Listen("tcp", fmt.Sprintf("%s:%d", l.Addr, port)) })
	if err == nil {
		l, err = r.book.Bind(r.Context(), netdbtest.Who(ipam.ByClient, "test"), l.ID, 0, ipam.Binding{HostInterface: "veth-" + name})
	}
	if err != nil {
		r.Fatal(err)
	}
	hs := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "I am "+name) })}
	go func() { _ = hs.Serve(ln) }() // until it is closed
	r.Cleanup(func() { hs.Close() })
	return l
}

// end ends a lease, and its removal is confirmed.
func (r *runner) end(l *ipam.Lease) {
	r.Helper()
	l, err := r.book.Release(r.Context(), netdbtest.Who(ipam.ByClient, "test"), l.ID, "", 0)
	if err == nil {
		_, err = r.book.Confirm(r.Context(), netdbtest.Who(ipam.ByWatchdog, "removal_confirmed"), l.ID, l.Rev, nil)
	}
	if err != nil {
		r.Fatal(err)
	}
}

// A gateway sends nothing to what has ended: not when its sandbox still answers, not for a
// push that comes late, and not behind a restart of the daemon, which it outlives.
func TestGateway(t *testing.T) {
	host := nstest.New(t)
	host.Bridge("rt0", "10.8.64.1/24")
	r := &runner{t, host, netdbtest.Open(t), servertest.Socket(t)}
	who := netdbtest.Who(ipam.ByClient, "test")

	table := &routes.Table{}
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() { table.Follow(ctx, &client.Client{Socket: r.path}, nil) })
	defer following.Wait()
	defer cancel()
	g := httptest.NewServer(newGateway(table, port, func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
		host.Do(func() { conn, err = new(net.Dialer).DialContext(ctx, network, addr) })
		return conn, err
	}))
	defer g.Close()
	others := httptest.NewServer(peers(table))
	defer others.Close()

	ask := func(name string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), "GET", g.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(header, name)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	answers := func(name string, code int, says string) {
		t.Helper()
		realtest.Eventually(t, 2*time.Minute, fmt.Sprintf("%s is answered %d, %s", name, code, says), func() bool {
			got, body := ask(name)
			return got == code && strings.Contains(body, says)
		})
	}

	if code, body := ask("a"); code != http.StatusServiceUnavailable {
		t.Errorf("before the first list: %d, %s", code, body)
	}
	stop := r.serve()
	a, b := r.sandbox("a"), r.sandbox("b")
	answers("a", http.StatusOK, "I am a")
	answers("b", http.StatusOK, "I am b")
	answers("a/b", http.StatusNotFound, "no such sandbox")
	if _, err := r.book.Pause(t.Context(), who, a.ID, 0); err != nil {
		t.Fatal(err)
	}
	answers("a", http.StatusServiceUnavailable, "paused")

	// It ends, and what a peer knew of it comes late.
	r.end(a)
	answers("a", http.StatusNotFound, "no such sandbox")
	late, err := json.Marshal(routes.PushRequest{Epoch: r.book.Epoch(), Changes: []api.Change{{Revision: a.Rev, Address: a.Addr.String(), LeaseID: a.ID,
		Sandbox: a.Sandbox, UID: a.UID, Interface: a.Interface, Attempt: a.Attempt, To: api.Bound}}})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(others.URL+"/push", "application/json", strings.NewReader(string(late)))
	if err != nil {
		t.Fatal(err)
	}
	var reply routes.PushReply
	err = json.NewDecoder(resp.Body).Decode(&reply)
	resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK || reply.Newer != 0 {
		t.Errorf("the late push: %s, %+v, %v", resp.Status, reply, err)
	}
	if code, body := ask("a"); code != http.StatusNotFound {
		t.Errorf("behind a late push: %d, %s", code, body)
	}

	// The daemon restarts: what is known is served meanwhile, what was missed is not.
	stop()
	if code, body := ask("b"); code != http.StatusOK {
		t.Errorf("without a daemon: %d, %s", code, body)
	}
	r.end(b)
	r.serve()
	answers("b", http.StatusNotFound, "no such sandbox")
	resp, err = http.Get(others.URL + "/table")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if line, err := io.ReadAll(resp.Body); err != nil || !strings.HasPrefix(string(line), "epoch "+r.book.Epoch()) {
		t.Errorf("%s, %v", line, err)
	}
}
