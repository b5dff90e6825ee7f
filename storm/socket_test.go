package storm_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
)

// costly asks without a pause for what costs much, by 64 calls at once.
func (c *confined) costly() error {
	asking := http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", c.Socket)
	}}}
	paths := []string{"/v1/doctor", "/v1/doctor", "/v1/status", "/v1/addresses/" + anyHost(c.r).String(), "/metrics"}
	var all sync.WaitGroup
	for first := range 64 {
		all.Go(func() {
			for n := first; ; n++ {
				if resp, err := asking.Get("http://ipamd" + paths[n%len(paths)]); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				} else {
					time.Sleep(10 * time.Millisecond) // it is being started
				}
			}
		})
	}
	all.Wait()
	return nil
}

// slow asks for large listings, and reads a byte now and then.
func (c *confined) slow() error {
	var all sync.WaitGroup
	for i := range 16 {
		path := []string{"/v1/leases", "/v1/changes"}[i%2]
		all.Go(func() {
			for {
				conn, err := net.Dial("unix", c.Socket)
				if err == nil {
					_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: ipamd\r\n\r\n", path)
				}
				for buf := make([]byte, 1); err == nil; _, err = conn.Read(buf) {
					time.Sleep(20 * time.Millisecond)
				}
				time.Sleep(10 * time.Millisecond)
				if conn != nil {
					conn.Close()
				}
			}
		})
	}
	all.Wait()
	return nil
}

// until calls again and again; what is refused or not answered is tried once more.
func (c *confined) until(call func(ctx context.Context, to *client.Client) error) error {
	to := &client.Client{Socket: c.Socket}
	for {
		ctx, cancel := context.WithTimeout(context.Background(), callTime)
		if err := call(ctx, to); err != nil {
			time.Sleep(between(c.r, time.Millisecond, 20*time.Millisecond))
		}
		cancel()
	}
}

// largeLeases takes a few addresses with labels as large as they can be, six bytes
// each in JSON, and never binds them.
func (c *confined) largeLeases() error {
	const most = 20
	labels := map[string]string{"k": "\x01"}
	for i := range 4 {
		labels[fmt.Sprint(i)] = strings.Repeat("\x01", 4090)
	}
	name, n := fmt.Sprint(recordsOf, c.r.Uint64(), "-"), 0
	return c.until(func(ctx context.Context, to *client.Client) error {
		_, err := to.Allocate(ctx, api.AllocateRequest{Sandbox: fmt.Sprint(name, n%most), Labels: labels})
		n++
		return err
	})
}

// tombstones cancels attempts of sandboxes that there never were.
func (c *confined) tombstones() error {
	return c.until(func(ctx context.Context, to *client.Client) error {
		_, err := to.Cancel(ctx, api.CancelRequest{UID: fmt.Sprint(recordsOf, c.r.Uint64()), Attempt: 1})
		return err
	})
}
