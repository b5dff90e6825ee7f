package client

import (
	"context"
	"io"
	"net/url"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client/answer"
)

// Whois returns everything that is known about an address.
func (c *Client) Whois(ctx context.Context, addr string) (*api.WhoisReply, error) {
	return call[api.WhoisReply](ctx, c, "whois "+addr, "GET", "/v1/addresses/"+url.PathEscape(addr), nil)
}

// Quarantine quarantines an address by hand. It needs the role admin.
func (c *Client) Quarantine(ctx context.Context, addr, reason string) (*api.LeaseReply, error) {
	return call[api.LeaseReply](ctx, c, "quarantine "+addr, "POST", "/v1/addresses/"+url.PathEscape(addr)+"/quarantine",
		api.QuarantineRequest{Reason: reason})
}

// Clear lets a quarantined address cool. It needs the role admin.
func (c *Client) Clear(ctx context.Context, addr string) (*api.LeaseReply, error) {
	return call[api.LeaseReply](ctx, c, "clear "+addr, "POST", "/v1/addresses/"+url.PathEscape(addr)+"/clear", nil)
}

// Adopt gives a quarantined address to the sandbox that lives with it, on a
// person's word. It needs the role admin.
func (c *Client) Adopt(ctx context.Context, addr string, ask api.AdoptRequest) (*api.LeaseReply, error) {
	return call[api.LeaseReply](ctx, c, "adopt "+addr, "POST", "/v1/addresses/"+url.PathEscape(addr)+"/adopt", ask)
}

// Status returns what a person wants first.
func (c *Client) Status(ctx context.Context) (*api.Status, error) {
	return call[api.Status](ctx, c, "read the status", "GET", "/v1/status", nil)
}

// Doctor returns every disagreement of book, wire and runtime.
func (c *Client) Doctor(ctx context.Context) (*api.DoctorReply, error) {
	return call[api.DoctorReply](ctx, c, "ask the doctor", "GET", "/v1/doctor", nil)
}

// Reconcile makes a pass now and returns its report; it may take as long as
// [api.LongestPass]. A step that failed or was held is no error: it is in the
// report. It needs the role admin.
func (c *Client) Reconcile(ctx context.Context, ask api.ReconcileRequest) (*api.ReconcileReply, error) {
	return call[api.ReconcileReply](ctx, c, "reconcile", "POST", "/v1/reconcile", ask)
}

// AdoptBook takes over a book that is another runner's, where the request names its
// epoch; without one it says what that would do, and does nothing. It needs the role
// admin.
func (c *Client) AdoptBook(ctx context.Context, ask api.AdoptBookRequest) (*api.AdoptBookReply, error) {
	return call[api.AdoptBookReply](ctx, c, "adopt the book", "POST", "/v1/book/adopt", ask)
}

// Backup has the daemon copy its book to a file of its machine, and returns when that is
// durable; it may take as long as [api.LongestPass]. It needs the role admin.
func (c *Client) Backup(ctx context.Context, ask api.BackupRequest) (*api.BackupReply, error) {
	return call[api.BackupReply](ctx, c, "back up the book", "POST", "/v1/book/backup", ask)
}

// CheckBook has the daemon walk every invariant of its book while changes go on; what is
// broken is no error: it is in the reply. It may take as long as [api.LongestPass]. It
// needs the role admin.
func (c *Client) CheckBook(ctx context.Context) (*api.CheckBookReply, error) {
	return call[api.CheckBookReply](ctx, c, "check the book", "GET", "/v1/book/check", nil)
}

// Version returns the daemon's version, not the client's.
func (c *Client) Version(ctx context.Context) (*api.VersionReply, error) {
	return call[api.VersionReply](ctx, c, "read the version", "GET", "/v1/version", nil)
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
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, answer.Unread(doing, err)
	}
	return answer.Health(doing, resp.Status, resp.Header.Get("Retry-After"), body)
}
