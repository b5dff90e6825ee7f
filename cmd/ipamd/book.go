package main

import (
	"context"

	"github.com/ipamd/ipamd/config/reload"
	"github.com/ipamd/ipamd/internal/changelog"
	"github.com/ipamd/ipamd/metrics"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/rebuild"
)

// openOwnBook opens the book while no rebuild is at work beside it.
func (p *program) openOwnBook(ctx context.Context) error {
	lock, err := rebuild.Guard(p.cfg.Book.Path)
	if err != nil {
		return err
	}
	defer lock.Close()
	return p.openBook(ctx)
}

func (p *program) openBook(ctx context.Context) (err error) {
	p.metrics = metrics.New()
	opts := p.cfg.BookOptions()
	opts.OnCommit = p.metrics.Commit
	if p.book, err = netdb.Open(p.cfg.Book.Path, opts); err != nil {
		return err
	}
	p.onClose(p.book.Close)
	if why := p.book.Info().Restored; why != "" {
		p.log.Warn("the book is not the one that was closed here: it goes on in another epoch", "book", p.cfg.Book.Path, "reason", why, "epoch", p.book.Epoch())
	}
	if who := p.book.Info().Exposed; who != "" {
		p.log.Warn("others may change the book", "book", p.cfg.Book.Path, "who", who)
	}
	if err := p.book.Info().Clock; err != nil {
		p.log.Warn("the clocks contradict each other: every wait counts from now", "book", p.cfg.Book.Path, "err", err)
	}
	p.changes = changelog.Follow(p.book, p.metrics.Change, p.log)
	p.onClose(func() error { p.changes.CatchUp(context.Background()); return nil })
	p.poolsBefore = p.book.Pools()
	p.configured = reload.New(p.cfg, reload.Config{Book: p.book, Missing: p.missingBridges, Log: p.log, Answers: p.repeats.Unfiltered(p.log)})
	if err := p.configured.Start(ctx); err != nil {
		return err
	}
	for _, u := range p.book.Info().Unreadable {
		p.log.Error("row of the book cannot be read; its address is not given", "row", u.Row, "reason", u.Reason)
	}
	return nil
}
