package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"
)

const (
	scrapers     = 8                // at once; more wait
	scrapeRead   = 2 * time.Second  // of a request, which has no body
	scrapeTime   = 10 * time.Second // of an answer
	scrapeHeader = 16 << 10         // bytes
)

// listenForScrapes takes the address before anything runs, so that one that
// is taken or not this host's is told at the start.
func (p *program) listenForScrapes(context.Context) error {
	at, err := p.cfg.Metrics.AddrPort()
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
