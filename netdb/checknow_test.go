package netdb_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// A check of a book that changes meanwhile finds it whole, at a revision that it had, and
// leaves nothing open behind it: the log is folded as before.
func TestCheckNowUnderLoad(t *testing.T) {
	b := Open(t)
	stop := make(chan struct{})
	var load sync.WaitGroup
	for i := range 4 {
		load.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				l, err := TryReserve(b, b.Pools()[0], fmt.Sprint(i, "-", n), eager)
				if err == nil && n%3 == 0 {
					_, err = b.Cancel(ctx, client, fmt.Sprint("late", i, "-", n), 1)
				}
				if err == nil {
					_, err = b.Expire(ctx, watchdog, l.ID, l.Rev, nil)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 8 {
		was := b.Rev()
		c, err := b.CheckNow(ctx)
		if err != nil || len(c.Found) > 0 || c.Rev < was || c.Rev > b.Rev() || c.Epoch != b.Epoch() {
			t.Errorf("it was at %d: %+v, %v", was, c, err)
		}
	}
	close(stop)
	load.Wait()
}

// Each of what `ipamd check` finds in a stopped book is found in a running one: what was
// changed in the file behind it, and what its memory has otherwise.
func TestCheckNowFindsWhatIsBroken(t *testing.T) {
	for name, broken := range map[string]struct{ query, invariant string }{
		"a row that cannot be read":     {`UPDATE leases SET address = '10.8.64.999'`, netdb.RowsAreReadable},
		"a row that was edited":         {`UPDATE leases SET mac = '02:00:00:00:00:09'`, netdb.RowsAreAsRecorded},
		"a row that memory has no more": {`DELETE FROM leases`, netdb.MemoryEqualsTable},
		"a change that is lost":         {`UPDATE changes SET from_state = 'paused', to_state = 'bound' WHERE subject = 'lease'`, netdb.RowsHaveTheirLast},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "book.db")
			b := OpenAt(t, path, Options(), netdb.RowsAreReadable, netdb.RowsAreAsRecorded, netdb.MemoryEqualsTable, netdb.RowsHaveTheirLast,
				netdb.HistoryIsAChain, netdb.CountsEqualRecount, netdb.FreeIsTheRest, netdb.FreedIsQueued)
			Pool(t, b, "default", "10.8.64.0/24")
			Reserve(t, b, "a")
			raw(t, path, "PRAGMA ignore_check_constraints = 1; "+broken.query)
			c, err := b.CheckNow(ctx)
			if err != nil || !slices.ContainsFunc(c.Found, func(v netdb.Violation) bool { return v.Invariant == broken.invariant }) {
				t.Errorf("found %v, %v and not %s", c.Found, err, broken.invariant)
			}
		})
	}
}

// A check of a book that is closed, or whose caller hangs up, says so.
func TestCheckNowThatCannot(t *testing.T) {
	b := Open(t)
	gone, hangUp := context.WithCancel(ctx)
	hangUp()
	if _, err := b.CheckNow(gone); err == nil {
		t.Error("a caller that hung up was answered")
	}
	if c, err := b.CheckNow(ctx); err != nil || len(c.Found) > 0 {
		t.Errorf("the next: %v, %v", c.Found, err)
	}
	Close(t, b)
	if _, err := b.CheckNow(ctx); !errors.Is(err, ipam.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}
