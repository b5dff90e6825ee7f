package server_test

import (
	"encoding/json"
	"net"
	"net/http"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/server/servertest"
)

// BenchmarkEcho is the yardstick: what a JSON call over a unix socket costs
// with net/http and nothing behind it. What BenchmarkExisting takes above it,
// the server takes: judging, strict decoding, a look into the book, a whole
// lease to encode.
func BenchmarkEcho(b *testing.B) {
	socket := servertest.Socket(b)
	ln, err := net.Listen("unix", socket)
	if err != nil {
		b.Fatal(err)
	}
	hs := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var ask api.AllocateRequest
		if err := json.NewDecoder(r.Body).Decode(&ask); err != nil {
			b.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(&api.AllocateReply{Leases: []api.Lease{{Sandbox: ask.Sandbox}}}); err != nil {
			b.Error(err)
		}
	})}
	go hs.Serve(ln)
	defer hs.Close()
	c := &client.Client{Socket: socket}
	defer c.CloseIdleConnections()
	for b.Loop() {
		if _, err := c.Allocate(b.Context(), api.AllocateRequest{Sandbox: "a"}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkExisting(b *testing.B) {
	c := &client.Client{Socket: servertest.Start(b).Socket}
	defer c.CloseIdleConnections()
	for b.Loop() {
		if _, err := c.Allocate(b.Context(), api.AllocateRequest{Sandbox: "a"}); err != nil {
			b.Fatal(err)
		}
	}
}
