package netdb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ipamd/ipamd/netdb/bookfile"
)

// CheckMigrated is [Book.Check] of a book that an older ipamd wrote, as this one would have
// it: on a copy in the folder for temporary files, which is migrated. Not a byte of the book
// itself, its log or its mark changes.
func CheckMigrated(ctx context.Context, path string, opts Options) (found []Violation, err error) {
	ctx, cancel := context.WithTimeout(ctx, salvageWithin)
	defer cancel()
	real, err := bookfile.RealPath(path)
	if err == nil {
		found, err = checkMigrated(ctx, real, opts)
	}
	if err != nil {
		return nil, fmt.Errorf("check a migrated copy of %s: %w", path, err)
	}
	return found, nil
}

func checkMigrated(ctx context.Context, path string, opts Options) ([]Violation, error) {
	dir, err := os.MkdirTemp("", "ipamd-migrate-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	copied := filepath.Join(dir, "book.db")
	if err := bookfile.Copy(ctx, path, copied, "", bookfile.LogEnd, bookfile.MarkEnd); err != nil { // what the mark says of a lost end counts, too
		return nil, err
	}
	opts.ReadOnly, opts.Synchronous = false, cmp.Or(opts.Synchronous, "normal")
	b, err := Open(copied, opts)
	if err != nil {
		return nil, err
	}
	found, err := b.Check(ctx)
	return found, errors.Join(err, b.Close())
}
