package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/ipamd/ipamd/api"
)

// Whois returns everything that is known about an address.
func (c *Client) Whois(ctx context.Context, addr string) (*api.WhoisReply, error) {
	reply := new(api.WhoisReply)
	return got(reply, c.do(ctx, "whois "+addr, "GET", "/v1/addresses/"+url.PathEscape(addr), nil, reply))
}

// Quarantine quarantines an address by hand. It needs the role admin.
func (c *Client) Quarantine(ctx context.Context, addr, reason string) (*api.LeaseReply, error) {
	reply := new(api.LeaseReply)
	return got(reply, c.do(ctx, "quarantine "+addr, "POST", "/v1/addresses/"+url.PathEscape(addr)+"/quarantine",
		api.QuarantineRequest{Reason: reason}, reply))
}

// Clear lets a quarantined address cool. It needs the role admin.
func (c *Client) Clear(ctx context.Context, addr string) (*api.LeaseReply, error) {
	reply := new(api.LeaseReply)
	return got(reply, c.do(ctx, "clear "+addr, "POST", "/v1/addresses/"+url.PathEscape(addr)+"/clear", nil, reply))
}

// Adopt gives a quarantined address to the sandbox that lives with it, on a
// person's word. It needs the role admin.
func (c *Client) Adopt(ctx context.Context, addr string, ask api.AdoptRequest) (*api.LeaseReply, error) {
	reply := new(api.LeaseReply)
	return got(reply, c.do(ctx, "adopt "+addr, "POST", "/v1/addresses/"+url.PathEscape(addr)+"/adopt", ask, reply))
}

// Pools lists the pools and what they hold.
func (c *Client) Pools(ctx context.Context) (*api.PoolList, error) {
	reply := new(api.PoolList)
	return got(reply, c.do(ctx, "list pools", "GET", "/v1/pools", nil, reply))
}

// Status returns what a person wants first.
func (c *Client) Status(ctx context.Context) (*api.Status, error) {
	reply := new(api.Status)
	return got(reply, c.do(ctx, "read the status", "GET", "/v1/status", nil, reply))
}

// Doctor returns every disagreement of book, wire and runtime.
func (c *Client) Doctor(ctx context.Context) (*api.DoctorReply, error) {
	reply := new(api.DoctorReply)
	return got(reply, c.do(ctx, "ask the doctor", "GET", "/v1/doctor", nil, reply))
}

// Reconcile makes a pass now and returns its report; it may take as long as
// [api.LongestPass]. A step that failed or was held is no error: it is in the
// report. It needs the role admin.
func (c *Client) Reconcile(ctx context.Context, ask api.ReconcileRequest) (*api.ReconcileReply, error) {
	reply := new(api.ReconcileReply)
	return got(reply, c.do(ctx, "reconcile", "POST", "/v1/reconcile", ask, reply))
}

// Version returns the daemon's version, not the client's.
func (c *Client) Version(ctx context.Context) (*api.VersionReply, error) {
	reply := new(api.VersionReply)
	return got(reply, c.do(ctx, "read the version", "GET", "/v1/version", nil, reply))
}

// Healthy asks whether the daemon answers at all.
func (c *Client) Healthy(ctx context.Context) (*api.Health, error) {
	return c.health(ctx, "ask for health", "/healthz")
}

// Ready asks whether an allocation can succeed. When not, it returns the
// reasons and [ErrNotReady], both.
func (c *Client) Ready(ctx context.Context) (*api.Health, error) {
	return c.health(ctx, "ask for readiness", "/readyz")
}

// health reads the body of an unavailable answer too: it has the reasons.
func (c *Client) health(ctx context.Context, doing, path string) (*api.Health, error) {
	resp, err := c.send(ctx, "GET", path, nil)
	if err != nil {
		return nil, c.explain(doing, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusServiceUnavailable {
		return nil, refusal(doing, resp)
	}
	h := new(api.Health)
	if err := read(doing, resp, h); err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return h, &failure{doing: doing, class: ErrNotReady, below: fmt.Errorf("not ready: %s", strings.Join(h.Reasons, "; "))}
	}
	return h, nil
}
