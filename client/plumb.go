package client

import (
	"context"

	"github.com/ipamd/ipamd/api"
)

// PlumbWork is for ipamd-plumb: a port that is to be made or taken away.
func (c *Client) PlumbWork(ctx context.Context, ask api.PlumbRequest) (*api.PlumbReply, error) {
	return call[api.PlumbReply](ctx, c, "ask for work", "POST", "/v1/plumb/work", ask)
}

// PlumbDone is for ipamd-plumb: what came of a piece of work.
func (c *Client) PlumbDone(ctx context.Context, r api.PlumbDoneRequest) (*api.PlumbDoneReply, error) {
	return call[api.PlumbDoneReply](ctx, c, "report work", "POST", "/v1/plumb/done", r)
}
