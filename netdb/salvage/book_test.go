package salvage_test

import (
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/ipam"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
	"github.com/ipamd/ipamd/netdb/salvage"
)

// What is left of a book that was moved aside with its log: all of a whole
// one, and as much as can be read of a broken one. Nothing is changed.
func TestL13Salvage(t *testing.T) {
	whole, leases := Busy(t, t.TempDir())
	zero := func(b []byte, from, n int) []byte {
		b = slices.Clone(b)
		clear(b[from : from+n])
		return b
	}
	for name, tt := range map[string]struct {
		file     []byte
		owner    string
		least    int // leases that come back as they were
		problems bool
	}{
		"whole":                      {whole, "r1", len(leases), false},
		"the header is destroyed":    {zero(whole, 0, 100), "r1", len(leases), true},
		"the first page is zero":     {zero(whole, 0, 4096), "", 0, true},
		"cut in half":                {whole[:len(whole)/2/4096*4096], "", 0, true},
		"empty":                      {nil, "", 0, true},
		"a text":                     {[]byte("dear diary"), "", 0, true},
		"a text of more than a page": {slices.Repeat([]byte("dear diary "), 1000), "", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "book.db.broken")
			if err := os.WriteFile(path, tt.file, 0o400); err != nil {
				t.Fatal(err)
			}
			s, err := salvage.Book(path)
			if err != nil {
				t.Fatal(err)
			}
			if lost := Missing(s.Leases, leases); s.RunnerUID != tt.owner || len(leases)-len(lost) < tt.least || len(s.Problems) > 0 != tt.problems {
				t.Errorf("%q's book, without %v, problems %q", s.RunnerUID, lost, s.Problems)
			}
			if tt.owner != "" && (s.MachineID != "m1" || s.Epoch == "" || s.Runtime != "c1") {
				t.Errorf("it was %+v", s)
			}
			if after, err := os.ReadFile(path); err != nil || !slices.Equal(after, tt.file) || len(files(t, dir)) != 1 {
				t.Errorf("it was changed (%v), and there are %v", err, files(t, dir))
			}
		})
	}
	if _, err := salvage.Book(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// One page at a time is destroyed: every lease comes back, from its own row or
// from the history; without a history those on other pages do, on both sides
// of the broken one. Where the page had which tables there are, nothing does,
// and that is said.
func TestL13SalvageAroundABrokenPage(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil string
		most  int // leases that one page takes with it
	}{
		"with its history":    {`SELECT 1`, 0},
		"without its history": {`DELETE FROM changes; VACUUM`, 15},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "book.db")
			whole, leases := Busy(t, t.TempDir())
			if err := os.WriteFile(path, whole, 0o600); err != nil {
				t.Fatal(err)
			}
			raw(t, path, tt.spoil)
			whole, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			read, unread := 0, 0
			for at := 4096; at < len(whole); at += 4096 {
				broken := slices.Clone(whole)
				clear(broken[at : at+4096])
				if err := os.WriteFile(path, broken, 0o600); err != nil {
					t.Fatal(err)
				}
				s, err := salvage.Book(path)
				if err != nil {
					t.Fatal(err)
				}
				gone := Missing(s.Leases, leases)
				if len(gone) > 0 && len(s.Problems) == 0 {
					t.Errorf("page %d: lost %v without a word", at/4096+1, gone)
				}
				switch {
				case len(gone) <= tt.most:
					read++
				case len(s.Leases) == 0:
					unread++
				default:
					t.Errorf("page %d: lost %v; problems %q", at/4096+1, gone, s.Problems)
				}
			}
			t.Logf("of %d broken books %d were read", read+unread, read)
			if read < 3*unread { // the tables are described in four pages of eighteen, however many leases there are
				t.Errorf("%d pages took everything with them, %d did not", unread, read)
			}
		})
	}
}

// The newest changes are in the log, when the daemon was killed.
func TestSalvageReadsTheLog(t *testing.T) {
	path, copied := filepath.Join(t.TempDir(), "book.db"), filepath.Join(t.TempDir(), "book.db.broken")
	b := OpenAt(t, path, Options())
	Pool(t, b, "default", "10.8.64.0/24")
	l := Cool(t, b, Reserve(t, b, "a"))
	for _, part := range []string{"", "-wal"} {
		text, err := os.ReadFile(path + part)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(copied+part, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := salvage.Book(copied)
	if err != nil || len(Missing(s.Leases, []*ipam.Lease{l})) > 0 || len(s.Problems) > 0 {
		t.Fatalf("%+v, %v", s, err)
	}
}

// Rows that cannot be read are reported, with the addresses that they name.
func TestSalvageNamesUnreadableRows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.db")
	b := OpenAt(t, path, Options())
	Pool(t, b, "default", "10.8.64.0/24")
	a, other := Reserve(t, b, "a"), Reserve(t, b, "b")
	Close(t, b)
	raw(t, path, fmt.Sprintf(`PRAGMA ignore_check_constraints = 1; DELETE FROM changes;
		UPDATE leases SET state = 'dreaming' WHERE address = '%s'`, a.Addr))
	s, err := salvage.Book(path)
	if err != nil || !slices.Equal(s.Named, []ipam.Range{{From: a.Addr, To: a.Addr}}) || len(s.Leases) != 1 || s.Leases[0].ID != other.ID ||
		len(s.Problems) != 1 || !strings.Contains(s.Problems[0], "dreaming") {
		t.Fatalf("%+v, %v", s, err)
	}
}

// A delegated prefix whose row cannot be read is named with all of its addresses, also
// where its change is pruned.
func TestSalvageNamesAnUnreadablePrefixWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.db")
	b := OpenAt(t, path, Options())
	Pool(t, b, "default", "10.8.64.0/24")
	l := ReservePrefix(t, b, "a", 28)
	Close(t, b)
	raw(t, path, `PRAGMA ignore_check_constraints = 1; DELETE FROM changes; UPDATE leases SET state = 'dreaming'`)
	s, err := salvage.Book(path)
	if err != nil || !slices.Equal(s.Named, []ipam.Range{l.Range()}) {
		t.Fatalf("it names %v, want %s; %v", s.Named, l.Text(), err)
	}
	if got := s.Named[0].Prefixes(); len(got) != 1 || got[0] != l.Prefix() {
		t.Errorf("it is %v, want %s", got, l.Text())
	}
}

// A pool that cannot be read is one that the configuration gives again: that it gave it is forgotten, also where no
// row says which pool it was. A name whose pool is whole, and one that was removed in a whole book, keep it.
func TestSalvageForgetsThatALostPoolWasConfigured(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil func(t *testing.T, path string)
		want  string // names of which it is remembered
	}{
		"all is whole":   {func(*testing.T, string) {}, "gone kept lost"},
		"a row is bad":   {func(t *testing.T, path string) { raw(t, path, `UPDATE pools SET spec_hash = 'x' WHERE name = 'lost'`) }, "kept"},
		"a page is lost": {func(t *testing.T, path string) { zeroTable(t, path, "pools") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "book.db")
			b := OpenAt(t, path, Options())
			spec := func(name, prefix string) ipam.PoolSpec {
				return ipam.PoolSpec{Name: name, Prefix: netip.MustParsePrefix(prefix), Bridge: "rt0"}
			}
			specs := []ipam.PoolSpec{spec("kept", "10.8.0.0/24"), spec("lost", "10.8.1.0/24"), spec("gone", "10.8.2.0/24")}
			made, err := b.Configure(t.Context(), Who(ipam.ByOperator, "test"), specs)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := b.RemovePool(t.Context(), ipam.Who{Actor: ipam.ByOperator, Reason: "test", Note: "not needed"}, made[2].Pool.UID, true); err != nil {
				t.Fatal(err)
			}
			Close(t, b)
			tt.spoil(t, path)
			s, err := salvage.Book(path)
			if err != nil {
				t.Fatal(err)
			}
			var configured []string
			for _, n := range s.Names {
				if n.Configured != "" {
					configured = append(configured, n.Name)
				}
			}
			slices.Sort(configured)
			if got := strings.Join(configured, " "); got != tt.want || len(s.Names) != 3 {
				t.Errorf("remembered of %q, want %q; %+v, problems %q", got, tt.want, s.Names, s.Problems)
			}
		})
	}
}

// zeroTable destroys the first page of a table.
func zeroTable(t *testing.T, path, table string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	var root int64
	err = db.QueryRow(`SELECT rootpage FROM sqlite_schema WHERE name = ?`, table).Scan(&root)
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(make([]byte, 4096), (root-1)*4096)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}
