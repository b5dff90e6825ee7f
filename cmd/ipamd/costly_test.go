package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ipamd/ipamd/api"
)

// typical is the median time of an allocation, each with its release.
func typical(t *testing.T, w *world, calls int) time.Duration {
	t.Helper()
	took := make([]time.Duration, calls)
	for i := range took {
		began := time.Now()
		l := w.allocate(fmt.Sprint("typical-", i)).Leases[0]
		took[i] = time.Since(began)
		if _, err := w.client.Release(ctx, l.ID, api.ReleaseRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(took)
	return took[calls/2]
}

// G14: peers that ask without a pause for all that costs much, sixty-four for a
// diagnosis and as many for a status and the rest, leave the others their part of
// the machine. Without bounds an allocation takes hundreds of times as long.
func TestG14CostlyReadersSlowNoOther(t *testing.T) {
	w := newWorld(t, pool("10.8.64.0/20"))
	var fill errgroup.Group
	fill.SetLimit(32)
	for i := range 2000 {
		fill.Go(func() error {
			_, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: fmt.Sprint("s", i)})
			return err
		})
	}
	if err := fill.Wait(); err != nil {
		t.Fatal(err)
	}
	quiet := typical(t, w, 50)
	asking, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer func() { stop(); all.Wait() }()
	readers := http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", w.cfg.Socket.Path)
	}}}
	defer readers.CloseIdleConnections()
	for path, callers := range map[string]int{"/v1/doctor": 64, "/v1/status": 64, "/v1/addresses/10.8.64.9": 16, "/metrics": 16, "/v1/changes": 2, "/v1/leases": 2} {
		for range callers {
			all.Go(func() {
				for asking.Err() == nil {
					req, err := http.NewRequestWithContext(asking, "GET", "http://ipamd"+path, nil)
					if err != nil {
						t.Error(err)
						return
					}
					resp, err := readers.Do(req)
					if err != nil {
						continue // it is over
					}
					if _, err := io.Copy(io.Discard, resp.Body); err == nil && resp.StatusCode != http.StatusOK {
						t.Errorf("%s: %s", path, resp.Status)
						return
					}
					resp.Body.Close()
				}
			})
		}
	}
	beside := typical(t, w, 50)
	t.Logf("an allocation takes %v, and %v beside readers", quiet, beside)
	if beside > max(50*quiet, time.Second) {
		t.Errorf("an allocation takes %v, and %v beside readers", quiet, beside)
	}
}
