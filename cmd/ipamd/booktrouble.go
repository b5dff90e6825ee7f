package main

import (
	"context"
	"time"
)

// bookRetry is the time between two looks at what ails the book, and between
// two tries to repair it.
const bookRetry = time.Second

// retryBook logs when the book cannot be written, and tries until it can be
// again. It returns nil when ctx ends.
func (p *program) retryBook(ctx context.Context) error {
	return watchBook(ctx, func() error { return p.book.Info().ReadOnly }, p.book.Retry,
		func(why error) {
			p.log.Error("the book cannot be written: nothing is given or released; ipamd goes on by itself once it can be",
				"book", p.cfg.Book.Path, "err", why)
		},
		func(after time.Duration) {
			p.log.Info("the book can be written again", "book", p.cfg.Book.Path, "after", after)
		})
}

// tidyBook logs when the book's files grow and cannot be cut, and tries again
// until they can. Nothing is refused meanwhile. It returns nil when ctx ends.
func (p *program) tidyBook(ctx context.Context) error {
	return watchBook(ctx, func() error { return p.book.Info().Growing }, p.book.Tidy,
		func(why error) {
			p.log.Warn("the book grows: its log or its history cannot be cut; changes are durable, ipamd tries again by itself",
				"book", p.cfg.Book.Path, "err", why)
		},
		func(after time.Duration) {
			p.log.Info("the book grows no more", "book", p.cfg.Book.Path, "after", after)
		})
}

// watchBook reports what is wrong with the book once, tries to repair it until that
// succeeds, and reports that it has.
func watchBook(ctx context.Context, trouble func() error, repair func(context.Context) error, broken func(why error), repaired func(after time.Duration)) error {
	tick := time.NewTicker(bookRetry)
	defer tick.Stop()
	var since time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if why := trouble(); why != nil && since.IsZero() {
			since = time.Now()
			broken(why)
		}
		if !since.IsZero() && repair(ctx) == nil {
			repaired(time.Since(since).Round(time.Second))
			since = time.Time{}
		}
	}
}
