package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"

	"github.com/ipamd/ipamd/routes"
)

// header names the sandbox that a request is for. Its id is opaque and compared as a
// whole; a part of a host name could not be every id.
const header = "Sandbox"

// A gateway sends each request to the address of its sandbox, at a fixed port.
type gateway struct {
	table *routes.Table
	port  uint16
	proxy *httputil.ReverseProxy
}

// newGateway makes a gateway; dial is how it reaches an address.
func newGateway(table *routes.Table, port uint16, dial func(ctx context.Context, network, addr string) (net.Conn, error)) *gateway {
	return &gateway{table: table, port: port, proxy: &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target(r.In.Context())); r.SetXForwarded() },
		// A connection that is kept outlives the route, and so may lead to another's sandbox.
		Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, fmt.Sprintf("the sandbox does not answer: %v", err), http.StatusBadGateway)
		},
	}}
}

type targetKey struct{}

func target(ctx context.Context) *url.URL { return ctx.Value(targetKey{}).(*url.URL) }

// ServeHTTP looks the sandbox up for each request. What it answers without one says
// whether to ask again: a table that is not complete yet proves nothing.
func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ready := g.table.Ready() // before the look-up: one that fails behind it has no route
	route, known := g.table.Lookup(r.Header.Get(header))
	switch {
	case !known && !ready:
		later(w, "the routes are not read yet")
	case !known:
		http.Error(w, "no such sandbox", http.StatusNotFound)
	case !route.Served():
		later(w, "the sandbox is "+string(route.State))
	default:
		to := &url.URL{Scheme: "http", Host: netip.AddrPortFrom(route.Addr, g.port).String()}
		g.proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), targetKey{}, to)))
	}
}

func later(w http.ResponseWriter, why string) {
	w.Header().Set("Retry-After", "1")
	http.Error(w, why, http.StatusServiceUnavailable)
}

// peers is what other gateways reach: they push what they know sooner than the stream
// brings it, and compare tables.
func peers(table *routes.Table) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/push", table)
	mux.HandleFunc("GET /table", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, table.Status()) })
	return mux
}
