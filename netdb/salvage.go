package netdb

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/ipamd/ipamd/netdb/bookfile"
	"github.com/ipamd/ipamd/netdb/sqlite"
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

// A CancelledAttempt is one of which no allocation may follow, nor one of an attempt
// before it, for [Options.Tombstone] since At.
type CancelledAttempt struct {
	UID     string
	Attempt int64
	At      Stamp
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
