package server

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/ipamd/ipamd/api"
)

// reply answers with what a handler returned.
func (s *Server) reply(c *call, status int, reply any) api.Code {
	switch reply := reply.(type) {
	case encoded:
		return s.send(c, status, reply)
	case *listing:
		code, err := s.list(c, status, reply)
		if err != nil {
			return s.fail(c, err)
		}
		return code
	}
	return s.encode(c, status, reply)
}

// encoded is a reply that other calls may have, too.
type encoded []byte

// encode answers, once and whole: a reply that cannot be encoded is an
// internal error and not half a reply.
func (s *Server) encode(c *call, status int, reply any) api.Code {
	buf := s.buffer()
	defer s.done(buf)
	if err := encodeInto(buf, reply); err != nil {
		s.cfg.Log.Error("a reply cannot be encoded", "verb", c.end.Verb, "err", err)
		buf.Reset()
		status = http.StatusInternalServerError
		buf.WriteString(`{"code":"internal","message":"the reply cannot be encoded","retryable":false,"revision":0,"epoch":""}`)
	}
	return s.send(c, status, buf.Bytes())
}

func encodeInto(buf *bytes.Buffer, reply any) error {
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	return enc.Encode(reply)
}

// send writes a whole answer. One that is refused for its size is a reading one:
// an outcome is never refused.
func (s *Server) send(c *call, status int, body []byte) api.Code {
	if len(body) > smallAnswer {
		give, err := s.admission.Answer(c.peer, len(body), c.end.Mutates)
		if err != nil {
			return s.fail(c, err)
		}
		defer give()
	}
	c.endSlot() // how slowly the peer reads delays no other call
	c.setWriteDeadline(writeTime)
	c.head(status, len(body))
	// An error here is a peer that hung up, and there is no reader left.
	_, _ = c.w.Write(body)
	return ""
}

// head writes what is before an answer of so many bytes; -1: in chunks.
func (c *call) head(status, size int) {
	c.answering = true
	h := c.w.Header()
	h.Set("Content-Type", "application/json")
	if size >= 0 {
		h.Set("Content-Length", strconv.Itoa(size))
	}
	c.w.WriteHeader(status)
}

// sayLast says that this was the connection's last answer. net/http lets a peer
// that has more to send half a second for reading it, in which the connection
// need not count against others: what was written can be read after it is closed.
func (c *call) sayLast() {
	if err := http.NewResponseController(c.w).Flush(); err != nil {
		return // the peer has hung up
	}
	if conn := connOf(c.r); conn != nil {
		conn.End()
	}
}

// setWriteDeadline gives the peer so long to take what is written next.
func (c *call) setWriteDeadline(within time.Duration) {
	if err := http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(within)); err != nil {
		c.server.cfg.Log.Debug("a reply has no deadline", "verb", c.end.Verb, "err", err)
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
