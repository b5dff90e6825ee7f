package netdb

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// CheckFile walks every invariant of a book that no daemon has open, and changes nothing. One
// that is too damaged to be opened is a finding; an error says why it could not be read.
func CheckFile(ctx context.Context, path string, opts Options) (out Checked, err error) {
	if _, err := os.Stat(path); err != nil { // before a lock is made beside nothing
		return out, fmt.Errorf("check the book: %w", err)
	}
	opts.ReadOnly = true
	book, err := Open(path, opts)
	if errors.Is(err, ErrDamaged) {
		return Checked{Found: []Violation{{Invariant: FileIsWhole, Detail: err.Error()}}}, nil
	}
	if err != nil {
		return out, fmt.Errorf("check the book: %w", err)
	}
	out.Epoch, out.Exposed = book.Epoch(), book.Info().Exposed
	out.Found, err = book.Check(ctx)
	leases, rev := book.Leases()
	out.Rows, out.Rev = len(leases), rev
	if err := errors.Join(err, book.Close()); err != nil {
		return out, fmt.Errorf("check the book: %w", err)
	}
	return out, nil
}
