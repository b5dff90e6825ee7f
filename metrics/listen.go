package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"golang.org/x/net/netutil"
	"golang.org/x/sys/unix"
)

const (
	scrapers     = 8                // at once; more wait
	scrapeRead   = 2 * time.Second  // of a request, which has no body
	scrapeTime   = 10 * time.Second // of an answer
	scrapeHeader = 16 << 10         // bytes
)

// A Listener answers scrapes over TCP.
type Listener struct {
	net.Listener
	log *slog.Logger
}

// Listen takes the address before anything runs, so that one that is taken or not
// this host's is reported at the start.
func Listen(at netip.AddrPort, log *slog.Logger) (*Listener, error) {
	ln, err := net.Listen("tcp", at.String())
	if errors.Is(err, unix.EAFNOSUPPORT) { // systemd's RestrictAddressFamilies, or a kernel without IPv6
		return nil, fmt.Errorf("metrics.listen: %w; the shipped unit allows no IP, and wants a drop-in: OPERATIONS.md, Configure", err)
	} else if err != nil {
		return nil, fmt.Errorf("metrics.listen: %w", err)
	}
	if at.Addr().Unmap().IsUnspecified() {
		log.Warn("metrics can be read from every network that reaches this machine", "listen", at.String(),
			"next", "give metrics.listen one address, or let a firewall decide who reads them")
	}
	return &Listener{ln, log}, nil
}

// Close stops listening. It may be called again, and after Serve.
func (l *Listener) Close() error {
	if err := l.Listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Serve answers GET /metrics, and nothing else, with handler until ctx ends. It cuts
// what is under way then: a scrape is made again.
func (l *Listener) Serve(ctx context.Context, handler http.Handler) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", handler)
	hs := &http.Server{
		Handler: mux, ReadTimeout: scrapeRead, WriteTimeout: scrapeTime, MaxHeaderBytes: scrapeHeader,
		ErrorLog: slog.NewLogLogger(l.log.Handler(), slog.LevelDebug),
	}
	hs.SetKeepAlivesEnabled(false) // idle connections would take the scrapers' places
	defer context.AfterFunc(ctx, func() { hs.Close() })()
	l.log.Info("metrics can be read", "listen", l.Addr())
	if err := hs.Serve(netutil.LimitListener(l.Listener, scrapers)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("metrics.listen: %w", err)
	}
	return nil
}
