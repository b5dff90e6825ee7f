package netdb_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// F23: every column of a lease that is edited past ipamd is found, by the name of an
// invariant, and what the history has of it is named.
func TestF23AnEditedRowIsFound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.db")
	b := OpenAt(t, path, Options())
	Pool(t, b, "default", "10.8.64.0/24")
	l := Reserve(t, b, "a")
	Pool(t, b, "other", "10.8.65.0/24")
	Close(t, b)
	columns := map[string]string{ // how it is edited
		"pool_uid": "(SELECT uid FROM pools WHERE name = 'other')", "state": "'bound'", "sandbox": "'x'", "uid": "'x'", "interface": "'x'", "attempt": "7", "rev": "1",
		"created_wall": "1", "created_boot": "1", "created_boot_id": "'x'", "since_wall": "1", "since_boot": "1", "since_boot_id": "'x'",
		"bind_within": "1", "containers": `'[{"namespace":"n","id":"c"}]'`, "netns": "'x'", "host_interface": "'x'", "mac": "'02:00:00:00:00:99'",
		"plug":   `'{"boot":"x","index":7}'`,
		"labels": `'{"a":"b"}'`, "evidence": `'[]'`, "reason": "'x'", "cut": "'own'", "id": "'01890000-0000-7000-8000-000000000000'",
	}
	named := map[string]string{"sandbox": `sandbox is "x", was "a"`, "uid": `uid is "x", was "a"`, "interface": `interface is "x", was "eth0"`,
		"since_wall": "since is", "since_boot": "since is", "since_boot_id": "since is", "reason": `reason is "x"`}
	for column, value := range columns {
		t.Run(column, func(t *testing.T) {
			edited := killed(t, path)
			raw(t, edited, unguarded(fmt.Sprintf(`UPDATE leases SET %s = %s`, column, value)))
			opts := Options()
			opts.ReadOnly = true
			b, err := netdb.Open(edited, opts)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			found, err := b.Check(ctx)
			if err != nil || len(found) == 0 {
				t.Fatalf("%v, %v", found, err)
			}
			if !strings.Contains(fmt.Sprint(found), l.Addr.String()) || !strings.Contains(fmt.Sprint(found), named[column]) {
				t.Error(found)
			}
		})
	}
}

// unguarded is a statement that no trigger on updates meets.
func unguarded(statement string) string {
	return `CREATE TEMP TABLE kept AS SELECT * FROM sqlite_master WHERE name IN ('leases_keep_their_pool', 'leases_keep_their_prefix');
		DROP TRIGGER leases_keep_their_pool; DROP TRIGGER leases_keep_their_prefix; ` + statement + `;
		PRAGMA writable_schema = 1; INSERT INTO sqlite_master SELECT * FROM kept`
}

// copyOver puts a file in the place of another, in the same inode, as cp does.
func copyOver(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Close()); err != nil {
		t.Fatal(err)
	}
}

// F23: a book that is not the one that was closed here does not go on in its epoch,
// in which its revisions were used already; a change records why. One that is goes
// on, wherever its folder was moved or copied to.
func TestF23AnOldCopyBeginsAnEpoch(t *testing.T) {
	for name, tt := range map[string]struct {
		restore func(t *testing.T, path, old string) (now string)
		why     string // "" means that it is the same book
		lost    bool   // and check misses what was acknowledged
	}{
		"the same":                          {func(t *testing.T, path, _ string) string { return path }, "", false},
		"its folder copied":                 {func(t *testing.T, path, _ string) string { return copied(t, path) }, "its folder is a copy", false},
		"its folder copied, and moved back": {func(t *testing.T, path, _ string) string { return replaced(t, path, copied(t, path)) }, "its folder is a copy", false},
		"its folder copied by cp -a": {func(t *testing.T, path, _ string) string {
			to := filepath.Join(t.TempDir(), "copied")
			if out, err := exec.Command("cp", "-a", filepath.Dir(path), to).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			return filepath.Join(to, "book.db")
		}, "its folder is a copy", false},
		"another owner, mode and time": {func(t *testing.T, path, _ string) string {
			for _, p := range []string{path, path + "-mark"} {
				if err := errors.Join(os.Chown(p, 0, 0), os.Chmod(p, 0o640), os.Chtimes(p, time.Unix(1, 0), time.Unix(1, 0))); err != nil {
					t.Fatal(err)
				}
			}
			return path
		}, "", false},
		"its folder mounted elsewhere": {func(t *testing.T, path, _ string) string {
			to := t.TempDir()
			bindMount(t, filepath.Dir(path), to)
			return filepath.Join(to, "book.db")
		}, "", false},
		"its folder moved": {func(t *testing.T, path, _ string) string {
			to := filepath.Join(t.TempDir(), "moved")
			if err := os.Rename(filepath.Dir(path), to); err != nil {
				t.Fatal(err)
			}
			return filepath.Join(to, "book.db")
		}, "", false},
		"an old copy in its inode": {func(t *testing.T, path, old string) string { copyOver(t, old, path); return path }, "an older copy", true},
		"an old copy in its place": {func(t *testing.T, path, old string) string {
			copyOver(t, old, path+".new")
			if err := os.Rename(path+".new", path); err != nil {
				t.Fatal(err)
			}
			return path
		}, "an older copy", true},
		"an old copy elsewhere": {func(t *testing.T, _, old string) string { return old }, "a copy that was put here", false},
		"another book in its place": {func(t *testing.T, path, _ string) string {
			other := filepath.Join(t.TempDir(), "other.db")
			b := OpenAt(t, other, Options())
			Pool(t, b, "default", "10.8.64.0/24")
			Close(t, b)
			copyOver(t, other, path)
			return path
		}, "what lay here before was epoch", false},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state", "book.db")
			b := OpenAt(t, path, Options())
			Pool(t, b, "default", "10.8.64.0/24")
			Reserve(t, b, "a")
			Close(t, b)
			old := filepath.Join(t.TempDir(), "book.db")
			copyOver(t, path, old)
			b = OpenAt(t, path, Options())
			Reserve(t, b, "b")
			epoch := b.Epoch()
			Close(t, b)

			path = tt.restore(t, path, old)
			opts := Options()
			opts.ReadOnly = true
			look := OpenAt(t, path, opts, netdb.NothingIsMissing)
			was, rev := look.Epoch(), look.Rev()
			if found, err := look.Check(ctx); err != nil || (len(found) > 0) != tt.lost {
				t.Errorf("a check finds %v, %v", found, err)
			}
			if err := look.Close(); err != nil {
				t.Fatal(err)
			}
			b = OpenAt(t, path, Options())
			now, why := b.Epoch(), b.Info().Restored
			if tt.why == "" {
				if now != epoch || b.Rev() != rev || why != "" {
					t.Errorf("it went on as %s at %d, because %s", now, b.Rev(), why)
				}
				return
			}
			if now == was || b.Rev() != rev+1 || !strings.Contains(why, tt.why) {
				t.Errorf("it is %s, was %s, at %d behind %d: %s", now, was, b.Rev(), rev, why)
			}
			Close(t, b)
			db, conn := rawConn(t, path)
			defer db.Close()
			defer conn.Close()
			var reason, evidence string
			if err := conn.QueryRowContext(ctx, `SELECT reason, evidence FROM changes WHERE subject = 'book' ORDER BY rev DESC`).Scan(&reason, &evidence); err != nil ||
				reason != "restored" || !strings.Contains(evidence, was) || !strings.Contains(evidence, now) {
				t.Errorf("the change is %s %s, %v", reason, evidence, err)
			}
			b = OpenAt(t, path, Options())
			if b.Epoch() != now || b.Info().Restored != "" {
				t.Errorf("the next start made it %s, because %s", b.Epoch(), b.Info().Restored)
			}
		})
	}
}

// replaced moves a book's folder away and another in its place.
func replaced(t *testing.T, path, by string) string {
	t.Helper()
	if err := errors.Join(os.Rename(filepath.Dir(path), filepath.Dir(path)+".away"), os.Rename(filepath.Dir(by), filepath.Dir(path))); err != nil {
		t.Fatal(err)
	}
	return path
}

// F23: a mark that is taken away while the book is open is made again by the look of
// each second, and the next start goes on in its epoch.
func TestF23AMarkThatIsTakenAway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.db")
	b := OpenAt(t, path, Options())
	Pool(t, b, "default", "10.8.64.0/24")
	epoch := b.Epoch()
	for what, take := range map[string]func() error{
		"deleted": func() error { return os.Remove(path + "-mark") },
		"moved":   func() error { return os.Rename(path+"-mark", path+"-mark.away") },
		"replaced": func() error {
			return errors.Join(os.Rename(path+"-mark", path+"-mark.away"), os.WriteFile(path+"-mark", []byte("x"), 0o600))
		},
	} {
		if err := take(); err != nil {
			t.Fatal(err)
		}
		_ = b.Info()
		Reserve(t, b, what)
		Close(t, b)
		b = OpenAt(t, path, Options())
		if b.Epoch() != epoch || b.Info().Restored != "" {
			t.Errorf("%s: the next start is in %s, because %s", what, b.Epoch(), b.Info().Restored)
		}
		epoch = b.Epoch()
	}
}

// F23, F14: a mark that is not whole, or is something else, is none: the book goes on
// in another epoch. What cannot be read is no answer.
func TestF23AMarkThatIsNotWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.db")
	b := OpenAt(t, path, Options())
	Pool(t, b, "default", "10.8.64.0/24")
	Reserve(t, b, "a")
	epoch := b.Epoch()
	Close(t, b)
	whole, err := os.ReadFile(path + "-mark")
	if err != nil {
		t.Fatal(err)
	}
	flipped := append([]byte{}, whole...)
	flipped[20] ^= 1
	for name, data := range map[string][]byte{"empty": {}, "short": whole[:100], "zero": make([]byte, 512), "flipped": flipped, "text": []byte(strings.Repeat("mark ", 200))} {
		if err := os.WriteFile(path+"-mark", data, 0o600); err != nil {
			t.Fatal(err)
		}
		b := OpenAt(t, path, Options())
		if b.Epoch() == epoch || b.Info().Restored == "" {
			t.Errorf("%s: it goes on in epoch %s", name, b.Epoch())
		}
		epoch = b.Epoch()
		Close(t, b)
	}
}
