package netdb

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Salvaged is what could be read of a broken book. Witnesses can tell again
// who is live; they cannot tell whose book it was, which addresses rested, and
// which sandboxes slept without a container.
type Salvaged struct {
	Epoch, RunnerUID, MachineID string // "" when they could not be read
	// Runtime is the id of the container runtime that its containers are in; ""
	// when it could not be read, or none had answered.
	Runtime string

	// Leases has every row that could be read, in numeric order of the
	// addresses; and for an address whose row is lost what its newest readable
	// change says: state, owner and id, but no plumbing. Pool is empty.
	Leases []*Lease
	// Named are addresses of rows of which nothing else can be read.
	Named []netip.Addr
	// Problems tells what could not be read, in words for a person.
	Problems []string
}

// salvageDeadline bounds all reading: a broken tree may be a long one.
const salvageDeadline = time.Minute

// Salvage reads what it can of the broken book at path, its log included. It
// works on a copy in the folder for temporary files, so that not a byte of the
// original changes. What cannot be read is told, not fatal: the error is about
// a file that cannot be copied. Around a broken page the rest is found; behind
// a lost schema nothing is.
//
// Nothing of it may be written into another book as if it were true. An
// address that no workload claims is quarantined there by an operator, and
// then: one that cooled is cleared at once, which starts its cooldown again;
// one that was open or releasing waits, for nobody has confirmed its removal.
func Salvage(path string) (Salvaged, error) {
	path, err := RealPath(path)
	if err != nil {
		return Salvaged{}, fmt.Errorf("salvage %s: %w", path, err)
	}
	dir, err := os.MkdirTemp("", "ipamd-salvage-")
	if err != nil {
		return Salvaged{}, fmt.Errorf("salvage %s: %w", path, err)
	}
	defer os.RemoveAll(dir)
	copied := filepath.Join(dir, "book.db")
	if err := errors.Join(copyFile(path, copied), copyFile(path+"-wal", copied+"-wal")); err != nil {
		return Salvaged{}, fmt.Errorf("salvage %s: %w", path, err)
	}
	var s Salvaged
	mended, err := mendHeader(copied)
	if err != nil {
		return s, fmt.Errorf("salvage %s: %w", path, err)
	}
	if mended {
		s.Problems = append(s.Problems, "the file's header is destroyed; read with the one that a book has")
	}
	ctx, cancel := context.WithTimeout(context.Background(), salvageDeadline)
	defer cancel()
	why, err := brokenLog(ctx, path, copied)
	if err != nil {
		return s, fmt.Errorf("salvage %s: %w", path, err)
	}
	if why != "" {
		s.Problems = append(s.Problems, "the log: "+why+"; read with all that lies behind")
		if err := joinLog(copied + "-wal"); err != nil {
			return s, fmt.Errorf("salvage %s: %w", path, err)
		}
	}
	db, err := openCopy(copied)
	if err != nil {
		return s, fmt.Errorf("salvage %s: %w", path, err)
	}
	defer db.Close()
	s.read(ctx, db)
	return s, nil
}

func openCopy(path string) (*sql.DB, error) {
	return sql.Open("sqlite", fileURI(path, url.Values{"mode": {"rw"}, "_pragma": {"query_only(1)"}}))
}

// brokenLog says why SQLite would stop in a log before the end of what was
// acknowledged, "" when it would not. It looks at a copy, and at the mark beside the
// book.
func brokenLog(ctx context.Context, book, copied string) (string, error) {
	end, err := readLog(copied + "-wal")
	if err != nil || end.broken != "" || end.bad == 0 {
		return end.broken, err
	}
	m, err := readMark(book)
	if err != nil || m == nil {
		return "", err
	}
	bytes, err := os.ReadFile(copied + "-wal") // to close a copy folds it
	if err != nil {
		return "", err
	}
	db, err := openCopy(copied)
	if err != nil {
		return "", err
	}
	var epoch string
	var rev int64
	read := db.QueryRowContext(ctx, `SELECT epoch, (SELECT seq FROM sqlite_sequence WHERE name = 'changes') FROM book`).Scan(&epoch, &rev)
	if err := errors.Join(db.Close(), os.WriteFile(copied+"-wal", bytes, 0o600)); err != nil {
		return "", err
	}
	if read != nil || epoch != m.epoch || rev >= m.rev {
		return "", nil
	}
	return fmt.Sprintf("frame %d of it is not whole, and revision %d was acknowledged", end.bad, m.rev), nil
}

func (s *Salvaged) read(ctx context.Context, db *sql.DB) {
	if err := db.QueryRowContext(ctx, `SELECT epoch, runner_uid, machine_id FROM book`).
		Scan(&s.Epoch, &s.RunnerUID, &s.MachineID); err != nil {
		s.problem("read whose book it is", err)
	}
	if err := db.QueryRowContext(ctx, `SELECT runtime_id FROM book`).Scan(&s.Runtime); err != nil {
		s.problem("read which runtime its containers are in", err)
	}
	rows := make(map[netip.Addr]*Lease)
	named := make(map[netip.Addr]bool)
	s.bothWays(ctx, db, `SELECT `+leaseColumns+` FROM leases ORDER BY ip`, func(sc scanner) error {
		l, n, err := scanLease(sc)
		if err == nil {
			rows[l.Addr] = l
			return nil
		}
		s.problem(fmt.Sprintf("read row %q", n.ip), err)
		for _, a := range n.addrs() {
			named[a] = true
		}
		return nil
	})
	last := make(map[netip.Addr]Change)
	s.bothWays(ctx, db, `SELECT `+changeColumns+` FROM changes WHERE subject = 'lease' ORDER BY rev`, func(sc scanner) error {
		c, err := scanChange(sc)
		if err == nil && c.Addr.IsValid() && c.Rev > last[c.Addr].Rev {
			last[c.Addr] = c
		}
		return nil
	})
	for a, c := range last {
		if rows[a] == nil && c.To != Free && known(c.To) {
			rows[a] = &Lease{Addr: a, ID: c.LeaseID, PoolUID: c.PoolUID, State: c.To, Sandbox: c.Sandbox, UID: c.UID,
				Interface: c.Interface, Rev: c.Rev, Since: c.At, Evidence: c.Evidence, Reason: c.Who.Reason, Hold: c.hold()}
		}
	}
	for a, l := range rows {
		s.Leases = append(s.Leases, l)
		delete(named, a)
	}
	for a := range named {
		s.Named = append(s.Named, a)
	}
	slices.SortFunc(s.Leases, func(x, y *Lease) int { return x.Addr.Compare(y.Addr) })
	slices.SortFunc(s.Named, netip.Addr.Compare)
}

// bothWays reads from the front until a broken page, and then from the back:
// what lies behind the page is whole.
func (s *Salvaged) bothWays(ctx context.Context, db *sql.DB, query string, row func(scanner) error) {
	for _, order := range []string{" ASC", " DESC"} {
		err := each(ctx, db, query+order, row)
		if err == nil {
			return
		}
		s.problem("read the rows"+order, err)
	}
}

func (s *Salvaged) problem(doing string, err error) {
	if text := doing + ": " + err.Error(); !slices.Contains(s.Problems, text) {
		s.Problems = append(s.Problems, text)
	}
}

// copyFile copies a file; one that is not there is an error for the book, and
// none for its log.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if errors.Is(err, fs.ErrNotExist) && filepath.Ext(to) != ".db" {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// bookPage is the size of a book's pages in bytes, SQLite's own default.
const bookPage = 4096

// mendHeader writes the header that every book has (SQLite's file format,
// section 1.3) over one that is destroyed, in the copy.
func mendHeader(path string) (mended bool, err error) {
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
	if _, err := f.ReadAt(was, 0); err != nil || string(was) == sqliteMagic || st.Size() < bookPage {
		return false, nil // whole, or nothing behind it
	}
	h := make([]byte, 0, 100)
	h = append(h, sqliteMagic...)
	h = binary.BigEndian.AppendUint16(h, bookPage)
	h = append(h, 2, 2, 0, 64, 32, 32) // WAL; payload fractions, fixed
	for _, v := range [...]uint32{1, uint32(st.Size() / bookPage), 0, 0, 1, 4, 0, 0, 1, 0, 0, applicationID} {
		h = binary.BigEndian.AppendUint32(h, v)
	}
	h = append(h[:92], 0, 0, 0, 1, 0, 0, 0, 0)
	_, err = f.WriteAt(h, 0)
	return true, err
}
