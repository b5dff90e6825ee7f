package docker

import (
	"context"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/server/servertest"
)

// N8: an address whose bind is not answered before Docker's request is over is given back: no container
// comes with its MAC, and the next request is another owner's.
func TestN8AnAddressWhoseBindIsNotAnswered(t *testing.T) {
	rig := servertest.Start(t)
	behind := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "ipamd"}) },
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", rig.Socket)
		}},
	}
	socket := servertest.Socket(t)
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/bind") {
			behind.ServeHTTP(new(lost), r) // it stands, and nobody hears of it
			<-r.Context().Done()
			return
		}
		behind.ServeHTTP(w, r)
	})}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })

	d := &Driver{Client: &client.Client{Socket: socket}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	pools, err := d.Client.Pools(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if l, err := d.give(ctx, &pools.Pools[0], "id", "02:42:00:00:00:01", netip.Addr{}); err == nil {
		t.Fatalf("given without an answer: %+v", l)
	}
	rows, _ := rig.Book.Leases()
	for _, l := range rows {
		if l.State.Open() {
			t.Errorf("%s is %s by %s", l.Addr, l.State, l.Sandbox)
		}
	}
	if len(rows) != 1 || rows[0].State != ipam.Releasing && rows[0].State != ipam.Cooling {
		t.Errorf("the book has %+v", rows)
	}
}

// lost is an answer that is not delivered.
type lost struct{ header http.Header }

func (l *lost) Header() http.Header {
	if l.header == nil {
		l.header = make(http.Header)
	}
	return l.header
}
func (*lost) Write(b []byte) (int, error) { return len(b), nil }
func (*lost) WriteHeader(int)             {}
