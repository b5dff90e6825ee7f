package netdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

const (
	// foldAt is from how many pages on the log is folded into the file, behind
	// each commit: SQLite's own number. Later cost each commit more, and a log
	// that never began anew grew to 1.9 GB and cost twice as much.
	foldAt = 1000
	// longLog is a log that should have begun anew long before, in pages.
	longLog = 4096
	// stepPages is more than a step writes into the log: a page of each index, and
	// what splits.
	stepPages = 8
	// pageSize is that of the book and of its log, in bytes: SQLite's own.
	pageSize = 4096
)

// pruneEvery is how many revisions pass between two looks at the old end of
// the history.
const pruneEvery = 1000

// An upkeep keeps the files from growing for ever: it folds the log into the
// file and prunes the history. SQLite would fold by itself, within the commit
// and with nobody told of an error: a file that took no write had its log grow
// by all that was changed, and looked well.
//
// Who has the turn does it, once the others whose commit it made are answered.
// What it cannot do loses nothing that was acknowledged, and refuses nothing.
type upkeep struct {
	pruneDue     bool // who has the turn only, like the next
	pages        int  // in the log, at the most: to ask SQLite behind each commit made it some 6 % longer
	log, history atomic.Pointer[trouble]
}

// A trouble is what does not work, and since when.
type trouble struct {
	why   error
	since time.Time
}

// remember keeps the first moment of a trouble, and its last reason.
func remember(p *atomic.Pointer[trouble], why error, now time.Time) {
	next := &trouble{why: why, since: now}
	for {
		old := p.Load()
		if old != nil {
			next.since = old.since
		}
		if p.CompareAndSwap(old, next) {
			return
		}
	}
}

// growing is why the files grow, without an error when they do not.
func (u *upkeep) growing() trouble {
	log, history := u.log.Load(), u.history.Load()
	switch {
	case log == nil && history == nil:
		return trouble{}
	case history == nil:
		return *log
	case log == nil:
		return *history
	}
	both := trouble{fmt.Errorf("%w; %w", log.why, history.why), log.since}
	if history.since.Before(both.since) {
		both.since = history.since
	}
	return both
}

// Tidy tries again what keeps the book's files from growing, and returns nil
// when nothing of what [Info] has as Growing is left. Commits do not try again
// what an error of the file ended: a disk that fails is not asked behind each
// of them, and whoever calls this now and then has seen the error before it is
// mended. At once, when nothing fails.
func (b *Book) Tidy(ctx context.Context) error {
	if b.upkeep.growing().why == nil {
		return nil
	}
	if err := b.takeTurn(ctx); err != nil {
		return fmt.Errorf("tidy %s: %w", b.path, err)
	}
	defer func() { <-b.turn }()
	if b.upkeep.history.Load() != nil {
		b.prune()
	}
	b.fold()
	return b.upkeep.growing().why
}

// keep is what follows a commit. Who calls has the turn.
func (b *Book) keep() {
	if b.upkeep.pruneDue {
		b.upkeep.pruneDue = false
		b.prune()
	}
	switch t := b.upkeep.log.Load(); {
	case t == nil && b.upkeep.pages >= foldAt, t != nil && errors.Is(t.why, ErrLogHeld):
		b.fold()
	}
}

// fold writes the pages of a long log into the file, for the next commit to
// begin the log anew: as far as readers let it, and waiting for none of them.
func (b *Book) fold() {
	log, err := logOf(b.sql.measureLog)
	if err == nil && log.length >= foldAt {
		how := b.sql.foldLog
		if log.length >= longLog {
			how = b.sql.restartLog // which tells of readers, too, that hold a log that is in the file
		}
		now, failed := logOf(how)
		switch {
		case failed == nil:
			log = now
		case !errors.Is(failed, errFolding):
			err = failed
		case log.length < longLog:
			return // it will be shorter in a moment
		}
	}
	if errors.Is(err, errFolding) {
		return
	}
	if err != nil {
		remember(&b.upkeep.log, fmt.Errorf("fold the log into the book: %w", err), b.opts.Now().Wall)
		return
	}
	left := log.length - log.folded
	if b.upkeep.pages = log.length; left == 0 {
		b.upkeep.pages = 0 // the next commit begins it anew
	}
	if log.length >= longLog && (left > 0 || log.held) {
		remember(&b.upkeep.log, fmt.Errorf("%w: %d of its %d pages are not in the book", ErrLogHeld, left, log.length), b.opts.Now().Wall)
		return
	}
	b.upkeep.log.Store(nil)
}

// A walLog is the log as a checkpoint left it: its pages, how many of them are
// in the file, too, and whether it was to begin anew and a reader holds it.
type walLog struct {
	length, folded int
	held           bool
}

// errFolding means that another process folds the log just now.
var errFolding = errors.New("another process folds the log")

// logOf runs a checkpoint.
func logOf(checkpoint *sql.Stmt) (walLog, error) {
	var l walLog
	if err := checkpoint.QueryRow().Scan(&l.held, &l.length, &l.folded); err != nil {
		return walLog{}, err
	}
	if l.length < 0 {
		return walLog{}, errFolding
	}
	return l, nil
}

// errYoung ends the walk over old changes: those behind are younger still.
var errYoung = errors.New("not old enough")

// prune lets changes go that are beyond the kept count or age, and tombstones
// that no longer stand. An error leaves them for the next time. Who calls has
// the turn.
func (b *Book) prune() {
	now := b.opts.Now()
	var over []string
	for uid, stone := range b.idx.tombs {
		if now.Since(stone.at) >= b.opts.Tombstone {
			over = append(over, uid)
		}
	}
	b.memory.forget()
	b.upkeep.pages = foldAt
	err := b.pruneRows(now, over)
	if err != nil {
		remember(&b.upkeep.history, fmt.Errorf("prune the history: %w", err), now.Wall)
		return
	}
	b.upkeep.history.Store(nil)
}

// pruneRows is one commit: five thousand tombstones, each with a sync of its own,
// held up changes for seconds.
func (b *Book) pruneRows(now Stamp, tombs []string) error {
	if _, err := b.sql.begin.Exec(); err != nil {
		return err
	}
	err := b.pruneChanges(now)
	for _, uid := range tombs {
		if err == nil {
			_, err = b.sql.pruneTombs.Exec(uid)
		}
	}
	if err == nil {
		_, err = b.sql.commit.Exec()
	}
	if err != nil {
		_, _ = b.sql.rollback.Exec() // SQLite may have taken it back by itself
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, uid := range tombs {
		delete(b.idx.tombs, uid)
	}
	return nil
}

func (b *Book) pruneChanges(now Stamp) error {
	upTo := b.idx.rev - int64(b.opts.KeepChanges)
	err := each(context.Background(), b.conn, `SELECT rev, boottime, boot_id FROM changes ORDER BY rev LIMIT ?1`,
		func(s scanner) error {
			var at Stamp
			var rev, boot int64
			if err := s.Scan(&rev, &boot, &at.BootID); err != nil {
				return err
			}
			at.Boottime = time.Duration(boot)
			if now.Since(at) < b.opts.KeepFor {
				return errYoung
			}
			upTo = max(upTo, rev)
			return nil
		}, 2*pruneEvery)
	if errors.Is(err, errYoung) {
		err = nil
	}
	if err == nil && upTo > 0 {
		_, err = b.sql.pruneRows.Exec(upTo)
	}
	return err
}
