package client

import (
	"context"
	"net/url"

	"github.com/ipamd/ipamd/api"
)

// Pools lists the pools and what they hold.
func (c *Client) Pools(ctx context.Context) (*api.PoolList, error) {
	return call[api.PoolList](ctx, c, "list pools", "GET", "/v1/pools", nil)
}

// Withheld lists the addresses that outlive their removed pools, of one pool by its name or
// uid, or of all where pool is "".
func (c *Client) Withheld(ctx context.Context, pool string) (*api.WithheldList, error) {
	return call[api.WithheldList](ctx, c, "list withheld addresses", "GET", query("/v1/withheld", "pool", pool), nil)
}

// Warm lists the warm slots of a pool, or of all where pool is "".
func (c *Client) Warm(ctx context.Context, pool string) (*api.SlotList, error) {
	path := "/v1/warm"
	if pool != "" {
		path += "?" + url.Values{"pool": {pool}}.Encode()
	}
	return call[api.SlotList](ctx, c, "list warm slots", "GET", path, nil)
}

// Pool lists the pools of one name, one of each family at most; [ErrNotFound] when there
// is none.
func (c *Client) Pool(ctx context.Context, name string) (*api.PoolList, error) {
	return call[api.PoolList](ctx, c, "show pool "+name, "GET", pool(name, ""), nil)
}

// ApplyPool makes the pool of a name, and of the prefix's family, be as described. The
// same description again changes nothing. It needs the role admin.
//
// A change that would leave leases outside is [ErrPoolNotEmpty] unless ask.Drain; one
// whose generation is not above the pool's is [ErrStaleGeneration]; one whose addresses
// another pool has is [ErrPoolOverlap].
func (c *Client) ApplyPool(ctx context.Context, name string, ask api.PoolRequest) (*api.PoolReply, error) {
	return call[api.PoolReply](ctx, c, "apply pool "+name, "PUT", pool(name, ""), ask)
}

// DrainPool has a pool give nothing; its leases stay until they end. It needs the role
// admin.
func (c *Client) DrainPool(ctx context.Context, name string, ask api.DrainRequest) (*api.PoolReply, error) {
	return call[api.PoolReply](ctx, c, "drain pool "+name, "POST", pool(name, "/drain"), ask)
}

// UndrainPool has a pool that drains give again. It needs the role admin.
func (c *Client) UndrainPool(ctx context.Context, name string, ask api.DrainRequest) (*api.PoolReply, error) {
	return call[api.PoolReply](ctx, c, "undrain pool "+name, "POST", pool(name, "/undrain"), ask)
}

// A Removal names the pool to remove, and how.
type Removal struct {
	UID     string         // of the pool that is meant: a pool made again has another
	Mode    api.RemoveMode // "": empty
	Reason  string         // for the history; force wants one
	Preview bool
}

// RemovePool removes a pool. With [api.RemoveEmpty] one whose addresses are held is
// [ErrPoolNotEmpty]; with [api.RemoveDrain] the reply's Change is [api.PoolDrain] while it
// is, to be asked again. It needs the role admin.
func (c *Client) RemovePool(ctx context.Context, name string, r Removal) (*api.PoolReply, error) {
	preview := ""
	if r.Preview {
		preview = "true"
	}
	return call[api.PoolReply](ctx, c, "remove pool "+name, "DELETE",
		query(pool(name, ""), "uid", r.UID, "mode", string(r.Mode), "reason", r.Reason, "preview", preview), nil)
}

func pool(name, verb string) string { return "/v1/pools/" + url.PathEscape(name) + verb }
