package server

import (
	"context"
	"net/http"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/ipam"
)

// Adoption takes over a book that is another runner's; *adoption.Adoption is one.
type Adoption interface {
	Look(ctx context.Context) (api.AdoptBookReply, error)
	Confirm(ctx context.Context, who ipam.Who, epoch string) (api.AdoptBookReply, error)
}

// adoptBook shows what an adoption would do, and makes it where the request names the
// epoch that was shown.
func (h *books) adoptBook(c *call) (int, any, error) {
	var ask api.AdoptBookRequest
	if err := c.body(&ask); err != nil {
		return 0, nil, err
	}
	if len(ask.Reason) > ipam.MaxNote {
		return 0, nil, field("reason", "is longer than %d bytes", ipam.MaxNote)
	}
	if ask.Epoch == "" {
		ctx, cancel := passContext(c, true)
		defer cancel()
		out, err := h.adoption.Look(ctx)
		return http.StatusOK, &out, err
	}
	out, err := h.adoption.Confirm(c.ctx, c.operator("adopted", ask.Reason), ask.Epoch)
	return http.StatusOK, &out, err
}

// checkBook walks the invariants of the book. That some are broken is an answer.
func (h *books) checkBook(c *call) (int, any, error) {
	if _, err := c.query(); err != nil {
		return 0, nil, err
	}
	ctx, cancel := passContext(c, true)
	defer cancel()
	found, err := h.book.CheckNow(ctx)
	if err != nil {
		return 0, nil, err
	}
	out := &api.CheckBookReply{Whole: len(found.Found) == 0, Findings: []api.BookFinding{}, Addresses: found.Rows, Revision: found.Rev, Epoch: found.Epoch}
	for _, v := range found.Found {
		if out.Truncated = len(out.Findings) == api.MostBookFindings; out.Truncated {
			break
		}
		out.Findings = append(out.Findings, api.BookFinding{Invariant: v.Invariant, Detail: v.Detail})
	}
	return http.StatusOK, out, nil
}

// backup copies the book to a file of this machine.
func (h *books) backup(c *call) (int, any, error) {
	var ask api.BackupRequest
	if err := c.body(&ask); err != nil {
		return 0, nil, err
	}
	ctx, cancel := passContext(c, true)
	defer cancel()
	made, err := h.book.Backup(ctx, ask.Path, ask.Replace)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, &api.BackupReply{Path: made.Path, Bytes: made.Bytes, Revision: made.Rev, Epoch: made.Epoch}, nil
}
