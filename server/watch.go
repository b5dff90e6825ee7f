package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/feed"
	"github.com/ipamd/ipamd/ipam"
)

// bookmarkEvery is how often a stream has a bookmark, also while changes flow, and so how long
// it is silent at the most: a client that receives nothing for longer knows that the
// connection is gone, one that resumes is not sent back over changes of kinds that it does not
// have, and one that is never idle has a moment to look over what it has.
const bookmarkEvery = 10 * time.Second

// usualKinds are those of a stream that asks for none.
const usualKinds = "lease,attempt"

// watch answers with the changes behind a revision, as they come, until the peer hangs
// up, does not read for writeTime, or the daemon stops. A stream that ended goes on
// behind the last line that was read, so its connection is as spare as an idle one: those
// that only watch take no slot of those that call.
func (h *watches) watch(c *call) (int, any, error) {
	q, err := c.query()
	if err != nil {
		return 0, nil, err
	}
	epoch := h.book.Epoch()
	since, err := h.position(q, epoch)
	if err != nil {
		return 0, nil, err
	}
	want, err := subjects(cmp.Or(q.Get("kinds"), usualKinds))
	if err != nil {
		return 0, nil, err
	}
	changes, err := h.feed.Read(c.ctx, since, func(ctx context.Context) (func(), error) { return c.heavy(ctx) })
	if err != nil {
		return 0, nil, err
	}
	defer changes.Close()
	c.endSlot()
	c.streaming = time.Now()
	c.w.Header().Set("Content-Type", "application/x-ndjson")
	c.answering = true
	c.w.WriteHeader(http.StatusOK)
	if c.r.Method == http.MethodHead {
		return 0, nil, nil
	}
	if conn := connOf(c.r); conn != nil {
		conn.End()
	}
	ctx, cancel := context.WithCancel(c.r.Context())
	defer cancel()
	defer context.AfterFunc(c.stopping(), cancel)()
	h.sleeper.Subscribed()
	out := &stream{book: h.book, c: c, want: want, epoch: epoch}
	err = out.bookmark(since)
	for err == nil {
		err = out.next(ctx, changes)
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		h.log.Debug("a stream was cut: its peer does not read", "peer", c.peer.Name, "rev", changes.At())
		c.cut = api.DeadlineExceeded
	case errors.Is(err, errUnread), ctx.Err() != nil: // the peer hung up, or the daemon stops: as a stream ends
	default:
		e := c.server.errorReply(c, err)
		c.cut = e.Code
		_ = out.event(api.Event{Type: api.EventError, Error: e, Revision: changes.At()}) // the stream ends in any case
	}
	return 0, nil, nil
}

// Watching is how many callers follow the stream of changes.
func (s *Server) Watching() int { return s.watches.feed.Readers() }

// position is the revision that a stream begins behind.
func (h *watches) position(q url.Values, epoch string) (since int64, err error) {
	if !q.Has("since") {
		since = h.book.Rev()
	} else if since, err = strconv.ParseInt(q.Get("since"), 10, 64); err != nil || since < 0 {
		return 0, field("since", "%.40q is not a revision", q.Get("since"))
	}
	switch of := q.Get("epoch"); {
	case of == "" && q.Has("epoch"):
		return 0, field("epoch", "is empty")
	case of == "" && q.Has("since") && since > 0:
		return 0, field("epoch", "is missing: a revision is of one epoch")
	case of != "" && of != epoch:
		return 0, fmt.Errorf("%w: the epoch is %s, and no longer %.60q", feed.ErrCompacted, epoch, of)
	}
	return since, nil
}

// subjects reads a list of kinds.
func subjects(list string) (map[ipam.Subject]bool, error) {
	want := make(map[ipam.Subject]bool)
	for kind := range strings.SplitSeq(list, ",") {
		switch k := ipam.Subject(kind); k {
		case ipam.OfLease, ipam.OfAttempt, ipam.OfPool, ipam.OfBook:
			want[k] = true
		default:
			return nil, field("kinds", "%.40q is no kind; known are lease, attempt, pool and book", kind)
		}
	}
	return want, nil
}

// A stream writes lines. What is not read within writeTime ends it: the reader may
// resume, and nothing is kept for it.
type stream struct {
	book Book
	c    *call
	want map[ipam.Subject]bool
	sent time.Time // the last line
	mark time.Time // the last bookmark

	epoch string // that it began in; it ends where the book goes on in another
}

// next sends what comes next, and a bookmark once the stream was silent, or without one, for
// long enough.
func (o *stream) next(ctx context.Context, changes *feed.Reader) error {
	wait, cancel := context.WithDeadline(ctx, o.sent.Add(bookmarkEvery))
	defer cancel()
	lines, err := changes.Next(wait)
	if err != nil && (ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded)) {
		return err
	}
	if is := o.book.Epoch(); is != o.epoch {
		return fmt.Errorf("%w: the epoch is %s, and no longer %s", feed.ErrCompacted, is, o.epoch)
	}
	if parts := feed.Join(lines, func(s ipam.Subject) bool { return o.want[s] }); len(parts) > 0 {
		if err := o.write(parts...); err != nil {
			return err
		}
	}
	if wait.Err() == nil && time.Since(o.mark) < bookmarkEvery {
		return nil
	}
	return o.bookmark(changes.At())
}

// bookmark says that all up to a revision was sent.
func (o *stream) bookmark(revision int64) error {
	o.mark = time.Now()
	return o.event(api.Event{Type: api.EventBookmark, Revision: revision})
}

func (o *stream) event(e api.Event) error {
	e.Epoch = o.book.Epoch()
	buf := o.c.server.buffer()
	defer o.c.server.done(buf)
	if err := encodeInto(buf, e); err != nil {
		return err
	}
	return o.write(buf.Bytes())
}

// write sends lines. Those of a batch are shared.
func (o *stream) write(parts ...[]byte) error {
	size := 0
	for _, part := range parts {
		size += len(part)
	}
	if size > smallAnswer { // one line: a batch is smaller
		give, err := o.c.server.admission.Answer(o.c.peer, size, false)
		if err != nil {
			return err
		}
		defer give()
	}
	o.c.setWriteDeadline(writeTime)
	var err error
	for _, part := range parts {
		if _, err = o.c.w.Write(part); err != nil {
			break
		}
	}
	if err == nil {
		err = http.NewResponseController(o.c.w).Flush()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errUnread, err)
	}
	o.sent = time.Now()
	return nil
}
