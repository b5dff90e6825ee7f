package netdb

import (
	"context"
	"fmt"
	"strings"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/sqlite"
)

// A Version is the schema of a file that is read and not migrated: of a broken book, or of an
// earlier ipamd's. It has the query and the reading of each table.
type Version struct {
	Schema int  // its number; 0 where it cannot be read
	Old    bool // a build before 0.1.0 made it
	Has    func(table, column string) bool
}

// A Table is how the rows of one are read, whole and each by itself.
type Table[T any] struct {
	Name  string // "": the version has none
	Query string // without an order
	By    string // the column to order by
	Scan  func(sqlite.Scanner) (T, error)
}

// A RowError is about one row that cannot be read. Any other error is about the file.
type RowError struct {
	Row string       // what names it, in words for a person
	Of  []ipam.Range // the addresses that it may be of, the largest ranges first
	Err error
}

func (e *RowError) Error() string { return e.Row + ": " + e.Err.Error() }

func (e *RowError) Unwrap() error { return e.Err }

// Leases are the rows of addresses, without their pools' names. What cannot be read is a [RowError].
func (v Version) Leases() Table[*ipam.Lease] {
	columns := leaseColumns
	if !v.Has("leases", "prefix_length") {
		columns = strings.Replace(columns, "prefix_length, last_ip", "NULL, NULL", 1)
	}
	if v.Old {
		columns = strings.Replace(columns, "ip, address", "key, ip", 1)
	}
	return Table[*ipam.Lease]{"leases", `SELECT ` + columns + ` FROM leases`, "ip", func(s sqlite.Scanner) (*ipam.Lease, error) {
		l, n, err := scanLease(s)
		if err != nil {
			return nil, &RowError{fmt.Sprintf("row %q", n.text), n.means(), err}
		}
		return l, nil
	}}
}

// Changes are those of addresses.
func (v Version) Changes() Table[ipam.Change] {
	columns := changeColumns
	if v.Old {
		columns = strings.Replace(columns, "address", "ip", 1)
	}
	return Table[ipam.Change]{"changes", `SELECT ` + columns + ` FROM changes WHERE subject = 'lease'`, "rev", scanChange}
}

// LeftBy is the row that a change left behind, as far as it says: without plumbing. It is nil where none was left.
func LeftBy(c *ipam.Change) *ipam.Lease {
	if !known(c.To) {
		return nil
	}
	l := &ipam.Lease{Addr: c.Addr, PrefixLen: c.PrefixLen, ID: c.LeaseID, PoolUID: c.PoolUID, State: c.To, Sandbox: c.Sandbox, UID: c.UID,
		Interface: c.Interface, Attempt: c.Attempt, Rev: c.Rev, Since: c.At, Evidence: c.Evidence, Reason: c.Who.Reason}
	if c.To == ipam.Quarantined && c.From != ipam.Releasing {
		l.Hold = c.Who.Note
	}
	return l
}

// Withheld are the addresses of removed pools. What cannot be read is a [RowError].
func (v Version) Withheld() Table[ipam.Withheld] {
	if v.Old || v.Schema == 1 { // a book of 0.1.0 has none
		return Table[ipam.Withheld]{}
	}
	columns := withheldColumns
	if !v.Has("withheld", "bridge") {
		columns = strings.Replace(columns, withheldPlumbing, "'', '', '', ''", 1)
	}
	return Table[ipam.Withheld]{"withheld", `SELECT ` + columns + ` FROM withheld`, "ip", func(s sqlite.Scanner) (ipam.Withheld, error) {
		w, n, err := scanWithheld(s)
		if err == nil && !w.Addr.IsValid() {
			err = fmt.Errorf("%q is not %x", n.text, n.ip)
		}
		if err != nil {
			err = &RowError{fmt.Sprintf("what is withheld of %q", n.text), n.means(), err}
		}
		return w, err
	}}
}

// Pools are those of the book; of one of before 0.1.0 the configuration has them.
func (v Version) Pools() Table[*ipam.Pool] {
	if v.Old {
		return Table[*ipam.Pool]{}
	}
	return Table[*ipam.Pool]{"pools", `SELECT ` + poolColumns + ` FROM pools`, "uid", scanPool}
}

// PoolNames is what is remembered of pools' names. A book of 0.1.0 has no such table: there the
// configuration was all that made a pool, see [ipam.Pool.Configured].
func (v Version) PoolNames() Table[ipam.PoolName] {
	if v.Old || v.Schema == 1 {
		return Table[ipam.PoolName]{}
	}
	return Table[ipam.PoolName]{"pool_names", readPoolNames, "name", scanPoolName}
}

// Configured is what is remembered of the pool's name where the configuration gave the pool as it is.
func Configured(p *ipam.Pool) ipam.PoolName {
	_, hash := encodeSpec(&p.PoolSpec)
	return ipam.PoolName{Name: p.Name, Family: p.Family(), Generation: 0, Configured: hash}
}

// HostNames are the interface names that are leased.
func (v Version) HostNames() Table[ipam.HostName] {
	if v.Old || v.Schema < 3 { // a book of then has none
		return Table[ipam.HostName]{}
	}
	return Table[ipam.HostName]{"interface_names", readHostNames, "rev", scanHostName}
}

// Sleeps is how paused sandboxes sleep. What cannot be read is a [RowError].
func (v Version) Sleeps() Table[*ipam.Sleep] {
	if v.Old || v.Schema < 5 { // a book of then has none
		return Table[*ipam.Sleep]{}
	}
	query := readSleeps
	if !v.Has("sleeps", "still") {
		query = strings.Replace(query, "still", "1", 1)
	}
	return Table[*ipam.Sleep]{"sleeps", query, "lease_id", func(s sqlite.Scanner) (*ipam.Sleep, error) {
		how, bad, err := scanSleep(s)
		if bad != nil {
			return nil, &RowError{Row: "the sleep of lease " + how.LeaseID, Err: bad}
		}
		return how, err
	}}
}

// A CancelledAttempt is one of which no allocation may follow, nor one of an attempt
// before it, for [Options.Tombstone] since At.
type CancelledAttempt struct {
	UID     string
	Attempt int64
	At      ipam.Stamp
}

// Cancelled are the attempts of which no allocation may follow.
func (v Version) Cancelled() Table[CancelledAttempt] {
	if v.Old {
		return Table[CancelledAttempt]{}
	}
	return Table[CancelledAttempt]{"tombstones", readTombs, "uid", func(s sqlite.Scanner) (CancelledAttempt, error) {
		uid, t, err := scanTomb(s)
		return CancelledAttempt{uid, t.attempt, t.at}, err
	}}
}

// EndOf reads the epoch and the last revision of a file of whatever version.
func EndOf(ctx context.Context, q sqlite.Querier) (epoch string, rev int64, err error) {
	err = q.QueryRowContext(ctx, `SELECT epoch, `+lastRev+` FROM book`).Scan(&epoch, &rev)
	return epoch, rev, err
}
