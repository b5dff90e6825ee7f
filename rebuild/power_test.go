package rebuild

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/faultfs"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/netdb/netdbtest"
	"github.com/ipamd/ipamd/reconciler"
)

// parts opens a book on a machine where every witness answers and nothing lives.
func parts(ctx context.Context, cfg config.Config) (*Parts, error) {
	b, err := netdb.Open(cfg.Book.Path, cfg.BookOptions())
	if err != nil {
		return nil, err
	}
	prefix := netip.MustParsePrefix("10.8.64.0/24")
	_, err = b.EnsurePool(ctx, ipam.Who{Actor: ipam.ByOperator, Peer: "configuration"}, ipam.PoolSpec{Name: "default", Prefix: prefix, Gateway: ipam.FirstHost(prefix), Bridge: "rt0"})
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	board := census.NewBoard()
	return &Parts{Book: b, Board: board, Close: b.Close, Follow: nothing, Refresh: nothing,
		Pass: func(context.Context, reconciler.Book) (*reconciler.Report, error) { return &reconciler.Report{}, nil }}, nil
}

// L16: the power goes behind every operation of a restore and of an import. What is left is
// the old book, whole; or the new one, whole, at its place or beside it, from where the next
// rebuild moves it in, with the old book under the name that it was moved to. No daemon
// begins an empty book in between.
func TestL16PowerLossInARestoreAndAnImport(t *testing.T) {
	realtest.Long(t)
	for _, verb := range []string{"restore", "import"} {
		t.Run(verb, func(t *testing.T) {
			disk := faultfs.Mount(t, "book.db-shm", "book.db.rebuilding-shm")
			cfg := config.Default()
			cfg.Book.Path, cfg.Book.RunnerUID = filepath.Join(disk.Dir(), "book.db"), "one"
			b, err := netdb.Open(cfg.Book.Path, cfg.BookOptions())
			if err != nil {
				t.Fatal(err)
			}
			netdbtest.Pool(t, b, "default", "10.8.64.0/24")
			netdbtest.Reserve(t, b, "old")
			file := filepath.Join(t.TempDir(), "older.db")
			if verb == "restore" {
				_, err = b.Backup(t.Context(), file, false)
			} else {
				err = predecessors(file)
			}
			netdbtest.Reserve(t, b, "newer")
			if err := errors.Join(err, b.Close()); err != nil {
				t.Fatal(err)
			}
			old, err := os.ReadFile(cfg.Book.Path)
			if err != nil {
				t.Fatal(err)
			}
			began := disk.Len()
			k := TakeIn{Config: cfg, Open: parts, File: file, Import: verb == "import", Confirm: true}
			report, err := k.Run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			v := verdict{old: old, aside: filepath.Base(report.Aside), want: len(report.Became) - leftOut(report)}
			dir := t.TempDir()
			if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64m,mode=700"); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := unix.Unmount(dir, 0); err != nil {
					t.Error(err)
				}
			})
			replay, seen := disk.Replay(), make(map[string]bool)
			for op, more := replay.Step(); more; op, more = replay.Step() {
				image := replay.Cut(nil)
				sum := image.Sum()
				if replay.Done() < began || seen[sum] {
					continue
				}
				seen[sum] = true
				if err := v.judge(filepath.Join(dir, "disk"), cfg, image); err != nil {
					t.Fatalf("power cut behind operation %d (%s): %v", replay.Done(), op, err)
				}
			}
			t.Logf("%d different disks: %d the old book, %d the new one beside its place, %d the new one", len(seen), v.before, v.beside, v.after)
			if v.before == 0 || v.beside == 0 || v.after == 0 {
				t.Error("not every step was cut")
			}
		})
	}
}

func leftOut(r *Report) (n int) {
	for _, o := range r.Became {
		if o.Outcome == "left_out" {
			n++
		}
	}
	return n
}

// predecessors makes a file as the predecessor did.
func predecessors(path string) error {
	db, err := sql.Open("sqlite", path)
	if err != nil {
		return err
	}
	_, err = db.Exec(`CREATE TABLE ips (ip TEXT PRIMARY KEY, subnet TEXT, reserved INTEGER DEFAULT 1, released_at INTEGER DEFAULT NULL);
		CREATE TABLE subnets (cidr TEXT PRIMARY KEY, parent TEXT, identifier TEXT, reserved INTEGER DEFAULT 1, UNIQUE(parent, identifier));
		CREATE TABLE interfaces (name TEXT PRIMARY KEY, reserved INTEGER DEFAULT 1);
		INSERT INTO ips VALUES ('10.8.64.40', '10.8.64.0/24', 1, NULL), ('10.8.64.41', '10.8.64.0/24', 0, 1700000000)`)
	return errors.Join(err, db.Close())
}

type verdict struct {
	old   []byte // the old book's bytes
	aside string // where it goes
	want  int    // rows of the new one

	before, beside, after int
}

// judge starts on what a power loss left, as an operator does.
func (v *verdict) judge(dir string, cfg config.Config, image faultfs.Image) (err error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := image.Write(dir); err != nil {
		return err
	}
	cfg.Book.Path = filepath.Join(dir, "book.db")
	lock, err := Guard(cfg.Book.Path) // as a daemon that starts
	if cut := err != nil && strings.Contains(err.Error(), "cut short"); cut {
		r := Rebuild{Config: cfg, Open: parts}
		if _, err := r.Run(context.Background()); err != nil {
			return err
		}
		v.beside++
	} else if err != nil {
		return err
	} else if err := lock.Close(); err != nil {
		return err
	}
	if _, err := os.Stat(cfg.Book.Path); err != nil {
		return fmt.Errorf("a daemon would begin an empty book: %w", err)
	}
	b, err := netdb.Open(cfg.Book.Path, cfg.BookOptions())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	if found, err := b.Check(context.Background()); err != nil || len(found) > 0 {
		return fmt.Errorf("%v, %w", found, err)
	}
	leases, _ := b.Leases()
	reserved := 0
	for _, l := range leases {
		if l.State == ipam.Reserved {
			reserved++
		}
	}
	switch {
	case len(leases) == 2 && reserved == 2: // no workload lives, so a new one has none
		v.before++
		return nil
	case len(leases) != v.want || reserved > 0:
		return fmt.Errorf("half of it: %d rows, %d of them reserved", len(leases), reserved)
	}
	v.after++
	if moved, err := os.ReadFile(filepath.Join(dir, v.aside)); err != nil || !bytes.Equal(moved, v.old) {
		return fmt.Errorf("the old book is not %s: %w", v.aside, err)
	}
	return nil
}

func nothing(context.Context) error { return nil }
