package server

import (
	"context"
	"net/http"
)

// rules shows what nftables holds the ports to. For one lease it is what memory and the
// counters say; else the table is read and compared, once for all that ask at a time.
func (h *daemon) rules(c *call) (int, any, error) {
	q, err := c.query()
	if err != nil {
		return 0, nil, err
	}
	lease := q.Get("lease")
	if lease == "" {
		return c.read(h.compared)
	}
	out, err := h.compare(c.ctx, lease)
	return http.StatusOK, out, err
}

func (h *daemon) compareRules(ctx context.Context) (any, error) { return h.compare(ctx, "") }
