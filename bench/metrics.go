package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
)

// commits is how many commits the daemon's book has made since its start.
func (d *daemon) commits(ctx context.Context) (float64, error) {
	const name = "ipamd_book_commit_seconds_count "
	c := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", d.client.Socket)
	}}}
	defer c.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://ipamd/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), name); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("read the metrics: no %s: %w", name, lines.Err())
}
