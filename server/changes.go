package server

import (
	"context"
	"net/http"
	"strconv"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/ipam"
)

// changesMost is how many changes one answer holds, and changesUsual how many
// without a limit. They are read and answered in steps of changesStep, so that no
// more of the history is in memory for an answer, and no reader of the file waits
// for a peer.
const (
	changesMost  = 10_000
	changesUsual = 1000
	changesStep  = 250
)

// changes answers with the history, newest first.
func (h *books) changes(c *call) (int, any, error) {
	q, err := c.query()
	if err != nil {
		return 0, nil, err
	}
	reply := &api.ChangeList{Changes: []api.Change{}, Revision: h.book.Rev(), Epoch: h.book.Epoch()}
	want := ipam.Query{Sandbox: q.Get("sandbox"), LeaseID: q.Get("lease"), Before: reply.Revision + 1}
	if q.Has("address") {
		if want.Addr, err = address("address", q.Get("address")); err != nil {
			return 0, nil, err
		}
	}
	if want.Since, err = moment("since", q.Get("since")); err != nil {
		return 0, nil, err
	}
	if q.Has("before") {
		before, err := strconv.ParseInt(q.Get("before"), 10, 64)
		if err != nil || before < 1 {
			return 0, nil, field("before", "%.40q is not a revision", q.Get("before"))
		}
		want.Before = min(want.Before, before)
	}
	left, err := count("limit", q.Get("limit"), changesMost)
	if err != nil {
		return 0, nil, err
	}
	if left == 0 {
		left = changesUsual
	}
	return http.StatusOK, &listing{reply: reply, items: func(yield func(any, error) bool) {
		for left > 0 {
			want.Limit = min(left, changesStep)
			part, err := h.history(c, want)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, change := range part {
				shown := changeOf(change)
				if !yield(&shown, nil) {
					return
				}
			}
			if len(part) < want.Limit {
				return
			}
			left -= len(part)
			want.Before = part[len(part)-1].Rev
		}
	}}, nil
}

// history reads one step; each has the time of a call.
func (h *books) history(c *call, q ipam.Query) ([]ipam.Change, error) {
	ctx, cancel := context.WithTimeout(c.r.Context(), h.deadline)
	defer cancel()
	return h.book.History(ctx, q)
}
