// Package upkeep tries to repair what keeps the book from being written or cut, again
// and again, and logs when such a fault begins and ends.
package upkeep

import (
	"context"
	"log/slog"
	"time"

	"github.com/ipamd/ipamd/netdb"
)

// every is the time between two looks at what ails the book, and between two tries to
// repair it.
const every = time.Second

// Retry logs when the book at path cannot be written, and tries until it can be again.
// It returns nil when ctx ends.
func Retry(ctx context.Context, book *netdb.Book, path string, log *slog.Logger) error {
	return watch(ctx, func() error { return book.Info().ReadOnly }, book.Retry,
		func(why error) {
			log.Error("the book cannot be written: nothing is given or released; ipamd goes on by itself once it can be",
				"book", path, "err", why)
		},
		func(after time.Duration) {
			log.Info("the book can be written again", "book", path, "after", after)
		})
}

// Tidy logs when the book's files grow and cannot be cut, and tries again until they
// can. Nothing is refused meanwhile. It returns nil when ctx ends.
func Tidy(ctx context.Context, book *netdb.Book, path string, log *slog.Logger) error {
	return watch(ctx, func() error { return book.Info().Growing }, book.Tidy,
		func(why error) {
			log.Warn("the book grows: its log or its history cannot be cut; changes are durable, ipamd tries again by itself",
				"book", path, "err", why)
		},
		func(after time.Duration) {
			log.Info("the book grows no more", "book", path, "after", after)
		})
}

// watch reports a fault once, tries to repair it until that succeeds, and reports that
// it has.
func watch(ctx context.Context, fault func() error, repair func(context.Context) error, broken func(why error), repaired func(after time.Duration)) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var since time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if why := fault(); why != nil && since.IsZero() {
			since = time.Now()
			broken(why)
		}
		if !since.IsZero() && repair(ctx) == nil {
			repaired(time.Since(since).Round(time.Second))
			since = time.Time{}
		}
	}
}
