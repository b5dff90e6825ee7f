// Package salvage reads what it can of a book that cannot be opened, or that is another's: on a copy,
// so that not a byte of the file changes.
package salvage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/netdb/bookfile"
	"github.com/ipamd/ipamd/netdb/sqlite"
)

// Found is what could be read of a broken book. Witnesses can report again
// which workloads live; they cannot report whose book it was, which addresses cooled, and
// which sandboxes slept without a container.
type Found struct {
	Epoch, RunnerUID, MachineID string // "" when they could not be read
	// Runtime is the id of the container runtime that its containers are in; ""
	// when it could not be read, or none had answered.
	Runtime string

	// Leases has every row that could be read, in numeric order of the
	// addresses; and for an address whose row is lost what its newest readable
	// change says: state, owner and id, but no plumbing. Pool is empty.
	Leases []*ipam.Lease
	// Pools are those that could be read, Names what is remembered of pools' names; HostNames
	// the interface names that are leased.
	Pools     []*ipam.Pool
	Names     []ipam.PoolName
	HostNames []ipam.HostName
	// Withheld are the rows of Leases that outlived their pool, as they were recorded.
	Withheld map[netip.Addr]ipam.Withheld
	// Sleeps says how the sandboxes of paused leases are paused and what wakes them, by the
	// leases' ids.
	Sleeps map[string]*ipam.Sleep
	// Cancelled are the attempts of which no allocation may follow.
	Cancelled []netdb.CancelledAttempt
	// Ended has the ids of leases that the history knows to have ended.
	Ended map[string]bool
	// Subnets are the prefixes that the predecessor had given away, by what it had called
	// the holder.
	Subnets map[netip.Prefix]string
	// Named are addresses, and whole delegated prefixes, of rows of which nothing else can be read.
	Named []ipam.Range
	// Problems says what could not be read, in words for a person.
	Problems []string
}

// within bounds all copying and reading: a file may be endless, or a broken tree
// a long one.
const within = 5 * time.Minute

// onCopy calls fn with the real path of a file, and with a copy of it in the folder for temporary files.
func onCopy(ctx context.Context, doing, path string, parts []string, fn func(ctx context.Context, path, copied string) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := func() error {
		real, err := bookfile.RealPath(path)
		if err != nil {
			return err
		}
		dir, err := os.MkdirTemp("", "ipamd-salvage-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		copied := filepath.Join(dir, "book.db")
		if err := bookfile.Copy(ctx, real, copied, parts...); err != nil {
			return err
		}
		return fn(ctx, real, copied)
	}()
	if err != nil {
		return fmt.Errorf("%s %s: %w", doing, path, err)
	}
	return nil
}

// Book reads what it can of the broken book at path, its log included. What cannot be read is
// reported, not fatal: the error is about
// a file that cannot be copied. Around a broken page the rest is found; behind
// a lost schema nothing is. A table that is not as ipamd makes it is not read: it
// may be a view without an end.
//
// Nothing of it may be written into another book as if it were true. An
// address that no workload claims is quarantined there by an operator, and
// then: one that cooled is cleared at once, which starts its cooldown again;
// one that was open or releasing waits, for its removal is not confirmed.
func Book(path string) (s Found, err error) {
	err = onCopy(context.Background(), "salvage", path, []string{"", bookfile.LogEnd}, s.salvage)
	return s, err
}

func (s *Found) salvage(ctx context.Context, path, copied string) error {
	repaired, err := sqlite.RepairHeader(copied)
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
	c, err := sqlite.OpenCopy(ctx, copied)
	if err != nil {
		return err
	}
	s.read(ctx, c)
	return c.Close()
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
		epoch, rev, read = netdb.EndOf(ctx, c)
	}
	if err := errors.Join(c.Close(), os.WriteFile(copied+bookfile.LogEnd, bytes, 0o600)); err != nil {
		return "", err
	}
	if read != nil || epoch != m.Epoch || rev >= m.Rev {
		return "", nil
	}
	return fmt.Sprintf("frame %d of it is not whole, and revision %d was acknowledged", end.Bad, m.Rev), nil
}

// CheckMigrated is [netdb.Book.Check] of a book that an older ipamd wrote, as this one would have
// it: on a copy, which is migrated.
func CheckMigrated(ctx context.Context, path string, opts netdb.Options) (found []netdb.Violation, err error) {
	parts := []string{"", bookfile.LogEnd, bookfile.MarkEnd} // what the mark says of a lost end counts, too
	err = onCopy(ctx, "check a migrated copy of", path, parts, func(ctx context.Context, _, copied string) error {
		opts.ReadOnly, opts.Synchronous = false, cmp.Or(opts.Synchronous, "normal")
		b, err := netdb.Open(copied, opts)
		if err != nil {
			return err
		}
		found, err = b.Check(ctx)
		return errors.Join(err, b.Close())
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}
