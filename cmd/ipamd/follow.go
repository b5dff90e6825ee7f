package main

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/ipamd/ipamd/netdb"
)

const (
	// followAtOnce bounds the changes that are read at once.
	followAtOnce = 1000
	// followPause lets changes gather before they are read.
	followPause = 20 * time.Millisecond
)

// A follower counts and logs each durable change, once and in order. It reads
// them from the book, after they were answered: no commit waits for it.
type follower struct {
	mu    sync.Mutex
	since int64 // the last revision that was told
}

// followChanges tells of changes until ctx ends, and then of the last ones.
func (p *program) followChanges(ctx context.Context) error {
	for {
		changed := p.book.Changed()
		p.catchUp(ctx)
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

// catchUp tells of all changes that are durable by now.
func (p *program) catchUp(ctx context.Context) {
	f := &p.follower
	f.mu.Lock()
	defer f.mu.Unlock()
	for ctx.Err() == nil {
		changes, err := p.book.Changes(ctx, f.since, followAtOnce)
		var gap *netdb.PrunedError
		switch {
		case errors.As(err, &gap):
			p.log.Warn("changes were pruned before they were counted and logged", "first", gap.Since+1, "last", gap.Upto)
			f.since = gap.Upto
			continue
		case err != nil:
			if ctx.Err() == nil {
				p.log.Warn("changes cannot be read, and are counted and logged later", "err", err)
			}
			return
		case len(changes) == 0:
			return
		}
		for _, c := range changes {
			p.changed(c)
			f.since = c.Rev
		}
	}
}

// caughtUp answers scrapes with every change counted that was durable when they
// came.
func (p *program) caughtUp(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.catchUp(r.Context())
		next.ServeHTTP(w, r)
	})
}
