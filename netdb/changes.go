package netdb

import (
	"context"
	"errors"
	"fmt"
)

// ErrPruned is wrapped by every [PrunedError].
var ErrPruned = errors.New("the history does not reach back so far")

// A PrunedError means that changes after a revision are not in the history any
// more. Whoever follows the changes has missed some, and goes on behind Upto.
type PrunedError struct {
	Since int64 // the revision that was asked for
	Upto  int64 // the last one that is gone
}

func (e *PrunedError) Error() string {
	return fmt.Sprintf("%v: revisions %d to %d are gone", ErrPruned, e.Since+1, e.Upto)
}

func (e *PrunedError) Unwrap() error { return ErrPruned }

// Changes returns up to limit durable changes behind a revision, in their order;
// none when there are none yet. It reads the file, on a connection of its own,
// and no commit waits for it: with [Book.Changed] it is how changes are followed.
//
//	for since := book.Rev(); ; {
//		changed := book.Changed()
//		// read Changes(ctx, since, n) until there are none
//		<-changed
//	}
//
// A gap that pruning left is a [PrunedError].
func (b *Book) Changes(ctx context.Context, since int64, limit int) ([]Change, error) {
	upTo := b.Rev()
	if since >= upTo {
		return nil, nil
	}
	var out []Change
	err := each(ctx, b.readers, `SELECT `+changeColumns+` FROM changes WHERE rev > ?1 ORDER BY rev LIMIT ?2`, func(s scanner) error {
		c, err := scanChange(s)
		out = append(out, c)
		return err
	}, since, limit)
	switch {
	case err != nil:
		return nil, b.classify("read the changes", err)
	case len(out) == 0:
		return nil, &PrunedError{since, upTo}
	case out[0].Rev != since+1:
		return nil, &PrunedError{since, out[0].Rev - 1}
	}
	return out, nil
}
