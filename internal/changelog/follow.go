package changelog

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
)

const (
	// followAtOnce bounds the changes that are read at once.
	followAtOnce = 1000
	// followPause lets changes gather before they are read.
	followPause = 20 * time.Millisecond
)

// A Follower counts and logs each durable change, once and in order. It reads them from
// the book, after they were answered: no commit waits for it. It is safe for concurrent
// use.
type Follower struct {
	book  *netdb.Book
	count func(ipam.Change)
	log   *slog.Logger

	mu    sync.Mutex
	since int64 // the last revision that was reported
}

// Follow follows the changes of a book from its present revision on.
func Follow(book *netdb.Book, count func(ipam.Change), log *slog.Logger) *Follower {
	return &Follower{book: book, count: count, log: log, since: book.Rev()}
}

// Run reports changes until ctx ends. It returns nil.
func (f *Follower) Run(ctx context.Context) error {
	for {
		changed := f.book.Changed()
		f.CatchUp(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
		select {
		case <-ctx.Done():
		case <-time.After(followPause):
		}
	}
}

// CatchUp reports all changes that are durable by now.
func (f *Follower) CatchUp(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for ctx.Err() == nil {
		changes, err := f.book.Changes(ctx, f.since, followAtOnce)
		var gap *ipam.PrunedError
		switch {
		case errors.As(err, &gap):
			f.log.Warn("changes were pruned before they were counted and logged", "first", gap.Since+1, "last", gap.Upto)
			f.since = gap.Upto
			continue
		case err != nil:
			if ctx.Err() == nil {
				f.log.Warn("changes cannot be read, and are counted and logged later", "err", err)
			}
			return
		case len(changes) == 0:
			return
		}
		for _, c := range changes {
			f.report(c)
			f.since = c.Rev
		}
	}
}

// Before answers scrapes with every change counted that was durable when they came.
func (f *Follower) Before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.CatchUp(r.Context())
		next.ServeHTTP(w, r)
	})
}
