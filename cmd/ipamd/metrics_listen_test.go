package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/doctest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// withMetrics lets the kernel choose a port.
func withMetrics(c *config.Config) { c.Metrics.Listen = ":0" }

func get(t *testing.T, method, url string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(""))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// What listens has the metrics and nothing else, changes nothing, and ends
// with the daemon. promtool finds nothing to say about what it exposes.
func TestMetricsOverTCP(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withMetrics)
	w.give("a", "10.8.64.2")
	at := w.program.scrapes.Addr().String()
	status, body := get(t, http.MethodGet, "http://"+at+"/metrics")
	if status != http.StatusOK || !strings.Contains(body, "\nipamd_allocations_total{result=\"new\"} 1\n") {
		t.Errorf("%d: %s", status, body)
	}
	if output, ok := doctest.Promtool(t, []byte(body), "check", "metrics", "--extended"); !ok || strings.Contains(output, "ipamd_") && strings.Contains(output, "error") {
		t.Errorf("promtool: %s", output)
	}
	for _, path := range []string{"/", "/v1/leases", "/v1/status", "/healthz", "/metrics/", "/debug/pprof/"} {
		if status, _ := get(t, http.MethodGet, "http://"+at+path); status != http.StatusNotFound {
			t.Errorf("GET %s: %d", path, status)
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete} {
		if status, _ := get(t, method, "http://"+at+"/metrics"); status != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d", method, status)
		}
	}
	if revision := w.scrapeOf()["revision"]; revision != w.scrapeOf()["changes_total{from=\"free\",to=\"reserved\"}"]+1 {
		t.Errorf("something was changed: revision %v", revision) // the first is the pool's
	}
	w.stopDaemon()
	if conn, err := net.Dial("tcp", at); err == nil {
		conn.Close()
		t.Error("it listens yet")
	}
}

// Without a word in the configuration nothing listens.
func TestNoMetricsOverTCPByDefault(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if w.program.scrapes != nil {
		t.Errorf("it listens on %v", w.program.scrapes.Addr())
	}
}

// Connections that ask for nothing take no scrape's place for longer than a
// request may take.
func TestIdleScrapersDoNotBlock(t *testing.T) {
	w := newWorld(t, withMetrics)
	at := w.program.scrapes.Addr().String()
	for range 2 * 8 {
		conn, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	began := time.Now()
	if status, _ := get(t, http.MethodGet, "http://"+at+"/metrics"); status != http.StatusOK {
		t.Errorf("a scrape behind them: %d", status)
	}
	t.Logf("a scrape behind %d idle connections took %v", 2*8, time.Since(began).Round(time.Millisecond))
}

// A port that another process has is reported by its name, and nothing of the daemon is
// left: not its book's lock.
func TestMetricsAddressThatIsTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	w := prepare(t, func(c *config.Config) { c.Metrics.Listen = taken.Addr().String() })
	w.ns.Bridge("rt0", "10.8.64.1/24")
	if err := w.newProgram().open(context.Background()); err == nil || !strings.Contains(err.Error(), "metrics.listen: listen tcp "+taken.Addr().String()) {
		t.Errorf("it opened: %v", err)
	}
	w.cfg.Metrics.Listen = ":0"
	w.start()
	realtest.Eventually(t, wait, "a scrape", func() bool {
		status, _ := get(t, http.MethodGet, fmt.Sprintf("http://%s/metrics", w.program.scrapes.Addr()))
		return status == http.StatusOK
	})
}
