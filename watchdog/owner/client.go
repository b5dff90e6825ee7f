// Package owner asks the sandbox runtime about its sandboxes, over HTTP/1.1
// on a unix socket of the runtime's own.
//
// The runtime answers two questions:
//
//	GET /sandboxes        [{"id": "job-17", "state": "valid"}, ...]
//	GET /sandboxes/{id}   {"id": "job-17", "state": "gone"}
//
// The list may lag behind; the answer about one sandbox may not. A state is
// "valid" or "gone". Of a sandbox that it does not know any more the runtime says
// "gone" with the id, with status 200, 404 or 410: an answer that does not name
// what it is about proves nothing. The id in the path is escaped, so it may hold
// any byte.
// Members that are not named here are left alone. examples/owner is a server
// to start from.
//
// What it guarantees: only an answer that arrived whole and names the sandbox can
// say that it is gone. A time-out, a bare 404, a broken answer, a word of the future are
// [watchdog.Unknown], and that always comes with an error that says why.
//
// No user is believed but root, the daemon's own user and [Config.UIDs], on a socket
// in a folder that no other user may write to.
//
// It never reports to the runtime, and it decides nothing.
package owner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/ipamd/ipamd/watchdog"
)

var _ watchdog.Owner = (*Client)(nil)

// Config says whom to ask. Only UIDs and OnLookup may be left out.
type Config struct {
	Socket  string        // path of the runtime's unix socket
	UIDs    []uint32      // users, beside root and the daemon's own, that may answer
	Timeout time.Duration // of each question, its whole answer included
	// OnLookup is given what each [Client.Look] came to, before it returns. It
	// is called by every caller of Look at once.
	OnLookup func(watchdog.Verdict)
}

// A Client asks one owner. Its methods are safe for concurrent use;
// connections are kept alive and shared.
type Client struct {
	cfg  Config
	http http.Client
	wire *http.Transport
}

// Bounds of what an owner may make us read.
const (
	listBytes   = 64 << 20
	oneBytes    = 1 << 20
	headerBytes = 64 << 10
	keepIdle    = 16
	idleTime    = time.Minute
)

// New checks cfg. It makes no call, and the socket may be missing still.
func New(cfg Config) (*Client, error) {
	switch {
	case cfg.Socket == "":
		return nil, errors.New("configure the owner: no socket is named")
	case cfg.Timeout <= 0:
		return nil, errors.New("configure the owner: a question needs a timeout")
	}
	if cfg.OnLookup == nil {
		cfg.OnLookup = func(watchdog.Verdict) {}
	}
	c := &Client{cfg: cfg}
	c.wire = &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return c.dial(ctx)
		},
		MaxIdleConnsPerHost:    keepIdle,
		IdleConnTimeout:        idleTime,
		MaxResponseHeaderBytes: headerBytes,
		DisableCompression:     true, // what counts is that the bytes are whole
	}
	c.http = http.Client{
		Transport:     c.wire,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

// Close closes the connections that no question is using. The client can
// still ask.
func (c *Client) Close() error {
	c.wire.CloseIdleConnections()
	return nil
}

// List reads the owner's whole list. It may lag. A list that is not whole, or
// that holds what cannot be understood but for an unknown state, is an error.
func (c *Client) List(ctx context.Context) ([]watchdog.Owned, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	reply, err := c.get(ctx, "/sandboxes", listBytes)
	if err != nil {
		return nil, fmt.Errorf("list the owner's sandboxes: %w", err)
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("list the owner's sandboxes: it answered %s", reply.Status)
	}
	list, err := decodeList(reply.Body)
	if err != nil {
		return nil, fmt.Errorf("list the owner's sandboxes: %w", err)
	}
	return list, nil
}

// Look asks about one sandbox. The answer is the owner's last word: it does
// not lag. [watchdog.Unknown] and an error go together.
func (c *Client) Look(ctx context.Context, sandbox string) (watchdog.Verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	v, err := watchdog.Unknown, errors.New("it has no name")
	if sandbox != "" {
		v, err = judge(sandbox, c.look(ctx, sandbox))
	}
	c.cfg.OnLookup(v)
	if err != nil {
		return v, fmt.Errorf("ask the owner about sandbox %q: %w", sandbox, err)
	}
	return v, nil
}

func (c *Client) look(ctx context.Context, sandbox string) answer {
	reply, err := c.get(ctx, "/sandboxes/"+escape(sandbox), oneBytes)
	if err != nil {
		return answer{err: err}
	}
	defer reply.Body.Close()
	a := answer{status: reply.StatusCode}
	a.body, a.err = io.ReadAll(reply.Body)
	return a
}

// get returns an answer whose body ends with an error when it is cut off or
// larger than most.
func (c *Client) get(ctx context.Context, path string, most int64) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://owner"+path, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	reply, err := c.http.Do(r)
	if wrapped := new(url.Error); errors.As(err, &wrapped) {
		err = cmp.Or(ctx.Err(), wrapped.Err) // without the address, which is made up
	}
	if err != nil {
		return nil, err
	}
	reply.Body = http.MaxBytesReader(nil, reply.Body, most)
	return reply, nil
}

// escape makes one segment of a path from any name. Dots are what
// url.PathEscape leaves and servers take for a way up.
func escape(name string) string {
	if strings.Trim(name, ".") == "" {
		return strings.ReplaceAll(name, ".", "%2E")
	}
	return url.PathEscape(name)
}
