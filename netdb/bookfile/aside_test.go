package bookfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// noon names what is moved aside in these tests.
var noon = time.Date(2026, 11, 21, 13, 0, 0, 0, time.FixedZone("CET", 3600))

// write makes files in a folder, whose text is their name.
func write(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, n := range names {
		if err := os.WriteFile(filepath.Join(dir, n), []byte(n), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// names lists a folder.
func names(t *testing.T, dir string) (out []string) {
	t.Helper()
	found, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		out = append(out, f.Name())
	}
	return out
}

// Whatever lies there is moved as a whole, and nothing is overwritten.
func TestMoveAside(t *testing.T) {
	const b = "book.db.broken-20261121T120000Z"
	for name, tt := range map[string]struct {
		there []string
		to    string
		moved map[string]string // new name to old
	}{
		"a book":             {[]string{"book.db"}, b, map[string]string{b: "book.db"}},
		"a book and its log": {[]string{"book.db", "book.db-wal", "book.db-shm"}, b, map[string]string{b: "book.db", b + "-wal": "book.db-wal", b + "-shm": "book.db-shm"}},
		"a name that is taken": {[]string{"book.db", b}, b + "-2",
			map[string]string{b + "-2": "book.db", b: b}},
		"names of which a part is taken": {[]string{"book.db", "book.db-wal", b + "-shm", b + "-2-wal"}, b + "-3",
			map[string]string{b + "-3": "book.db", b + "-3-wal": "book.db-wal", b + "-shm": b + "-shm", b + "-2-wal": b + "-2-wal"}},
		"what a crash left of it": {[]string{"book.db-wal", "book.db-shm", b}, b + "-2",
			map[string]string{b: b, b + "-2-wal": "book.db-wal", b + "-2-shm": "book.db-shm"}},
		"what is not its own": {[]string{"book.db", "book.db.lock", "book.db2", "other"}, b,
			map[string]string{b: "book.db", "book.db2": "book.db2", "other": "other"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, tt.there...)
			to, err := MoveAside(filepath.Join(dir, "book.db"), noon)
			if err != nil || to != filepath.Join(dir, tt.to) {
				t.Fatalf("moved to %s, %v, want %s", to, err, tt.to)
			}
			left := slices.DeleteFunc(names(t, dir), func(n string) bool { return n == "book.db.lock" })
			if len(left) != len(tt.moved) {
				t.Errorf("there are %v, want %v", left, tt.moved)
			}
			for now, was := range tt.moved {
				if text, err := os.ReadFile(filepath.Join(dir, now)); err != nil || string(text) != was {
					t.Errorf("%s was %s, %v; want %s", now, text, err, was)
				}
			}
		})
	}
}

// What may not be moved stays, and the answer says why.
func TestMoveAsideRefuses(t *testing.T) {
	dir := t.TempDir()
	at := func(n string) string { return filepath.Join(dir, n) }
	_, err := MoveAside(at("none.db"), noon)
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "there is no book") || len(names(t, dir)) > 0 {
		t.Errorf("no book: %v, and there are %v", err, names(t, dir))
	}
	b, err := Lock(at("open.db"), true)
	if err != nil {
		t.Fatal(err)
	}
	_, err = MoveAside(at("open.db"), noon)
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("a book that is open: %v", err)
	}
	if err := errors.Join(b.Close(), os.Symlink(at("open.db"), at("link.db")), os.Mkdir(at("folder.db"), 0o700)); err != nil {
		t.Fatal(err)
	}
	before := names(t, dir)
	for _, n := range []string{"link.db", "folder.db"} {
		_, err := MoveAside(at(n), noon)
		if err == nil || !strings.Contains(err.Error(), at(n)+": it is no regular file") {
			t.Errorf("%s: %v", n, err)
		}
	}
	if after := names(t, dir); !slices.Equal(after, before) {
		t.Errorf("there are %v, there were %v", after, before)
	}
}
