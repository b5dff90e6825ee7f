package netdb_test

import (
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// A book of a build before 0.1.0 is refused with what to do, not called damaged, and is
// not changed; stopped or killed, by a start and by a look. What it held is salvaged.
func TestABookOfBeforeTheReleaseIsRefusedAndSalvaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.db")
	_, leases := busyBook(t, filepath.Dir(path))
	BeforeRelease(t, path)
	db, conn := rawConn(t, path)
	if _, err := conn.ExecContext(ctx, `UPDATE book SET boot_id = 'another'`); err != nil { // in the log alone
		t.Fatal(err)
	}
	log := killed(t, path)
	if err := errors.Join(conn.Close(), db.Close()); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"stopped": path, "killed": log} {
		t.Run(name, func(t *testing.T) {
			before := contents(t, filepath.Dir(path))
			for _, readOnly := range []bool{true, false} {
				opts := Options()
				opts.ReadOnly = readOnly
				_, err := netdb.Open(path, opts)
				if !errors.Is(err, netdb.ErrOldBuild) || errors.Is(err, netdb.ErrDamaged) || !strings.Contains(err.Error(), `run "ipamd rebuild"`) {
					t.Errorf("read-only %v: %v", readOnly, err)
				}
			}
			s, err := netdb.Salvage(path)
			if err != nil || len(s.Problems) > 0 || s.RunnerUID != "r1" || s.Runtime != "c1" || s.Epoch == "" {
				t.Errorf("salvaged %+v, %v", s, err)
			}
			if gone := missing(s, leases); len(gone) > 0 || len(s.Leases) != len(leases) {
				t.Errorf("%d are salvaged, without %v", len(s.Leases), gone)
			}
			if after := contents(t, filepath.Dir(path)); !maps.Equal(after, before) {
				t.Error("it was changed")
			}
		})
	}
}

// Without its rows the history of such a book says who held what.
func TestABookOfBeforeTheReleaseWithoutItsRows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.db")
	_, leases := busyBook(t, filepath.Dir(path))
	BeforeRelease(t, path)
	raw(t, path, `DELETE FROM leases`)
	s, err := netdb.Salvage(path)
	if err != nil || len(missing(s, leases)) > 0 {
		t.Errorf("without %v: %v, %v", missing(s, leases), s.Problems, err)
	}
	if !slices.IsSortedFunc(s.Leases, func(x, y *netdb.Lease) int { return x.Addr.Compare(y.Addr) }) {
		t.Error("they are not in the order of their addresses")
	}
}
