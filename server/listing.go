package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"time"

	"github.com/ipamd/ipamd/api"
)

const (
	// chunkBytes is how much of a listing is made before it is written: what a
	// peer that reads slowly keeps in memory, however long the listing is.
	chunkBytes = 32 << 10
	// readBytes is what a peer reads a second at the least, beside the writeTime
	// that every answer has.
	readBytes    = 4 << 20
	pointerBytes = 8
)

// A listing is an answer that is a list with a few fields behind it. Its items
// are made while it is written.
type listing struct {
	// reply is the answer with its list, which is its first field, empty. What is
	// behind the list is encoded when all items were.
	reply any
	items iter.Seq2[any, error] // an error is the last one, and ends the answer
	holds int                   // bytes that the items keep in memory while they are made
}

// list answers with a listing. What fits into one chunk is an answer as any
// other; a longer one cannot be refused any more once its first chunk is written,
// and is cut: a peer takes no half of a listing for a whole one.
func (s *Server) list(c *call, status int, l *listing) (api.Code, error) {
	give, err := s.admission.Answer(c.peer, chunkBytes+l.holds, false)
	if err != nil {
		return "", err
	}
	defer give()
	head, err := json.Marshal(l.reply)
	if err != nil {
		return "", err
	}
	head, _, _ = bytes.Cut(head, []byte("]"))
	out := &chunks{s: s, c: c, status: status, buf: s.buffer(), left: writeTime}
	defer s.done(out.buf)
	if out.leave, err = c.heavy(c.ctx); err != nil {
		return "", err
	}
	defer func() { out.leave() }()
	out.buf.Write(head)
	enc := json.NewEncoder(out.buf)
	enc.SetEscapeHTML(false)
	n := 0
	for item, err := range l.items {
		if err == nil {
			if n++; n > 1 {
				out.buf.WriteByte(',')
			}
			err = enc.Encode(item)
		}
		if err == nil && out.buf.Len() >= chunkBytes {
			err = out.flush(false)
		}
		if err != nil {
			return out.fail(err)
		}
	}
	tail, err := json.Marshal(l.reply)
	if err != nil {
		return out.fail(err)
	}
	out.buf.Write(tail[len(head):])
	out.buf.WriteByte('\n')
	if err := out.flush(true); err != nil {
		return out.fail(err)
	}
	return "", nil
}

// chunks writes an answer in parts.
type chunks struct {
	s      *Server
	c      *call
	status int
	buf    *bytes.Buffer
	left   time.Duration // that the peer has for reading
	leave  func()        // ends a step: a chunk is made, and while it is written others go on
}

var errUnread = errors.New("the peer does not read its answer")

// flush writes what there is. Time counts only while the peer is waited for.
func (k *chunks) flush(last bool) (err error) {
	k.leave()
	k.c.endSlot() // how slowly the peer reads delays no other call
	if !k.c.answering {
		size := -1
		if last {
			size = k.buf.Len()
		}
		k.c.head(k.status, size)
	}
	began := time.Now()
	k.c.setWriteDeadline(k.left)
	_, err = k.c.w.Write(k.buf.Bytes())
	k.left += time.Second*time.Duration(k.buf.Len())/readBytes - time.Since(began)
	k.buf.Reset()
	if err != nil {
		return errUnread
	}
	if !last {
		ctx := k.c.r.Context()
		if leave, err := k.c.heavy(ctx); err == nil {
			k.leave = leave
		} else {
			return err
		}
	}
	return nil
}

// fail ends an answer that cannot be finished. An error means that nothing of it
// was written.
func (k *chunks) fail(err error) (api.Code, error) {
	switch {
	case !k.c.answering:
		return "", err
	case errors.Is(err, errUnread) || k.c.hungUp():
		k.s.cfg.Log.Debug("a peer did not read its answer", "verb", k.c.end.Verb, "peer", k.c.peer.Name)
		return cancelled, nil
	}
	k.s.cfg.Log.Error("an answer was cut", "verb", k.c.end.Verb, "peer", k.c.peer.Name, "err", err)
	k.c.cut = codeOf(err)
	panic(http.ErrAbortHandler) // HTTP's last chunk does not follow
}
