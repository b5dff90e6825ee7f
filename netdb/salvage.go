package netdb

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ipamd/ipamd/migrations"
	"github.com/ipamd/ipamd/netdb/bookfile"
)

// Salvaged is what could be read of a broken book. Witnesses can report again
// which workloads live; they cannot report whose book it was, which addresses rested, and
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
	// Pools are those that could be read, Names what is remembered of pools' names; HostNames
	// the interface names that are leased.
	Pools     []*Pool
	Names     []PoolName
	HostNames []HostName
	// Withheld are the rows of Leases that outlived their pool, as they were recorded.
	Withheld map[netip.Addr]Withheld
	// Sleeps says how the sandboxes of paused leases are paused and what wakes them, by the
	// leases' ids.
	Sleeps map[string]*Sleep
	// Cancelled are the attempts of which no allocation may follow.
	Cancelled []CancelledAttempt
	// Ended has the ids of leases that the history knows to have ended.
	Ended map[string]bool
	// Subnets are the prefixes that the predecessor had given away, by what it had called
	// the holder.
	Subnets map[netip.Prefix]string
	// Named are addresses, and whole delegated prefixes, of rows of which nothing else can be read.
	Named []Range
	// Problems says what could not be read, in words for a person.
	Problems []string
}

// salvageWithin bounds all copying and reading: a file may be endless, or a broken tree
// a long one.
const salvageWithin = 5 * time.Minute

// Salvage reads what it can of the broken book at path, its log included. It
// works on a copy in the folder for temporary files, so that not a byte of the
// original changes. What cannot be read is reported, not fatal: the error is about
// a file that cannot be copied. Around a broken page the rest is found; behind
// a lost schema nothing is. A table that is not as ipamd makes it is not read: it
// may be a view without an end.
//
// Nothing of it may be written into another book as if it were true. An
// address that no workload claims is quarantined there by an operator, and
// then: one that cooled is cleared at once, which starts its cooldown again;
// one that was open or releasing waits, for its removal is not confirmed.
func Salvage(path string) (s Salvaged, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), salvageWithin)
	defer cancel()
	real, err := bookfile.RealPath(path)
	if err == nil {
		err = s.salvage(ctx, real)
	}
	if err != nil {
		return s, fmt.Errorf("salvage %s: %w", path, err)
	}
	return s, nil
}

func (s *Salvaged) salvage(ctx context.Context, path string) error {
	dir, err := os.MkdirTemp("", "ipamd-salvage-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	copied := filepath.Join(dir, "book.db")
	if err := bookfile.Copy(ctx, path, copied, "", bookfile.LogEnd); err != nil {
		return err
	}
	repaired, err := repairHeader(copied)
	if err != nil {
		return err
	}
	if repaired {
		s.Problems = append(s.Problems, "the file's header is destroyed; read with the one that a book has")
	}
	why, err := brokenLog(ctx, path, copied)
	if err != nil {
		return err
	}
	if why != "" {
		s.Problems = append(s.Problems, "the log: "+why+"; read with all that lies behind")
		if err := bookfile.JoinLog(copied); err != nil {
			return err
		}
	}
	c, err := openCopy(ctx, copied)
	if err != nil {
		return err
	}
	s.read(ctx, c)
	return c.Close()
}

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

func (s *Salvaged) read(ctx context.Context, c *bookCopy) {
	if err := c.has(ctx, "book"); err != nil {
		s.problem("read whose book it is", err)
	} else {
		if err := c.QueryRowContext(ctx, `SELECT epoch, runner_uid, machine_id, runtime_id FROM book`).
			Scan(&s.Epoch, &s.RunnerUID, &s.MachineID, &s.Runtime); err != nil {
			s.problem("read whose book it is", err)
		}
	}
	leases, changes := c.columns()
	s.Ended = make(map[string]bool)
	s.Withheld = make(map[netip.Addr]Withheld)
	rows := make(map[netip.Addr]*Lease)
	var named []Range
	s.bothWays(ctx, c, "leases", `SELECT `+leases+` FROM leases ORDER BY ip`, func(sc scanner) error {
		l, n, err := scanLease(sc)
		if err == nil {
			rows[l.Addr] = l
			return nil
		}
		s.problem(fmt.Sprintf("read row %q", n.text), err)
		named = append(named, n.means()...)
		return nil
	})
	last := make(map[netip.Addr]Change)
	s.bothWays(ctx, c, "changes", `SELECT `+changes+` FROM changes WHERE subject = 'lease' ORDER BY rev`, func(sc scanner) error {
		c, err := scanChange(sc)
		if err == nil && c.Addr.IsValid() && c.Rev > last[c.Addr].Rev {
			last[c.Addr] = c
		}
		if err == nil && (c.To == Cooling || c.To == Free) {
			s.Ended[c.LeaseID] = true
		}
		return nil
	})
	for a, c := range last {
		if rows[a] == nil && c.To != Free && known(c.To) {
			rows[a] = &Lease{Addr: a, PrefixLen: c.PrefixLen, ID: c.LeaseID, PoolUID: c.PoolUID, State: c.To, Sandbox: c.Sandbox, UID: c.UID,
				Interface: c.Interface, Attempt: c.Attempt, Rev: c.Rev, Since: c.At, Evidence: c.Evidence, Reason: c.Who.Reason, Hold: c.hold()}
		}
	}
	var schema int
	if err := c.QueryRowContext(ctx, `PRAGMA user_version`).Scan(&schema); err != nil {
		s.problem("read its schema", err)
	}
	if !c.old && schema != 1 { // a book of 0.1.0 has no such table
		columns := withheldColumns
		if !c.schema.has("withheld", "bridge") {
			columns = strings.Replace(columns, withheldPlumbing, "'', '', '', ''", 1)
		}
		s.bothWays(ctx, c, "withheld", `SELECT `+columns+` FROM withheld ORDER BY ip`, func(sc scanner) error {
			w, n, err := scanWithheld(sc)
			if err != nil || !w.Addr.IsValid() {
				named = append(named, n.means()...)
			} else if rows[w.Addr] == nil {
				rows[w.Addr] = &Lease{Addr: w.Addr, PrefixLen: w.PrefixLen, ID: w.LeaseID, PoolUID: w.PoolUID, State: w.State, Sandbox: w.Sandbox, UID: w.UID,
					Interface: w.Interface, Rev: w.Rev, Since: w.Since, Evidence: w.Evidence, Reason: PoolRemoved, Hold: w.Hold,
					HostInterface: w.HostInterface, Netns: w.Netns, Plug: w.Plug}
				s.Withheld[w.Addr] = w
			}
			return nil
		})
	}
	s.readPools(ctx, c, schema)
	s.readSleeps(ctx, c, schema)
	s.readCancelled(ctx, c)
	for _, l := range rows {
		s.Leases = append(s.Leases, l)
	}
	slices.SortFunc(s.Leases, func(x, y *Lease) int { return x.Addr.Compare(y.Addr) })
	s.Named = apart(named, s.Leases)
}

// bothWays reads from the front until a broken page, and then from the back:
// what lies behind the page is whole.
func (s *Salvaged) bothWays(ctx context.Context, copied *bookCopy, table, query string, row func(scanner) error) {
	if err := copied.has(ctx, table); err != nil {
		s.problem("read the rows", err)
		return
	}
	for _, order := range []string{" ASC", " DESC"} {
		err := each(ctx, copied, query+order, row)
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
