package netdb_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/netdb/bookfile"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// noon names what is moved aside in these tests.
var noon = time.Date(2026, 11, 21, 13, 0, 0, 0, time.FixedZone("CET", 3600))

// L13: a broken book is refused by a sentence that names the next commands;
// behind MoveAside a new one opens, under a new epoch.
func TestL13TheNextCommandWorks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.db")
	b := OpenAt(t, path, Options())
	Pool(t, b, "default", "10.8.64.0/24")
	epoch := b.Epoch()
	Close(t, b)
	if err := os.WriteFile(path, []byte(strings.Repeat("gone ", 4096)), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := netdb.Open(path, Options())
	wantErr(t, err, netdb.ErrNotABook)
	wantNextCommands(t, err, path)
	to, err := bookfile.MoveAside(path, noon)
	if err != nil {
		t.Fatal(err)
	}
	b = OpenAt(t, path, Options())
	if leases, _ := b.Leases(); b.Epoch() == epoch || len(leases) > 0 || len(b.Pools()) > 0 {
		t.Errorf("the new book has epoch %s, %d leases", b.Epoch(), len(leases))
	}
	if text, err := os.ReadFile(to); err != nil || len(text) != 5*4096 {
		t.Errorf("the old one has %d bytes, %v", len(text), err)
	}
}

// L13: a log without its book was acknowledged, and SQLite would delete it.
func TestL13ALogWithoutItsBookIsRefused(t *testing.T) {
	for name, book := range map[string]func(path string) error{
		"the book is gone":     func(string) error { return nil },
		"the book was emptied": func(path string) error { return os.WriteFile(path, nil, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "book.db")
			if err := os.WriteFile(path+"-wal", []byte("book.db-wal"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := book(path); err != nil {
				t.Fatal(err)
			}
			before := files(t, dir)
			for _, readOnly := range []bool{false, true} {
				opts := Options()
				opts.ReadOnly = readOnly
				_, err := netdb.Open(path, opts)
				wantErr(t, err, netdb.ErrDamaged)
				if !readOnly {
					wantNextCommands(t, err, path)
				} else if reply := err.Error(); !strings.Contains(reply, `"ipamd rebuild"`) || strings.Contains(reply, "ipamd check") {
					t.Errorf("a reader, which is what checks it: %v", err)
				}
			}
			if text, err := os.ReadFile(path + "-wal"); err != nil || string(text) != "book.db-wal" || !slices.Equal(files(t, dir), before) {
				t.Errorf("the log is %q, %v, beside %v", text, err, files(t, dir))
			}
			if _, err := bookfile.MoveAside(path, noon); err != nil {
				t.Fatal(err)
			}
			OpenAt(t, path, Options())
		})
	}
}

// L13: what SQLite's own check passes and the book does not understand: a pool
// that is described by other bytes than it was stored with, a table that is
// gone.
func TestL13DamageThatSQLiteDoesNotSee(t *testing.T) {
	for name, spoil := range map[string]string{
		"another prefix":     `UPDATE pools SET spec = replace(spec, '10.8.64.0/24', '10.8.65.0/24')`,
		"a pool that is cut": `PRAGMA ignore_check_constraints = 1; UPDATE pools SET spec = substr(spec, 1, 20)`,
		"no table of leases": `DROP TABLE leases`,
		"no table of pools":  `PRAGMA foreign_keys = 0; DROP TABLE leases; DROP TABLE pools`,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "book.db")
			b := OpenAt(t, path, Options())
			Pool(t, b, "default", "10.8.64.0/24")
			Close(t, b)
			raw(t, path, spoil)
			_, err := netdb.Open(path, Options())
			wantErr(t, err, netdb.ErrDamaged)
			wantNextCommands(t, err, path)
		})
	}
}

func wantNextCommands(t *testing.T, err error, path string) {
	t.Helper()
	for _, words := range []string{"open " + path, `"ipamd check ` + path + `"`, `"ipamd rebuild"`} {
		if err == nil || strings.Count(err.Error(), words) != 1 {
			t.Errorf("%v does not say %s, once", err, words)
		}
	}
}

// L13: bytes are flipped in each page, at its begin, in its middle and at its
// end. Either the refusal names the file and the next commands and leaves
// every byte as it is, or no lease is missing without a word.
func TestL13FlippedBytes(t *testing.T) {
	whole, leases := Busy(t, t.TempDir())
	const page = 4096
	opened, refused := 0, 0
	for at := 0; at < len(whole); at += page {
		for _, in := range []int{0, page/2 - 16, page - 32} {
			flipped := slices.Clone(whole)
			for i := range 32 {
				flipped[at+in+i] ^= 0xff
			}
			path := filepath.Join(t.TempDir(), "book.db")
			if err := os.WriteFile(path, flipped, 0o600); err != nil {
				t.Fatal(err)
			}
			b, err := netdb.Open(path, Options())
			if err != nil {
				refused++
				if !errors.Is(err, netdb.ErrDamaged) && !errors.Is(err, netdb.ErrNotABook) {
					t.Errorf("byte %d: %v", at+in, err)
				}
				wantNextCommands(t, err, path)
				if after, _ := os.ReadFile(path); !slices.Equal(after, flipped) {
					t.Errorf("byte %d: the refusal changed the file", at+in)
				}
				continue
			}
			opened++
			if now, _ := b.Leases(); len(now)+len(b.Info().Unreadable) < len(leases) {
				t.Errorf("byte %d: of %d leases %d came back, %d are reported", at+in, len(leases), len(now), len(b.Info().Unreadable))
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	t.Logf("of %d books %d were refused", opened+refused, refused)
	if opened == 0 || refused == 0 {
		t.Errorf("%d opened, %d refused: that tests one of the two only", opened, refused)
	}
}
