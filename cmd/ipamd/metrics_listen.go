package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/netutil"
)

// metricsConfig is where metrics can be read beside the socket, which always
// has them.
type metricsConfig struct {
	Listen string `toml:"listen" comment:"A TCP address on which /metrics, and nothing else, can be read by whoever reaches it, like\n'127.0.0.1:9713'. A port alone, ':9713', is on 127.0.0.1. Empty: there is none."`
}

// addrPort reads the address; the zero value is none. Names are refused: what
// they stand for can change between the check and the start.
func (m metricsConfig) addrPort() (netip.AddrPort, error) {
	if m.Listen == "" {
		return netip.AddrPort{}, nil
	}
	if port, ok := strings.CutPrefix(m.Listen, ":"); ok {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return netip.AddrPort{}, fmt.Errorf("%.40q has no port from 0 to 65535", m.Listen)
		}
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(n)), nil
	}
	at, err := netip.ParseAddrPort(m.Listen)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%.80q is no address with a port, like '127.0.0.1:9713' or '[::1]:9713'", m.Listen)
	}
	return at, nil
}

func (m metricsConfig) check(ps *problems) {
	if _, err := m.addrPort(); err != nil {
		ps.add("metrics.listen", "%v", err)
	}
}

const (
	scrapers     = 8                // at once; more wait
	scrapeRead   = 2 * time.Second  // of a request, which has no body
	scrapeTime   = 10 * time.Second // of an answer
	scrapeHeader = 16 << 10         // bytes
)

// listenForScrapes takes the address before anything runs, so that one that
// is taken or not this host's is told at the start.
func (p *program) listenForScrapes(context.Context) error {
	at, err := p.cfg.Metrics.addrPort()
	if err != nil || !at.IsValid() {
		return err
	}
	ln, err := net.Listen("tcp", at.String())
	if err != nil {
		return fmt.Errorf("metrics.listen: %w", err)
	}
	p.scrapes = ln
	if at.Addr().Unmap().IsUnspecified() {
		p.log.Warn("metrics can be read from every network that reaches this machine", "listen", at.String(),
			"next", "give metrics.listen one address, or let a firewall decide who reads them")
	}
	p.onClose(func() error {
		if err := ln.Close(); !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	})
	return nil
}

// serveScrapes answers on metrics.listen until ctx ends. It cuts what is under
// way then: a scrape is made again.
func (p *program) serveScrapes(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", p.caughtUp(p.metrics.handler()))
	hs := &http.Server{
		Handler: mux, ReadTimeout: scrapeRead, WriteTimeout: scrapeTime, MaxHeaderBytes: scrapeHeader,
		ErrorLog: slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
	}
	hs.SetKeepAlivesEnabled(false) // idle connections would take the scrapers' places
	defer context.AfterFunc(ctx, func() { hs.Close() })()
	p.log.Info("metrics can be read", "listen", p.scrapes.Addr())
	if err := hs.Serve(netutil.LimitListener(p.scrapes, scrapers)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("metrics.listen: %w", err)
	}
	return nil
}
