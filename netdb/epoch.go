package netdb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/ipamd/ipamd/netdb/bookfile"
)

// judge compares a book that ends at a revision with its mark and its log. The error is
// [ErrDamaged]; a book that may only not go on in its epoch is noted as restored.
func (o *opening) judge(rev int64) error {
	m := o.mark.Stored()
	switch {
	case rev == 0 && (m.Rev == 0 || m.Epoch != o.whose().Epoch):
	case m.Epoch == "":
		o.restored = "no note of its last revision lies beside it, so it is a copy that was put here"
	case m.Epoch != o.whose().Epoch:
		o.restored = fmt.Sprintf("what lay here before was epoch %s, up to revision %d", m.Epoch, m.Rev)
	case m.Rev <= rev && m.Copied:
		o.restored = "the note of its last revision beside it was written into another file, so its folder is a copy"
	case m.Rev <= rev:
	case !o.foundLog.Empty() && o.kept():
		return fmt.Errorf("%w: revision %d was acknowledged, and with its log it ends at %d; if an older copy was put in its place, its log has to go: %s",
			ErrDamaged, m.Rev, rev, o.path+bookfile.LogEnd)
	default:
		o.restored = fmt.Sprintf("revision %d was acknowledged, and it ends at %d: it is an older copy, or its log was lost", m.Rev, rev)
		o.lost = m.Rev - rev
	}
	return nil
}

// kept reports that all that was acknowledged before this start has to be on the
// disk: with synchronous = "normal" that is so within a boot.
func (o *opening) kept() bool {
	m := o.mark.Stored()
	if m.Epoch == "" {
		return o.opts.Synchronous == "full"
	}
	return m.Synchronous == "full" || m.Boot == o.bootID
}

// beginEpoch gives the book another epoch, in which its revisions count on, and
// records why.
func (o *opening) beginEpoch(ctx context.Context, rev int64) error {
	is := o.whose()
	was, epoch := is.Epoch, uuid.NewString()
	evidence, err := json.Marshal([]map[string]string{{"was": was, "is": epoch, "why": o.restored}})
	if err != nil {
		return err
	}
	c := Change{Rev: rev, At: o.clock.Now(), Subject: OfBook, Who: Who{Actor: ByOperator, Reason: "restored"}, Evidence: evidence}
	tx, err := o.conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `UPDATE book SET epoch = ?`, epoch)
	if err == nil {
		_, err = tx.ExecContext(ctx, insertChange, c.row(nil, o.clock.Uptime())...)
	}
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	is.Epoch = epoch
	o.holding.Store(&is)
	o.idx = nil // it was read before
	return nil
}

// renewLog folds the log into the book and empties it where the mark is about to say
// more than the log can show. SQLite goes on behind the last whole commit, under the
// same salts: commits that a power loss left behind a torn frame would pass for
// acknowledged ones that are damaged now, and so would what synchronous = "normal"
// has not synced, once the mark says "full". Before it the mark says what was, and
// a power loss or a kill in between is judged by that.
func (o *opening) renewLog(ctx context.Context) error {
	m := o.mark.Stored()
	switched := m.Epoch != "" && m.Synchronous != o.opts.Synchronous
	if !o.foundLog.Tail && !switched {
		return nil
	}
	var held bool
	var length, folded int
	if err := o.conn.QueryRowContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&held, &length, &folded); err != nil {
		return o.classify("empty the log", err)
	}
	if held {
		return fmt.Errorf("empty the log: %w: another process reads %s", ErrBusy, o.path)
	}
	return nil
}

// openMark is the last step of an opening.
func (o *opening) openMark(context.Context) error {
	return o.mark.Open(bookfile.Mark{Epoch: o.whose().Epoch, Rev: o.idx.rev, Boot: o.bootID, Synchronous: o.opts.Synchronous})
}
