package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client/answer"
)

// A Client speaks with one ipamd. Its zero value uses the socket that the
// environment variable IPAMD_SOCKET names, else [api.DefaultSocket]. All methods are safe for concurrent use; connections are kept alive and
// shared. A Client must not be copied once it was used. It has a method for each verb of the socket.
type Client struct {
	// Socket is the path of ipamd's unix socket. It must not change once the
	// client was used.
	Socket string

	once sync.Once
	http *http.Client
}

// keepIdle is how many connections stay open between calls, and idleTime for
// how long: less than the daemon's own, so that no call meets a connection
// that the daemon is closing.
const (
	keepIdle = 64
	idleTime = time.Minute
)

func (c *Client) socket() string {
	return cmp.Or(c.Socket, os.Getenv("IPAMD_SOCKET"), api.DefaultSocket)
}

func (c *Client) transport() *http.Client {
	c.once.Do(func() {
		c.http = &http.Client{Transport: &http.Transport{
			DialContext:         c.dial,
			MaxIdleConnsPerHost: keepIdle,
			IdleConnTimeout:     idleTime,
			DisableCompression:  true,
		}}
	})
	return c.http
}

// dial waits while the socket's backlog is full, as connect(2) does on a
// blocking socket: the daemon is there, and others came first.
func (c *Client) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	const longest = 50 * time.Millisecond
	for pause := time.Millisecond; ; pause = min(2*pause, longest) {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", c.socket())
		if !errors.Is(err, syscall.EAGAIN) {
			return conn, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// CloseIdleConnections closes the connections that no call is using. The
// client stays usable.
func (c *Client) CloseIdleConnections() { c.transport().CloseIdleConnections() }

// call asks, and decodes a success. doing is what an error starts with: the verb and
// what it is about.
func call[T any](ctx context.Context, c *Client, doing, method, path string, ask any) (*T, error) {
	resp, err := c.send(ctx, method, path, ask)
	if err != nil {
		return nil, c.explain(doing, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body) // to its end, without which the connection is not used again
	reply := new(T)
	switch {
	case err != nil:
		return nil, answer.Unread(doing, err)
	case resp.StatusCode >= 300:
		return nil, refusal(doing, resp, body)
	}
	if err := answer.Read(doing, body, reply); err != nil {
		return nil, err
	}
	return reply, nil
}

func refusal(doing string, resp *http.Response, body []byte) error {
	return answer.Refusal(doing, resp.Status, resp.Header.Get("Retry-After"), body)
}

// explain says what a call that never reached a daemon means.
func (c *Client) explain(doing string, err error) error {
	if wrapped := new(url.Error); errors.As(err, &wrapped) {
		err = wrapped.Err // its own text names a URL that was not dialled
	}
	return answer.Unreached(doing, c.socket(), err)
}

func (c *Client) send(ctx context.Context, method, path string, ask any) (*http.Response, error) {
	var body bytes.Buffer
	if ask != nil {
		if err := json.NewEncoder(&body).Encode(ask); err != nil {
			return nil, err
		}
	}
	// The host is for HTTP's sake; the socket decides who answers.
	req, err := http.NewRequestWithContext(ctx, method, "http://ipamd"+path, &body)
	if err != nil {
		return nil, err
	}
	// net/http may not ask again by itself, though every verb may be asked twice:
	// when the second try finds no daemon, its error would say that nothing was done.
	return c.transport().Do(req)
}

// query adds the parameters that are set.
func query(path string, pairs ...string) string {
	q := make(url.Values)
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}
