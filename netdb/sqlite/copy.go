package sqlite

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"

	"github.com/ipamd/ipamd/migrations"
	"github.com/ipamd/ipamd/netdb/bookfile"
)

// A Copy is a connection to a copy of a file that may be broken, or any user's. It only reads.
type Copy struct {
	*sql.Conn
	db     *sql.DB
	schema schema
	broken error // why the schema cannot be read
	old    bool
}

// OpenCopy opens a copy.
func OpenCopy(ctx context.Context, path string) (*Copy, error) {
	db, err := sql.Open("sqlite", fileURI(path, harden(url.Values{"mode": {"rw"}, "_pragma": {"query_only(1)"}})))
	if err != nil {
		return nil, err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	c := &Copy{Conn: conn, db: db}
	if err := limit(conn); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.schema, c.broken = readSchema(ctx, conn)
	c.old = c.schema.sum() == beforeRelease
	return c, nil
}

// Close closes the copy, with which its log is folded.
func (c *Copy) Close() error { return errors.Join(c.Conn.Close(), c.db.Close()) }

// Old reports that the last build before 0.1.0 made it.
func (c *Copy) Old() bool { return c.old }

// HasColumn reports that a table has a column.
func (c *Copy) HasColumn(table, column string) bool { return c.schema.has(table, column) }

// Ours returns nil when the tables are as one of this build's schemas has them.
func (c *Copy) Ours(ctx context.Context, tables ...string) error {
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

// IsFile reports whether a file begins as those of SQLite do.
func IsFile(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	start := make([]byte, len(magic))
	_, err = io.ReadFull(f, start)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = nil
	}
	return string(start) == magic, errors.Join(err, f.Close())
}

// RepairHeader writes the header that every book has (SQLite's file format,
// section 1.3) over one that is destroyed, in a copy.
func RepairHeader(path string) (repaired bool, err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return false, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return false, err
	}
	was := make([]byte, len(magic))
	if _, err := f.ReadAt(was, 0); err != nil || string(was) == magic || st.Size() < bookfile.PageSize {
		return false, nil // whole, or nothing behind it
	}
	h := make([]byte, 0, 100)
	h = append(h, magic...)
	h = binary.BigEndian.AppendUint16(h, bookfile.PageSize)
	h = append(h, 2, 2, 0, 64, 32, 32) // WAL; payload fractions, fixed
	for _, v := range [...]uint32{1, uint32(st.Size() / bookfile.PageSize), 0, 0, 1, 4, 0, 0, 1, 0, 0, applicationID} {
		h = binary.BigEndian.AppendUint32(h, v)
	}
	h = append(h[:92], 0, 0, 0, 1, 0, 0, 0, 0)
	_, err = f.WriteAt(h, 0)
	return true, err
}
