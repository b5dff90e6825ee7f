package main

import (
	"context"
	"time"
)

// bookRetry is the time between two looks at whether the book can be written,
// and between two tries when it cannot.
const bookRetry = time.Second

// retryBook tells when the book cannot be written, and tries until it can be
// again. It returns nil when ctx ends.
func (p *program) retryBook(ctx context.Context) error {
	tick := time.NewTicker(bookRetry)
	defer tick.Stop()
	var since time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if why := p.book.Info().ReadOnly; why != nil && since.IsZero() {
			since = time.Now()
			p.log.Error("the book cannot be written: nothing is given or let go; ipamd goes on by itself once it can be",
				"book", p.cfg.Book.Path, "err", why)
		}
		if !since.IsZero() && p.book.Retry(ctx) == nil {
			p.log.Info("the book can be written again", "book", p.cfg.Book.Path, "after", time.Since(since).Round(time.Second))
			since = time.Time{}
		}
	}
}
