package netdb

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/ipamd/ipamd/migrations"
	"github.com/ipamd/ipamd/netdb/bookfile"
)

// A bookCopy is a connection to a copy, and which tables of it are as ipamd makes them.
type bookCopy struct {
	*sql.Conn
	db     *sql.DB
	schema schema
	broken error // why the schema cannot be read
	old    bool  // a build before 0.1.0 made it
}

// columns are those of the leases and of the changes, as this build names them.
func (c *bookCopy) columns() (leases, changes string) {
	leases = leaseColumns
	if !c.schema.has("leases", "prefix_length") {
		leases = strings.Replace(leases, "prefix_length, last_ip", "NULL, NULL", 1)
	}
	if !c.old {
		return leases, changeColumns
	}
	return strings.Replace(leases, "ip, address", "key, ip", 1), strings.Replace(changeColumns, "address", "ip", 1)
}

func openCopy(ctx context.Context, path string) (*bookCopy, error) {
	db, err := sql.Open("sqlite", fileURI(path, harden(url.Values{"mode": {"rw"}, "_pragma": {"query_only(1)"}})))
	if err != nil {
		return nil, err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	c := &bookCopy{Conn: conn, db: db}
	if err := limit(conn); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.schema, c.broken = readSchema(ctx, conn)
	c.old = c.schema.sum() == beforeRelease
	return c, nil
}

func (c *bookCopy) Close() error { return errors.Join(c.Conn.Close(), c.db.Close()) }

// has returns nil when the tables are as one of this build's schemas has them.
func (c *bookCopy) has(ctx context.Context, tables ...string) error {
	if c.broken != nil || c.old {
		return c.broken
	}
	for _, table := range tables {
		ours := false
		for all := migrations.All(); len(all) > 0 && !ours; all = all[:len(all)-1] {
			want, err := schemaOf(ctx, all)
			if err != nil {
				return err
			}
			ours = c.schema.table(table, want)
		}
		if !ours {
			return fmt.Errorf("table %s is missing, or not as ipamd makes it, and is not read", table)
		}
	}
	return nil
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
	c, err := openCopy(ctx, copied)
	if err != nil {
		return "", err
	}
	var epoch string
	var rev int64
	read := c.has(ctx, "book", "changes", "leases")
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

// repairHeader writes the header that every book has (SQLite's file format,
// section 1.3) over one that is destroyed, in the copy.
func repairHeader(path string) (repaired bool, err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return false, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return false, err
	}
	was := make([]byte, len(sqliteMagic))
	if _, err := f.ReadAt(was, 0); err != nil || string(was) == sqliteMagic || st.Size() < bookfile.PageSize {
		return false, nil // whole, or nothing behind it
	}
	h := make([]byte, 0, 100)
	h = append(h, sqliteMagic...)
	h = binary.BigEndian.AppendUint16(h, bookfile.PageSize)
	h = append(h, 2, 2, 0, 64, 32, 32) // WAL; payload fractions, fixed
	for _, v := range [...]uint32{1, uint32(st.Size() / bookfile.PageSize), 0, 0, 1, 4, 0, 0, 1, 0, 0, applicationID} {
		h = binary.BigEndian.AppendUint32(h, v)
	}
	h = append(h[:92], 0, 0, 0, 1, 0, 0, 0, 0)
	_, err = f.WriteAt(h, 0)
	return true, err
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
