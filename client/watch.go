package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client/answer"
)

const (
	// silentAtMost is for how long a stream may be silent: the daemon sends a bookmark
	// every ten seconds.
	silentAtMost = 30 * time.Second
	// resumeFirst and resumeMost bound the pause before a stream is resumed.
	resumeFirst = 100 * time.Millisecond
	resumeMost  = 5 * time.Second
)

// A WatchFilter says where a watch begins and what it has.
type WatchFilter struct {
	Epoch string // with Since: go on behind that revision; "": begin with a list
	Since int64
	Kinds []api.Kind // none: leases and attempts
}

// An Update is one step of a watch; one field is set.
type Update struct {
	List  *api.LeaseList // all leases: nothing that was before it counts any more
	Event *api.Event     // a change or a bookmark
	Err   error          // the stream was interrupted and is being resumed; for a log
}

// Watch yields all leases, and then each change of the book in commit order, without a
// gap and without a repeat, until ctx ends or the caller stops. It resumes the stream by
// itself when the connection or the daemon goes; where the daemon has not kept what was
// missed, or its book is another one, it yields a list again. A caller that needs long
// for an update holds up itself alone.
func (c *Client) Watch(ctx context.Context, f WatchFilter) iter.Seq[Update] {
	return func(yield func(Update) bool) {
		w := &watch{c: c, filter: f, pause: resumeFirst}
		for ctx.Err() == nil {
			err := w.resume(ctx, yield)
			switch {
			case err == errStopped || ctx.Err() != nil:
				return
			case errors.Is(err, ErrCompacted):
				w.filter.Epoch = "" // begin with a list
			case !yield(Update{Err: err}):
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(w.pause/2 + rand.N(w.pause)/2):
			}
			w.pause = min(2*w.pause, resumeMost)
		}
	}
}

// A watch is where a [Client.Watch] is.
type watch struct {
	c      *Client
	filter WatchFilter
	pause  time.Duration // before it is resumed
}

var (
	errStopped = errors.New("the caller stopped")
	errSilent  = errors.New("watch: the stream has been silent for too long")
)

// resume reads one stream to its end, which is never without an error.
func (w *watch) resume(ctx context.Context, yield func(Update) bool) error {
	if w.filter.Epoch == "" {
		list, err := w.c.Leases(ctx, LeaseFilter{})
		if err != nil {
			return err
		}
		if !yield(Update{List: list}) {
			return errStopped
		}
		w.filter.Epoch, w.filter.Since = list.Epoch, list.Revision
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(silentAtMost, func() { cancel(errSilent) }) // before the first line, too
	defer silent.Stop()
	kinds := make([]string, len(w.filter.Kinds))
	for i, k := range w.filter.Kinds {
		kinds[i] = string(k)
	}
	since := number(w.filter.Since)
	if since == "" {
		since = "0"
	}
	resp, err := w.c.send(ctx, "GET", query("/v1/watch", "epoch", w.filter.Epoch, "since", since, "kinds", strings.Join(kinds, ",")), nil)
	if err != nil {
		return w.c.explain("watch", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return w.c.explain("watch", err)
		}
		return refusal("watch", resp, body)
	}
	for lines := json.NewDecoder(resp.Body); ; {
		silent.Reset(silentAtMost) // the caller may take its time between two lines
		event := new(api.Event)
		if err := lines.Decode(event); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			return w.c.explain("watch", err)
		}
		silent.Stop()
		w.pause = resumeFirst
		if event.Type == api.EventError && event.Error != nil {
			return answer.Fail("watch", answer.Class(event.Error.Code), event.Error)
		}
		w.filter.Since = event.Revision
		if !yield(Update{Event: event}) {
			return errStopped
		}
	}
}
