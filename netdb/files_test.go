package netdb_test

import (
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/netdb/bookfile"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// openElsewhere is the environment variable that makes this test's program open a
// book and say what came of it, as another process.
const openElsewhere = "NETDB_TEST_OPENS"

// asOtherUser makes it do that as another user.
const (
	asOtherUser = "NETDB_TEST_AS_NOBODY"
	nobody      = 65534
)

func TestMain(m *testing.M) {
	if path := os.Getenv(openElsewhere); path != "" {
		if os.Getenv(asOtherUser) != "" {
			if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(nobody), syscall.Setuid(nobody)); err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
		}
		b, err := netdb.Open(path, Options())
		if err == nil {
			fmt.Println("opened", b.Info().Path)
			os.Stdin.Read(make([]byte, 1)) // until it is released, or killed
			err = b.Close()
		}
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// elsewhere lets another process open a book and close it, and returns what it says.
func elsewhere(t *testing.T, path string) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), openElsewhere+"="+path)
	output, err := cmd.CombinedOutput()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(output))
}

// contents reads every file of a folder.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := make(map[string]string)
	for _, name := range files(t, dir) {
		st, err := os.Lstat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if !st.Mode().IsRegular() {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		out[name] = string(data)
	}
	return out
}

// bind mounts a file or a folder at another name.
func bindMount(t *testing.T, from, to string) {
	t.Helper()
	realtest.Root(t)
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(to, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// F15, L15: by whatever name a book is opened a second time, in this process or in
// another, the answer is that it is in use, and by whom. Once it is closed, each
// name but a hard link opens it, with its log beside the real file.
func TestF15OneOpenerByWhateverName(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "state")
	path := filepath.Join(dir, "book.db")
	at := func(names ...string) string { return filepath.Join(append([]string{root}, names...)...) }
	b := OpenAt(t, path, Options())
	Pool(t, b, "default", "10.8.64.0/24")
	acked := Reserve(t, b, "a")
	for _, err := range []error{os.Symlink(path, at("link.db")), os.Symlink(at("link.db"), at("link of a link.db")), os.Symlink(dir, at("linked")),
		os.Link(path, at("hard.db")), os.Mkdir(at("mounted"), 0o700), os.WriteFile(at("mounted.db"), nil, 0o600),
		os.WriteFile(path+".lock", []byte("99999\n"), 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	bindMount(t, dir, at("mounted"))
	bindMount(t, path, at("mounted.db"))
	names := []string{path, at("link.db"), at("link of a link.db"), at("linked", "book.db"), at("hard.db"),
		at("mounted", "book.db"), at("mounted.db"), root + "//state/../state/book.db"}
	for _, name := range names {
		want := fmt.Sprintf("by process %d (", os.Getpid())
		_, err := netdb.Open(name, Options())
		if !errors.Is(err, netdb.ErrLocked) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s in this process: %v", name, err)
		}
		if output := elsewhere(t, name); !strings.Contains(output, netdb.ErrLocked.Error()) || !strings.Contains(output, want) {
			t.Errorf("%s in another process: %s", name, output)
		}
		_, err = bookfile.MoveAside(name, noon)
		if name != at("link.db") && name != at("link of a link.db") && !errors.Is(err, netdb.ErrLocked) {
			t.Errorf("%s moved aside: %v", name, err)
		}
	}
	// SQLite's own locks have survived all that: another writer is kept out.
	Reserve(t, b, "b")
	Close(t, b)

	if output := elsewhere(t, path); !strings.Contains(output, "another name, a hard link") {
		t.Errorf("with a hard link: %s", output)
	}
	if err := os.Remove(at("hard.db")); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if name == at("hard.db") || name == at("mounted.db") { // a mounted file has no log of its own beside it
			continue
		}
		b := OpenAt(t, name, Options())
		if l, err := b.Lease(acked.ID); err != nil || l.Addr != acked.Addr {
			t.Errorf("%s: %v, %v", name, l, err)
		}
		if name != at("mounted", "book.db") && b.Info().Path != path {
			t.Errorf("%s is %s", name, b.Info().Path)
		}
		if _, err := os.Stat(path + "-wal"); err != nil {
			t.Errorf("%s: its log is not beside the book: %v", name, err)
		}
		Close(t, b)
	}
}

// F15: what is no regular file, or is a link to nothing, is refused, and nothing is
// made or changed.
func TestF15WhatIsNoFileIsRefused(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(unix.Mkfifo(at("fifo"), 0o600), os.Mkdir(at("folder"), 0o700), os.Symlink(at("none"), at("dangling")),
		os.Symlink(at("loop"), at("loop"))); err != nil {
		t.Fatal(err)
	}
	before := files(t, dir)
	for _, name := range before {
		for _, readOnly := range []bool{false, true} {
			opts := Options()
			opts.ReadOnly = readOnly
			if _, err := netdb.Open(at(name), opts); err == nil || !strings.Contains(err.Error(), at(name)) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if after := files(t, dir); !slices.Equal(after, before) {
		t.Errorf("there are %v, there were %v", after, before)
	}
}

// killed is what a kill now would leave of a book, in a folder of its own, as if it
// had been moved there.
func killed(t *testing.T, path string) (left string) {
	t.Helper()
	left = copied(t, path)
	if err := netdb.OwnMark(left); err != nil {
		t.Fatal(err)
	}
	return left
}

// copied copies what lies of a book now to a folder of its own.
func copied(t *testing.T, path string) (to string) {
	t.Helper()
	to = filepath.Join(t.TempDir(), "book.db")
	for name, data := range contents(t, filepath.Dir(path)) {
		if rest, ok := strings.CutPrefix(name, filepath.Base(path)); ok {
			if err := os.WriteFile(to+rest, []byte(data), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return to
}

// F13: whatever a start refuses, behind a kill, stays byte for byte as it was: the
// book, its log, the log's index, and the mark; and so does what a check looks at.
func TestF13ARefusedStartChangesNothing(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "book.db")
	b := OpenAt(t, whole, Options())
	Pool(t, b, "default", "10.8.64.0/24")
	Reserve(t, b, "a")
	if err := b.Fold(ctx); err != nil {
		t.Fatal(err)
	}
	Reserve(t, b, "b")
	// in the log, of a book that was killed
	inLog := func(sql string) func(*testing.T) string {
		return func(t *testing.T) string {
			path := killed(t, whole)
			db, conn := rawConn(t, path)
			if _, err := conn.ExecContext(ctx, sql); err != nil {
				t.Fatal(err)
			}
			left := killed(t, path)
			if err := errors.Join(conn.Close(), db.Close()); err != nil {
				t.Fatal(err)
			}
			return left
		}
	}
	flipped := func(part string, at int64) func(*testing.T) string {
		return func(t *testing.T) string {
			path := killed(t, whole)
			flip(t, path+part, at, 0x10)
			return path
		}
	}
	for name, tt := range map[string]struct {
		make func(*testing.T) string
		want error
	}{
		"a newer schema, in the log":               {inLog(`PRAGMA user_version = 1000`), netdb.ErrNewerSchema},
		"another program's, in the log":            {inLog(`PRAGMA application_id = 77`), netdb.ErrNotABook},
		"a table is missing":                       {inLog(`DROP TABLE tombstones`), netdb.ErrDamaged},
		"a pool is not what it was":                {inLog(`UPDATE pools SET spec_hash = 'x'`), netdb.ErrDamaged},
		"a damaged page":                           {flipped("", 4096*3+1), netdb.ErrDamaged},
		"a damaged log":                            {flipped("-wal", 32+24+100), netdb.ErrDamaged},
		"the header of the log":                    {flipped("-wal", 17), netdb.ErrDamaged},
		"a link, and the log of a book beside it":  {linked(whole), nil},
		"another program's, with a log of its own": {foreign, netdb.ErrNotABook},
	} {
		t.Run(name, func(t *testing.T) {
			path := tt.make(t)
			before := contents(t, filepath.Dir(path))
			for _, readOnly := range []bool{true, false} {
				opts := Options()
				opts.ReadOnly = readOnly
				b, err := netdb.Open(path, opts)
				if err == nil {
					t.Errorf("read-only %v: it is opened", readOnly)
					Close(t, b)
				} else if tt.want != nil && !errors.Is(err, tt.want) {
					t.Errorf("read-only %v: %v, want %v", readOnly, err, tt.want)
				}
				if after := contents(t, filepath.Dir(path)); !maps.Equal(after, before) {
					for n := range maps.Keys(after) {
						if after[n] != before[n] {
							t.Errorf("read-only %v changed %s", readOnly, n)
						}
					}
					t.Fatalf("there are %d files, there were %d", len(after), len(before))
				}
			}
		})
	}
	t.Run("a check of a whole one", func(t *testing.T) {
		path := killed(t, whole)
		before := contents(t, filepath.Dir(path))
		opts := Options()
		opts.ReadOnly = true
		b := OpenAt(t, path, opts)
		if found, _ := b.Leases(); len(found) != 2 {
			t.Errorf("it has %d leases, with those of its log", len(found))
		}
		Close(t, b)
		if after := contents(t, filepath.Dir(path)); !maps.Equal(after, before) {
			t.Error("a check changed something")
		}
	})
}

// rawConn opens a database past ipamd.
func rawConn(t *testing.T, path string) (*sql.DB, *sql.Conn) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return db, conn
}

func linked(whole string) func(*testing.T) string {
	return func(t *testing.T) string {
		path := killed(t, whole)
		if err := os.Link(path, path+".second"); err != nil {
			t.Fatal(err)
		}
		return path
	}
}

// foreign is a database of another program that was killed.
func foreign(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "other.db")
	db, conn := rawConn(t, path)
	for _, sql := range []string{`PRAGMA journal_mode = WAL`, `CREATE TABLE t (x)`, `INSERT INTO t VALUES (1)`} {
		if _, err := conn.ExecContext(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	left := killed(t, path)
	if err := errors.Join(conn.Close(), db.Close()); err != nil {
		t.Fatal(err)
	}
	return left
}

// flip changes bits of a byte of a file.
func flip(t *testing.T, path string, at int64, bits byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	_, err = f.ReadAt(b, at)
	b[0] ^= bits
	if err == nil {
		_, err = f.WriteAt(b, at)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// A taking takes files of an open book away. back puts them back; nil where that is impossible.
type taking struct {
	take, back func(path string) error
	// remains means that what was acknowledged lies at the path all the same, behind an
	// orderly stop, and behind a kill once the book has noticed.
	remains bool
}

func renamed(part string) taking {
	return taking{
		take: func(p string) error { return os.Rename(p+part, p+part+".away") },
		back: func(p string) error { return os.Rename(p+part+".away", p+part) },
	}
}

func (tk taking) thatKeeps() taking { tk.remains = true; return tk }

// replacedBy puts something else in the place of a part, as mv does.
func replacedBy(part, text string) taking {
	tk := renamed(part)
	return taking{
		take: func(p string) error {
			return errors.Join(tk.take(p), os.WriteFile(p+part, []byte(text), 0o600))
		},
		back: func(p string) error { return os.Rename(p+part+".away", p+part) },
	}
}

func removed(part string) taking {
	return taking{take: func(p string) error { return os.Remove(p + part) }}
}

// takings are the ways in which files go.
func takings() map[string]taking {
	return map[string]taking{
		"the book renamed":  renamed(""),
		"the book removed":  removed(""),
		"the book replaced": replacedBy("", "another file"),
		"the log renamed":   renamed("-wal").thatKeeps(),
		"the log removed":   removed("-wal").thatKeeps(),
		"the log replaced":  replacedBy("-wal", "another file").thatKeeps(),
		"the index renamed": renamed("-shm").thatKeeps(),
		"the index removed": removed("-shm").thatKeeps(),
		"the folder renamed": {
			take: func(p string) error { return os.Rename(filepath.Dir(p), filepath.Dir(p)+".away") },
			back: func(p string) error { return os.Rename(filepath.Dir(p)+".away", filepath.Dir(p)) },
		},
		"the folder replaced": {
			take: func(p string) error {
				return errors.Join(os.Rename(filepath.Dir(p), filepath.Dir(p)+".away"), os.Mkdir(filepath.Dir(p), 0o700))
			},
			back: func(p string) error {
				return errors.Join(os.Remove(filepath.Dir(p)), os.Rename(filepath.Dir(p)+".away", filepath.Dir(p)))
			},
		},
	}
}

// F16: files of the book are taken away while it is open. From then on nothing is
// acknowledged, and the refusal says why; reads go on. Once they are back so do changes,
// by themselves. Where only the log or its index went, what was acknowledged is in the
// book nevertheless; and whatever lies at the paths of what went stays as it is.
func TestF16FilesTakenAway(t *testing.T) {
	for name, tk := range takings() {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state", "book.db")
			b := OpenAt(t, path, Options())
			Pool(t, b, "default", "10.8.64.0/24")
			a := Reserve(t, b, "a")
			before := b.Rev()
			take := func() {
				t.Helper()
				if err := tk.take(path); err != nil {
					t.Fatal(err)
				}
				_ = b.Info() // as the daemon does each second
				if _, err := TryReserve(b, b.Pools()[0], "refused", Policy); !errors.Is(err, netdb.ErrMoved) || !errors.Is(err, netdb.ErrReadOnly) {
					t.Fatalf("a change: %v", err)
				}
				if why := b.Info().ReadOnly; !errors.Is(why, netdb.ErrMoved) || !strings.Contains(why.Error(), filepath.Dir(path)) {
					t.Errorf("the book cannot be written: %v", why)
				}
				wantErr(t, b.Retry(ctx), netdb.ErrMoved)
				wantErr(t, b.Ping(ctx), netdb.ErrMoved)
				if _, err := b.Lease(a.ID); err != nil || b.Rev() != before {
					t.Errorf("it knows %v at revision %d", err, b.Rev())
				}
				if past, err := b.History(ctx, ipam.Query{LeaseID: a.ID}); err != nil || len(past) != 1 {
					t.Errorf("its history is %v, %v", past, err)
				}
				if tk.remains {
					want(t, killed(t, path), a)
				}
			}
			if tk.back != nil {
				take()
				if err := tk.back(path); err != nil {
					t.Fatal(err)
				}
				if err := b.Retry(ctx); err != nil || b.Info().ReadOnly != nil {
					t.Fatalf("once they are back: %v, %v", err, b.Info().ReadOnly)
				}
				a = Reserve(t, b, "b")
				before = b.Rev()
			}
			take()
			there := make(map[string]string)
			if _, err := os.Stat(filepath.Dir(path)); err == nil {
				there = contents(t, filepath.Dir(path))
			}
			if err := b.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			for n, was := range there {
				now, err := os.ReadFile(filepath.Join(filepath.Dir(path), n))
				if foreign := was == "another file"; err != nil || foreign && string(now) != was {
					t.Errorf("the stop changed %s: %v", n, err)
				}
			}
			switch {
			case tk.remains:
				if there["book.db-wal"] == "another file" {
					if err := os.Remove(path + "-wal"); err != nil {
						t.Fatal(err)
					}
				}
				want(t, path, a)
			case tk.back != nil:
				if err := tk.back(path); err != nil {
					t.Fatal(err)
				}
				want(t, path, a)
			}
		})
	}
}

// want opens a book that has a lease.
func want(t *testing.T, path string, l *ipam.Lease) {
	t.Helper()
	b, err := netdb.Open(path, Options())
	if err != nil {
		t.Error(err)
		return
	}
	defer Close(t, b)
	if got, err := b.Lease(l.ID); err != nil || got.Addr != l.Addr {
		t.Errorf("%s is lost: %v", l.Addr, err)
	}
}

// F16: the files go in the middle of a commit, behind the look at them before it. It
// is not acknowledged; what memory has is what the file has.
func TestF16FilesGoWhileACommitIsMade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.db")
	b := OpenAt(t, path, Options())
	pool := Pool(t, b, "default", "10.8.64.0/24")
	c, err := b.Pick(pool.UID, Policy)
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Reserve(ctx, Who(ipam.ByAllocator, "allocated"), netdb.Reservation{
		Candidate: c, Sandbox: "a", UID: "a", Interface: "eth0", Attempt: 1, BindWithin: time.Minute,
		Unseen: func() error { return os.Rename(path+"-wal", path+"-wal.away") },
	})
	b.Drop(c)
	wantErr(t, err, netdb.ErrMoved)
	if err := os.Rename(path+"-wal.away", path+"-wal"); err != nil {
		t.Fatal(err)
	}
	if err := b.Retry(ctx); err != nil {
		t.Fatal(err)
	}
	Check(t, b)
	if l := Reserve(t, b, "b"); l.Addr == c.Addr {
		t.Errorf("%s is given again", l.Addr)
	}
}

// F16: a reader that is opened while another book lies at the path, with its log,
// does not answer from that one, and an orderly stop leaves both as they are.
func TestF16NoAnswerFromAnotherBook(t *testing.T) {
	path, other := filepath.Join(t.TempDir(), "book.db"), filepath.Join(t.TempDir(), "book.db")
	o := OpenAt(t, other, Options())
	Pool(t, o, "default", "10.8.64.0/24")
	theirs := Reserve(t, o, "theirs")
	other = killed(t, other)
	b := OpenAt(t, path, Options())
	Pool(t, b, "default", "10.8.64.0/24")
	Reserve(t, b, "ours")
	if err := b.DropCaches(ctx); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"", "-wal", "-shm"} {
		if err := errors.Join(os.Rename(path+part, path+".ours"+part), os.Rename(other+part, path+part)); err != nil {
			t.Fatal(err)
		}
	}
	before := contents(t, filepath.Dir(path))
	if past, err := b.History(ctx, ipam.Query{LeaseID: theirs.ID}); len(past) > 0 {
		t.Errorf("it answers %v, %v", past, err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if after := contents(t, filepath.Dir(path)); !maps.Equal(after, before) {
		t.Error("the stop changed what is not ours, or what is not in its place")
	}
}
