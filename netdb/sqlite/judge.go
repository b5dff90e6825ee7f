package sqlite

import (
	"errors"
	"fmt"

	"github.com/ipamd/ipamd/netdb/bookfile"
)

// Judge compares a book that ends at a revision of an epoch with its mark and its log. The error is
// [ErrDamaged]. A book that may only not go on in its epoch is restored, which says why, and
// has lost so many revisions that were acknowledged.
func (o *Opening) Judge(epoch string, rev int64) (restored string, lost int64, err error) {
	m := o.Mark.Stored()
	switch {
	case rev == 0 && (m.Rev == 0 || m.Epoch != epoch):
	case m.Epoch == "":
		restored = "no note of its last revision lies beside it, so it is a copy that was put here"
	case m.Epoch != epoch:
		restored = fmt.Sprintf("what lay here before was epoch %s, up to revision %d", m.Epoch, m.Rev)
	case m.Rev <= rev && m.Copied:
		restored = "the note of its last revision beside it was written into another file, so its folder is a copy"
	case m.Rev <= rev:
	case !o.foundLog.Empty() && o.kept():
		err = fmt.Errorf("%w: revision %d was acknowledged, and with its log it ends at %d; if an older copy was put in its place, its log has to go: %s",
			ErrDamaged, m.Rev, rev, o.Path+bookfile.LogEnd)
	default:
		restored = fmt.Sprintf("revision %d was acknowledged, and it ends at %d: it is an older copy, or its log was lost", m.Rev, rev)
		lost = m.Rev - rev
	}
	return restored, lost, err
}

// JudgeLog is what a look at the book has found, nil where it may be opened, or else the log that is
// broken behind it.
func (o *Opening) JudgeLog(found error) error {
	if why := o.foundLog.Broken; why != "" && o.kept() && !errors.Is(found, ErrNotABook) && !errors.Is(found, ErrNewerSchema) {
		return fmt.Errorf("%w: its log, %s-wal: %s", ErrDamaged, o.Path, why)
	}
	return found
}

// kept reports that all that was acknowledged before this start has to be on the
// disk: with synchronous = "normal" that is so within a boot.
func (o *Opening) kept() bool {
	m := o.Mark.Stored()
	if m.Epoch == "" {
		return o.Synchronous == "full"
	}
	return m.Synchronous == "full" || m.Boot == o.Boot
}

// RenewLog folds the log into the book and empties it where the mark is about to say
// more than the log can show. SQLite goes on behind the last whole commit, under the
// same salts: commits that a power loss left behind a torn frame would pass for
// acknowledged ones that are damaged now, and so would what synchronous = "normal"
// has not synced, once the mark says "full". Before it the mark says what was, and
// a power loss or a kill in between is judged by that.
func (o *Opening) RenewLog() error {
	m := o.Mark.Stored()
	switched := m.Epoch != "" && m.Synchronous != o.Synchronous
	if !o.foundLog.Tail && !switched {
		return nil
	}
	log, err := o.Checkpoint("TRUNCATE")
	if err == nil && !log.Held {
		return nil
	}
	if err == nil || err == ErrFolding {
		return fmt.Errorf("empty the log: %w: another process reads %s", ErrBusy, o.Path)
	}
	return o.Classify("empty the log", err)
}

// OpenMark begins to note revisions, the last step of an opening.
func (o *Opening) OpenMark(epoch string, rev int64) error {
	return o.Mark.Open(bookfile.Mark{Epoch: epoch, Rev: rev, Boot: o.Boot, Synchronous: o.Synchronous})
}
