package main

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// M1: a helper is killed -9 when it has made a port and is about to report it, and who asked for
// it has left. The next helper takes that port away, and none that a lease has or waits for.
func TestM1APortThatWasNeverReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	attached, err := func() (*api.LeaseReply, error) {
		p := w.helper()
		defer p.cmd.Process.Kill() //nolint:errcheck // its end is waited for by launch
		return w.client.Attach(ctx, w.allocate("attached").Leases[0].ID, api.AttachRequest{Netns: nstest.New(t).Path()})
	}()
	if err != nil {
		t.Fatal(err)
	}
	other := w.ns.Port("rt0")
	// Looks like a port of plumb's, and no owner that the book knows has it.
	w.ns.Exec("ip", "link", "add", "sb0123456789ab", "address", "fe:00:00:00:00:01", "type", "veth", "peer", "name", "elsewhere")
	before := w.rt0()

	var killed *process
	ready := make(chan struct{})
	killed = w.helperBehind(func() bool { // the report never arrives, for its sender dies of it
		<-ready
		_ = killed.cmd.Process.Kill()
		return false
	})
	close(ready)

	given := w.allocate("left").Leases[0]
	asks, leave := context.WithCancel(ctx)
	answered := make(chan error, 1)
	guest := nstest.New(t)
	go func() {
		_, err := w.client.Attach(asks, given.ID, api.AttachRequest{Netns: guest.Path()})
		answered <- err
	}()
	realtest.Eventually(t, wait, "a port is made, and the helper is killed", func() bool {
		select {
		case <-killed.done:
			return w.rt0() != before
		default:
			return false
		}
	})
	leave()
	if err := <-answered; err == nil {
		t.Fatal("an attach was answered that was not reported")
	}
	made := w.rt0()
	// While its lease waits for a bind, its owner may ask again.
	p := w.helper()
	if is := w.rt0(); is != made {
		t.Errorf("a port whose lease is reserved was taken away: %s, was %s", is, made)
	}
	_ = p.cmd.Process.Kill()
	<-p.done
	if _, err := w.client.Release(ctx, given.ID, api.ReleaseRequest{}); err != nil {
		t.Fatal(err)
	}
	w.helper()
	realtest.Eventually(t, wait, "the port is taken away", func() bool { return w.rt0() == before })
	if is := w.rt0(); !strings.Contains(is, attached.Lease.HostInterface) || !strings.Contains(is, other.HostName) || !strings.Contains(is, "sb0123456789ab") {
		t.Errorf("left are %s", is)
	}
	realtest.Eventually(t, wait, "its address to have no lease", func() bool {
		l, err := w.client.Lease(ctx, given.ID)
		return err != nil || l.Lease.State != api.Releasing && l.Lease.State != api.Reserved
	})
}

// helperBehind starts a helper whose reports pass by report, which says whether they go on to
// the daemon.
func (w *world) helperBehind(report func() bool) (p *process) {
	w.t.Helper()
	socket := filepath.Join(w.t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		w.t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "ipamd"})
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	proxy.Transport = &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", w.cfg.Socket.Path)
	}}
	server := &http.Server{Handler: http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/done") || report() {
			proxy.ServeHTTP(out, r)
		}
	})}
	go func() { _ = server.Serve(listener) }()
	w.t.Cleanup(func() { server.Close() })
	w.ns.Do(func() { p = launch(w.t, w.t.TempDir(), "plumb", "--socket", socket) })
	realtest.Eventually(w.t, wait, "the helper to ask for work", func() bool {
		s, err := w.client.Status(ctx)
		return err == nil && s.Plumb.Ready
	})
	return p
}

// M1: an attach of an interface with an address of each family binds both of its leases, or
// neither where one of them was released in between.
func TestM1AttachBindsBothFamilies(t *testing.T) {
	t.Parallel()
	w := dual(t)
	give := func(name string) []api.Lease {
		r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: name, Family: api.Dual})
		if err != nil || len(r.Leases) != 2 {
			t.Fatalf("allocate %s: %+v, %v", name, r, err)
		}
		return r.Leases
	}
	lease := func(id string) api.Lease {
		r, err := w.client.Lease(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		return r.Lease
	}
	before := w.rt0()
	halved, second := give("halved"), make(chan string, 2)
	second <- halved[1].ID
	w.helperBehind(func() bool {
		select {
		case id := <-second:
			if _, err := w.client.Release(ctx, id, api.ReleaseRequest{}); err != nil {
				t.Errorf("release: %v", err)
			}
		default:
		}
		return true
	})
	if _, err := w.client.Attach(ctx, halved[0].ID, api.AttachRequest{Netns: nstest.New(t).Path()}); err == nil {
		t.Error("an interface was attached, and one of its two addresses was released")
	}
	if l := lease(halved[0].ID); l.State != api.Reserved || l.HostInterface != "" || l.Netns != "" {
		t.Errorf("one of two was bound: %+v", l)
	}
	realtest.Eventually(t, wait, "its port is taken away", func() bool { return w.rt0() == before })

	for i, ids := range [][]api.Lease{give("a"), give("b")} { // whichever of the two is named
		if _, err := w.client.Attach(ctx, ids[i].ID, api.AttachRequest{Netns: nstest.New(t).Path()}); err != nil {
			t.Fatal(err)
		}
		v4, v6 := lease(ids[0].ID), lease(ids[1].ID)
		if v4.State != api.Bound || v6.State != api.Bound || v4.HostInterface == "" || v4.HostInterface != v6.HostInterface || v4.MAC != v6.MAC || v4.Netns != v6.Netns {
			t.Errorf("bound are %+v and %+v", v4, v6)
		}
	}
}

// M1: an allocation whose namespace has IPv6 switched off is refused, and what it was given was
// never on the bridge: its addresses are free at once, and do not rest.
func TestM1AttachWhereIPv6IsOff(t *testing.T) {
	t.Parallel()
	w := dual(t)
	w.helper()
	off := nstest.New(t)
	off.Exec("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1")
	_, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "off", Family: api.Dual, Attach: &api.AttachRequest{Netns: off.Path()}})
	if !errors.Is(err, client.ErrInvalidArgument) || !strings.Contains(err.Error(), "attach.netns: ") || !strings.Contains(err.Error(), "disable_ipv6") {
		t.Errorf("attached where IPv6 is off: %v", err)
	}
	all, err := w.client.Leases(ctx, client.LeaseFilter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range all.Leases {
		if l.Sandbox == "off" {
			t.Errorf("%s is %s", l.Address, l.State)
		}
	}
}
