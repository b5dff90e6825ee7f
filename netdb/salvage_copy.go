package netdb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ipamd/ipamd/netdb/bookfile"
	"github.com/ipamd/ipamd/netdb/sqlite"
)

// columns are those of the leases and of the changes, as this build names them.
func columns(c *sqlite.Copy) (leases, changes string) {
	leases = leaseColumns
	if !c.HasColumn("leases", "prefix_length") {
		leases = strings.Replace(leases, "prefix_length, last_ip", "NULL, NULL", 1)
	}
	if !c.Old() {
		return leases, changeColumns
	}
	return strings.Replace(leases, "ip, address", "key, ip", 1), strings.Replace(changeColumns, "address", "ip", 1)
}

// brokenLog says why SQLite would stop in a log before the end of what was
// acknowledged, "" when it would not. It looks at a copy, and at the mark beside the
// book.
func brokenLog(ctx context.Context, book, copied string) (string, error) {
	end, err := bookfile.ReadLog(copied)
	if err != nil || end.Broken != "" || end.Bad == 0 {
		return end.Broken, err
	}
	m, err := bookfile.ReadMark(book)
	if err != nil || m == nil {
		return "", err
	}
	bytes, err := os.ReadFile(copied + bookfile.LogEnd) // to close a copy folds it
	if err != nil {
		return "", err
	}
	c, err := sqlite.OpenCopy(ctx, copied)
	if err != nil {
		return "", err
	}
	var epoch string
	var rev int64
	read := c.Ours(ctx, "book", "changes", "leases")
	if read == nil {
		read = c.QueryRowContext(ctx, `SELECT epoch, `+lastRev+` FROM book`).Scan(&epoch, &rev)
	}
	if err := errors.Join(c.Close(), os.WriteFile(copied+bookfile.LogEnd, bytes, 0o600)); err != nil {
		return "", err
	}
	if read != nil || epoch != m.Epoch || rev >= m.Rev {
		return "", nil
	}
	return fmt.Sprintf("frame %d of it is not whole, and revision %d was acknowledged", end.Bad, m.Rev), nil
}

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
