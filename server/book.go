package server

import (
	"context"
	"net/http"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/netdb"
)

// Adoption takes over a book that is another runner's; *adoption.Adoption is one.
type Adoption interface {
	Look(ctx context.Context) (api.AdoptBookReply, error)
	Confirm(ctx context.Context, who netdb.Who, epoch string) (api.AdoptBookReply, error)
}

// adoptBook shows what an adoption would do, and makes it where the request names the
// epoch that was shown.
func (s *Server) adoptBook(c *call) (int, any, error) {
	var ask api.AdoptBookRequest
	if err := s.body(c, &ask); err != nil {
		return 0, nil, err
	}
	if len(ask.Reason) > netdb.MaxNote {
		return 0, nil, field("reason", "is longer than %d bytes", netdb.MaxNote)
	}
	if ask.Epoch == "" {
		ctx, cancel := passContext(c, true)
		defer cancel()
		out, err := s.cfg.Adoption.Look(ctx)
		return http.StatusOK, &out, err
	}
	out, err := s.cfg.Adoption.Confirm(c.ctx, c.operator("adopted", ask.Reason), ask.Epoch)
	return http.StatusOK, &out, err
}

// backup copies the book to a file of this machine.
func (s *Server) backup(c *call) (int, any, error) {
	var ask api.BackupRequest
	if err := s.body(c, &ask); err != nil {
		return 0, nil, err
	}
	ctx, cancel := passContext(c, true)
	defer cancel()
	made, err := s.cfg.Book.Backup(ctx, ask.Path, ask.Replace)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, &api.BackupReply{Path: made.Path, Bytes: made.Bytes, Revision: made.Rev, Epoch: made.Epoch}, nil
}
