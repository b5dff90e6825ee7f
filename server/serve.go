package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/ipamd/ipamd/server/admission"
)

// What a client may cost. A body and a reply have bodyTime and writeTime from
// their first byte on; a whole call has Config.Deadline.
const (
	headerTime  = 5 * time.Second
	bodyTime    = 5 * time.Second
	writeTime   = 10 * time.Second
	idleTime    = 2 * time.Minute
	drainTime   = 5 * time.Second
	headerBytes = 16 << 10
	bodyBytes   = 1 << 20
)

type contextKey int

const (
	connKey     contextKey = iota // of a connection: its *admission.Conn
	stoppingKey                   // of a listener: the context of Serve, which ends when it is asked to stop
)

// Serve answers on ln until ctx ends. Then it takes no more connections,
// closes the idle ones, gives running calls up to 5 s to finish, and returns
// nil. It closes ln. An error means that the listener broke.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	g := admission.NewListener(ln, s.maxConns(), s.peers.Identify)
	apart := context.WithoutCancel(ctx) // calls outlive ctx by the drain
	hs := &http.Server{
		Handler:                      s,
		ReadHeaderTimeout:            headerTime,
		IdleTimeout:                  idleTime,
		MaxHeaderBytes:               headerBytes,
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
		ConnState:                    g.Watch,
		BaseContext: func(net.Listener) context.Context {
			return context.WithValue(apart, stoppingKey, ctx)
		},
		ConnContext: func(cctx context.Context, c net.Conn) context.Context {
			return context.WithValue(cctx, connKey, c)
		},
	}
	// By itself Shutdown waits for connections that have not sent anything yet.
	closed := make(chan struct{})
	hs.RegisterOnShutdown(func() {
		defer close(closed)
		g.CloseSpare()
	})
	served := make(chan error, 1)
	go func() { served <- hs.Serve(g) }() // ends with hs, and is waited for below
	select {
	case err := <-served:
		hs.Close()
		return fmt.Errorf("serve on %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(apart, drainTime)
	defer cancel()
	if err := hs.Shutdown(drain); err != nil {
		s.cfg.Log.Warn("calls were cut at the end", "socket", ln.Addr().String(), "waited", drainTime)
		hs.Close()
	}
	<-closed
	<-served
	return nil
}
