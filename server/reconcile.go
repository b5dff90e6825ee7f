package server

import (
	"context"
	"fmt"
	"net/http"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/api"
)

// reconcile makes a pass now. Before the daemon's own first pass there is
// none: that one adopts what lives, and no other may run ahead of it.
func (h *daemon) reconcile(c *call) (int, any, error) {
	var ask api.ReconcileRequest
	if err := c.body(&ask); err != nil {
		return 0, nil, err
	}
	if ask.Preview && ask.Confirm {
		return 0, nil, field("confirm", "excludes preview: look first, then confirm")
	}
	if ask.Preview && ask.ConfirmOrphans != "" {
		return 0, nil, field("confirm_orphans", "excludes preview: look first, then confirm")
	}
	if err := h.book.CheckIdentity(); err != nil {
		return 0, nil, fmt.Errorf("reconcile: %w", err)
	}
	if h.last() == nil {
		return 0, nil, fmt.Errorf("%w: the first pass is not done", allocator.ErrNotReady)
	}
	if ask.ConfirmOrphans != "" {
		if err := h.confirmOrphans(ask.ConfirmOrphans); err != nil {
			return 0, nil, field("confirm_orphans", "%v; look again: ipamctl doctor", err)
		}
	}
	ctx, cancel := passContext(c, ask.Preview)
	defer cancel()
	done, err := h.pass(ctx, ask.Preview, ask.Confirm)
	if err != nil {
		return 0, nil, fmt.Errorf("reconcile: %w", err)
	}
	return http.StatusOK, &api.ReconcileReply{Report: report(done),
		Revision: h.book.Rev(), Epoch: h.book.Epoch()}, nil
}

// passContext gives a pass [api.LongestPass] in place of Config.Deadline. A
// preview ends when the peer hangs up; a pass that acts does not, but the
// daemon's stop ends it between two steps. A clean-up that hung on its
// caller's context once left a hundred sandboxes half released.
func passContext(c *call, preview bool) (context.Context, context.CancelFunc) {
	if preview {
		return context.WithTimeout(c.r.Context(), api.LongestPass)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.r.Context()), api.LongestPass)
	go func() { // ends with the call
		select {
		case <-c.draining():
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// report is a pass as the wire wants it: no steps are an empty list.
func report(r api.Report) api.Report {
	r.Started = r.Started.UTC()
	if r.Actions == nil {
		r.Actions = []api.Action{}
	}
	return r
}

func (h *daemon) lastPass() *api.Report {
	last := h.last()
	if last == nil {
		return nil
	}
	shown := report(*last)
	return &shown
}
