package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client/answer"
)

// A daemon is asked as package client asks it, and what it answers means the same; only the
// way there is shorter.
type daemon struct{ socket string }

func (c *config) daemon() daemon {
	path, _ := c.socket()
	return daemon{path}
}

// socket is where the daemon listens, and what says so.
func (c *config) socket() (path string, from source) {
	const other = "IPAMD_SOCKET"
	if c.ipam.Socket != "" {
		return c.ipam.Socket, keyed(c.key("socket"))
	}
	return cmp.Or(os.Getenv(other), api.DefaultSocket), variable(other)
}

// mostSocket is how many bytes a socket's path may have: a zero follows them.
const mostSocket = len(unix.RawSockaddrUnix{}.Path) - 1

// socketCannotBe is the error of a path at which no daemon can ever be reached. One at which no
// socket is by now is none: the daemon may be down.
func (c *config) socketCannotBe() error {
	path, from := c.socket()
	switch {
	case !filepath.IsAbs(path):
		return from.wrong(fmt.Sprintf("is %q, and has to be an absolute path", path))
	case len(path) > mostSocket:
		return from.wrong(fmt.Sprintf("has %d bytes, and the path of a socket has at most %d", len(path), mostSocket))
	}
	return nil
}

// call asks, and decodes a success. doing is what an error begins with.
func call[T any](ctx context.Context, d daemon, doing, method, path string, ask any) (*T, error) {
	var body []byte
	if ask != nil {
		var err error
		if body, err = json.Marshal(ask); err != nil {
			return nil, err
		}
	}
	r, err := exchange(ctx, d.socket, method, path, body)
	if err != nil {
		return nil, answer.Unreached(doing, d.socket, err)
	}
	if r.refused() {
		return nil, answer.Refusal(doing, r.status, r.after, r.body)
	}
	into := new(T)
	if err := answer.Read(doing, r.body, into); err != nil {
		return nil, err
	}
	return into, nil
}

func (d daemon) allocate(ctx context.Context, ask api.AllocateRequest) (*api.AllocateReply, error) {
	return call[api.AllocateReply](ctx, d, "allocate for "+ask.Sandbox, "POST", "/v1/leases", ask)
}

func (d daemon) bind(ctx context.Context, id string, where api.BindRequest) (*api.LeaseReply, error) {
	return call[api.LeaseReply](ctx, d, "bind "+id, "POST", "/v1/leases/"+url.PathEscape(id)+"/bind", where)
}

func (d daemon) release(ctx context.Context, id string, ask api.ReleaseRequest) (*api.LeaseReply, error) {
	return call[api.LeaseReply](ctx, d, "release "+id, "POST", "/v1/leases/"+url.PathEscape(id)+"/release", ask)
}

// pageOf is how many leases are asked for at once.
const pageOf = 4096

// leases lists a sandbox's, or all where sandbox is "". Pages may be of several revisions: a
// lease that was there all the time is in one of them, for it keeps its address.
func (d daemon) leases(ctx context.Context, sandbox string) (all []api.Lease, err error) {
	ask := url.Values{"limit": {strconv.Itoa(pageOf)}}
	if sandbox != "" {
		ask.Set("sandbox", sandbox)
	}
	for {
		page, err := call[api.LeaseList](ctx, d, "list leases", "GET", "/v1/leases?"+ask.Encode(), nil)
		if err != nil {
			return nil, err
		}
		if all = append(all, page.Leases...); page.Next == "" {
			return all, nil
		}
		ask.Set("after", page.Next)
	}
}

func (d daemon) pools(ctx context.Context) ([]api.Pool, error) {
	list, err := call[api.PoolList](ctx, d, "list pools", "GET", "/v1/pools", nil)
	if err != nil {
		return nil, err
	}
	return list.Pools, nil
}

// ready returns the reasons beside its error where the daemon is there and is not ready.
func (d daemon) ready(ctx context.Context) (*api.Health, error) {
	const doing = "ask for readiness"
	r, err := exchange(ctx, d.socket, "GET", "/readyz", nil)
	if err != nil {
		return nil, answer.Unreached(doing, d.socket, err)
	}
	return answer.Health(doing, r.status, r.after, r.body)
}
