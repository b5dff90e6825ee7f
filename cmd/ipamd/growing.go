package main

import (
	"context"
	"time"
)

// tidyBook tells when the book's files grow and cannot be cut, and tries again
// until they can. Nothing is refused meanwhile. It returns nil when ctx ends.
func (p *program) tidyBook(ctx context.Context) error {
	tick := time.NewTicker(bookRetry)
	defer tick.Stop()
	var since time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if why := p.book.Info().Growing; why != nil && since.IsZero() {
			since = time.Now()
			p.log.Warn("the book grows: its log or its history cannot be cut; changes are durable, ipamd tries again by itself",
				"book", p.cfg.Book.Path, "err", why)
		}
		if !since.IsZero() && p.book.Tidy(ctx) == nil {
			p.log.Info("the book grows no more", "book", p.cfg.Book.Path, "after", time.Since(since).Round(time.Second))
			since = time.Time{}
		}
	}
}
