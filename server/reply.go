package server

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// encode answers, once and whole: a reply that cannot be encoded is an
// internal error and not half a reply.
func (s *Server) encode(c *call, status int, reply any) {
	buf := s.buffer()
	defer s.done(buf)
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(reply); err != nil {
		s.cfg.Log.Error("a reply cannot be encoded", "verb", c.end.Verb, "err", err)
		buf.Reset()
		status = http.StatusInternalServerError
		buf.WriteString(`{"code":"internal","message":"the reply cannot be encoded","retryable":false,"revision":0,"epoch":""}`)
	}
	s.pass(c) // how slowly the peer reads is nobody else's matter
	h := c.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(buf.Len()))
	s.bound(c)
	c.w.WriteHeader(status)
	// An error here is a peer that hung up, and nobody is left to be told.
	_, _ = c.w.Write(buf.Bytes())
}

// hangUp says that this was the connection's last answer. net/http lets a peer
// that has more to send half a second for reading it, in which the connection
// need not be anybody's loss: what was written can be read after it is closed.
func (s *Server) hangUp(c *call) {
	if err := http.NewResponseController(c.w).Flush(); err != nil {
		return // the peer has hung up
	}
	if gc := connOf(c.r); gc != nil {
		gc.over()
	}
}

// bound gives the peer writeTime to take the reply.
func (s *Server) bound(c *call) {
	if err := http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
		s.cfg.Log.Debug("a reply has no deadline", "verb", c.end.Verb, "err", err)
	}
}

func (s *Server) buffer() *bytes.Buffer { return s.buffers.Get().(*bytes.Buffer) }

// done keeps a buffer for the next call, unless it grew to a listing's size.
func (s *Server) done(buf *bytes.Buffer) {
	if buf.Cap() <= 64<<10 {
		buf.Reset()
		s.buffers.Put(buf)
	}
}
