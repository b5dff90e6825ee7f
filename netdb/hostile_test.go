package netdb_test

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
	"github.com/ipamd/ipamd/netdb/salvage"
)

// soon fails a test when fn does not end: what hangs would hang the whole run.
func soon(t *testing.T, what string, fn func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); fn() }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatalf("%s does not end", what)
	}
}

// endless is a view without an end and without a row, with the columns of a table.
func endless(name, columns string) string {
	var as []string
	for c := range strings.SplitSeq(columns, ",") {
		as = append(as, "n AS "+strings.TrimSpace(c))
	}
	return fmt.Sprintf(`CREATE VIEW %s AS WITH RECURSIVE e(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM e) SELECT %s FROM e WHERE n < 0`, name, strings.Join(as, ", "))
}

// planted puts a text into the schema as it is, past SQLite's own checks.
func planted(kind, name, sql string) string {
	return fmt.Sprintf(`PRAGMA writable_schema = 1; INSERT INTO sqlite_master VALUES ('%s', '%s', '%s', 0, '%s')`,
		kind, name, name, strings.ReplaceAll(sql, "'", "''"))
}

// G16: a book with anything in its schema that ipamd did not put there is refused
// before that is asked or run, by a start and by a check, byte for byte as it was; and
// what is salvaged of it comes from tables that are ipamd's own.
func TestG16AForeignSchemaIsRefused(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "book.db")
	b := OpenAt(t, whole, Options())
	Pool(t, b, "default", "10.8.64.0/24")
	l := Reserve(t, b, "a")
	Close(t, b)
	tables := map[string]string{
		"leases": `ip, address, pool_uid, id, state, sandbox, uid, interface, attempt, rev, created_wall, created_boot, created_boot_id,
			since_wall, since_boot, since_boot_id, bind_within, containers, netns, host_interface, mac, plug, labels, evidence, reason, cut, hold, conflict`,
		"changes": `rev, wall, boottime, boot_id, subject, address, lease_id, pool_uid, pool, sandbox, uid, interface, attempt,
			from_state, to_state, actor, peer, reason, note, evidence, uptime, row_sum`,
		"book": `one, epoch, runner_uid, machine_id, boot_id, runtime_id, created_wall`,
	}
	hostile := map[string]string{
		"a trigger that takes rows away":    `CREATE TRIGGER t AFTER INSERT ON changes BEGIN DELETE FROM leases WHERE address <> NEW.address; END`,
		"a trigger on a view":               `CREATE VIEW v AS SELECT 1 AS x; CREATE TRIGGER t INSTEAD OF INSERT ON v BEGIN SELECT 1; END`,
		"an index that refuses":             `CREATE UNIQUE INDEX i ON leases (state)`,
		"a table more":                      `CREATE TABLE notes (x)`,
		"a virtual table":                   `CREATE VIRTUAL TABLE f USING fts5(x)`,
		"a trigger less":                    `DROP TRIGGER leases_keep_their_pool`,
		"a constraint less":                 `PRAGMA writable_schema = 1; UPDATE sqlite_master SET sql = replace(sql, 'CHECK (length(ip) = 16)', '') WHERE name = 'leases'`,
		"a table twice":                     `PRAGMA writable_schema = 1; INSERT INTO sqlite_master SELECT * FROM sqlite_master WHERE name = 'tombstones'`,
		"the list of tables is a view":      planted("view", "sqlite_schema", endless("sqlite_schema", "type, name, tbl_name, rootpage, sql")),
		"the version is a view":             endless("pragma_user_version", "user_version"),
		"the foreign keys' check is a view": endless("pragma_foreign_key_check", `"table", rowid`),
	}
	for name, columns := range tables {
		hostile[name+" is a view without an end"] = `PRAGMA foreign_keys = 0; DROP TABLE ` + name + `; ` + endless(name, columns)
	}
	for name, sql := range hostile {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "book.db")
			copyOver(t, whole, path)
			copyOver(t, whole+"-mark", path+"-mark")
			db, conn := rawConn(t, path)
			if _, err := conn.ExecContext(ctx, sql); err != nil {
				t.Fatal(err)
			}
			refusesForeign(t, killed(t, path)) // with all of it in the log
			if err := errors.Join(conn.Close(), db.Close()); err != nil {
				t.Fatal(err)
			}
			refusesForeign(t, path)
			before := contents(t, filepath.Dir(path))
			soon(t, "salvaging it", func() {
				s, err := salvage.Book(path)
				lost := name == "a table twice" || name == "the list of tables is a view" // SQLite itself reads nothing there
				_, noRows := tables[strings.TrimSuffix(name, " is a view without an end")]
				if err != nil || noRows != (len(s.Problems) > 0) && !lost && name != "a constraint less" {
					t.Errorf("salvaged: %v, %v", s.Problems, err)
				}
				if gone := Missing(s.Leases, []*ipam.Lease{l}); len(gone) > 0 && !lost {
					t.Errorf("%v is not salvaged: %v", gone, s.Problems)
				}
			})
			if after := contents(t, filepath.Dir(path)); !maps.Equal(after, before) {
				t.Error("it was changed")
			}
		})
	}
}

// refusesForeign fails unless a start and a check refuse a book, soon and without
// changing a byte.
func refusesForeign(t *testing.T, path string) {
	t.Helper()
	before := contents(t, filepath.Dir(path))
	for _, readOnly := range []bool{true, false} {
		opts := Options()
		opts.ReadOnly = readOnly
		soon(t, "opening it", func() {
			b, err := netdb.Open(path, opts)
			if err == nil {
				t.Errorf("read-only %v: it is opened", readOnly)
				b.Close()
			} else if !errors.Is(err, netdb.ErrDamaged) {
				t.Errorf("read-only %v: %v", readOnly, err)
			}
		})
	}
	if after := contents(t, filepath.Dir(path)); !maps.Equal(after, before) {
		t.Error("the refusal changed it")
	}
}

// G16: what an operator does to a book by hand, and leaves its tables as they are, is
// no foreign schema.
func TestG16AnOperatorsBookIsOurs(t *testing.T) {
	for name, sql := range map[string]string{
		"analysed":  `ANALYZE`,
		"optimised": `PRAGMA optimize = 0x10002`,
		"vacuumed":  `VACUUM`,
		"reindexed": `REINDEX`,
	} {
		path := filepath.Join(t.TempDir(), "book.db")
		b := OpenAt(t, path, Options())
		Pool(t, b, "default", "10.8.64.0/24")
		l := Reserve(t, b, "a")
		Close(t, b)
		raw(t, path, sql)
		want(t, path, l)
		if name == "vacuumed" {
			backup := filepath.Join(t.TempDir(), "backup.db")
			raw(t, path, fmt.Sprintf(`VACUUM INTO '%s'`, backup))
			want(t, backup, l)
		}
	}
}

// plant puts something beside a book, or in its place, as a local user may in a folder
// of theirs.
var plants = map[string]func(t *testing.T, at, victim string) error{
	"a link":          func(_ *testing.T, at, victim string) error { return os.Symlink(victim, at) },
	"a dangling link": func(_ *testing.T, at, victim string) error { return os.Symlink(victim+".none", at) },
	"a second name":   func(_ *testing.T, at, victim string) error { return os.Link(victim, at) },
	"a folder":        func(_ *testing.T, at, _ string) error { return os.Mkdir(at, 0o700) },
	"another's file": func(_ *testing.T, at, _ string) error {
		return errors.Join(os.WriteFile(at, []byte("theirs"), 0o600), os.Chown(at, 1234, 1234))
	},
	"a pipe": func(_ *testing.T, at, _ string) error { return unix.Mkfifo(at, 0o600) },
	"an endless device": func(_ *testing.T, at, _ string) error {
		return unix.Mknod(at, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5)))
	},
	"a pipe that a process holds": func(t *testing.T, at, _ string) error {
		if err := unix.Mkfifo(at, 0o600); err != nil {
			return err
		}
		f, err := os.OpenFile(at, os.O_RDWR, 0)
		t.Cleanup(func() { f.Close() })
		return err
	},
	"a socket": func(t *testing.T, at, _ string) error {
		ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: at, Net: "unix"})
		t.Cleanup(func() { ln.Close() })
		return err
	},
}

// shape is what a folder has, bytes of files and kinds of the rest.
func shape(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := contents(t, dir)
	for _, name := range files(t, dir) {
		st, err := os.Lstat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if !st.Mode().IsRegular() {
			out[name] = st.Mode().String()
		}
	}
	return out
}

// G15, G16: what another user planted beside a book, or as one, is followed, read or waited
// for by nothing: whatever reads leaves the folder as it is, and a start refuses to
// write beside it. The file that a link leads to stays as it was.
func TestG15G16PlantedFiles(t *testing.T) {
	realtest.Root(t)
	whole := filepath.Join(t.TempDir(), "book.db")
	b := OpenAt(t, whole, Options())
	Pool(t, b, "default", "10.8.64.0/24")
	l := Reserve(t, b, "a")
	Close(t, b)
	for name, plant := range plants {
		for _, part := range []string{"", "-wal", "-shm", "-journal", "-mark", ".lock"} {
			t.Run(name+" as book.db"+part, func(t *testing.T) {
				dir, victims := t.TempDir(), t.TempDir()
				path, victim := filepath.Join(dir, "book.db"), filepath.Join(victims, "shadow")
				for _, p := range []string{"", "-mark"} {
					if p != part {
						copyOver(t, whole+p, path+p)
					}
				}
				if err := os.WriteFile(victim, []byte("root:*"), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := plant(t, path+part, victim); err != nil {
					t.Fatal(err)
				}
				before, spared := shape(t, dir), shape(t, victims)
				same := func(who string) {
					t.Helper()
					if after := shape(t, dir); !maps.Equal(after, before) {
						t.Errorf("%s changed the folder", who)
					}
					if after := shape(t, victims); !maps.Equal(after, spared) {
						t.Errorf("%s followed it", who)
					}
				}
				soon(t, "a check", func() {
					opts := Options()
					opts.ReadOnly = true
					b, err := netdb.Open(path, opts)
					if err == nil {
						if _, err := b.Check(ctx); err != nil {
							t.Error(err)
						}
						err = b.Close()
					}
					if (part == ".lock" || part == "-shm") && err != nil {
						t.Errorf("it is none of a reader's files: %v", err)
					}
				})
				same("a check")
				soon(t, "salvaging", func() {
					s, err := salvage.Book(path)
					if part == ".lock" || part == "-shm" || part == "-journal" {
						if lost := Missing(s.Leases, []*ipam.Lease{l}); err != nil || len(lost) > 0 {
							t.Errorf("salvaged: %v, %v", s.Problems, err)
						}
					}
				})
				same("salvaging")
				soon(t, "a start", func() {
					b, err := netdb.Open(path, Options())
					switch {
					case err == nil && part != ".lock":
						t.Error("it is opened")
						fallthrough
					case err == nil:
						b.Close()
					case part == ".lock":
						t.Error(err)
					}
				})
				if part == ".lock" {
					maps.DeleteFunc(before, func(n, _ string) bool { return strings.HasPrefix(n, "book.db") && n != "book.db.lock" })
					if after := shape(t, dir)["book.db.lock"]; after != before["book.db.lock"] {
						t.Error("a start changed it")
					}
				} else {
					same("a start")
				}
			})
		}
	}
}
