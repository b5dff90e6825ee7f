package client

import (
	"context"

	"github.com/ipamd/ipamd/api"
)

// Rules shows what nftables holds the bridges' ports to, compared with the book. For the
// lease that is named, and "" is all, it is the ports of that one alone, and nothing is
// compared.
func (c *Client) Rules(ctx context.Context, lease string) (*api.RulesReply, error) {
	return call[api.RulesReply](ctx, c, "read the rules", "GET", query("/v1/rules", "lease", lease), nil)
}
