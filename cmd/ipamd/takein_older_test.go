package main

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/netdb"
)

// bookOf010 unpacks the book that ipamd 0.1.0 made.
func bookOf010(t *testing.T) (path string) {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("tar", "xzf", "../../netdb/testdata/book-0.1.0.tar.gz", "-C", dir).CombinedOutput(); err != nil {
		t.Fatal(string(out))
	}
	return filepath.Join(dir, "book.db")
}

func filesOf(t *testing.T, path string) map[string][]byte {
	t.Helper()
	out := make(map[string][]byte)
	for _, end := range []string{"", "-wal", "-mark"} {
		b, err := os.ReadFile(path + end)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		out[end] = b
	}
	return out
}

// A backup that was made before an upgrade is restored behind it, and so it is where the
// present book is not migrated yet. Both stay as they are to the byte; an edited one is refused.
func TestARestoreOfAnOlderSchema(t *testing.T) {
	t.Parallel()
	w := newWorld(t, slow, func(c *config.Config) { c.Book.RunnerUID = "runner-of-0.1.0" })
	w.stopDaemon()
	backup, edited := bookOf010(t), bookOf010(t)
	was := filesOf(t, backup)
	done, err := w.takeIn(backup, true)
	must(t, err)
	if len(done.Became) == 0 || slices.ContainsFunc(became(done), func(s string) bool { return len(s) == 0 }) {
		t.Fatalf("it says %q", became(done))
	}
	first := became(done)

	w.loseBook()
	w.cfg.Book.Path = bookOf010(t) // it comes back as it was, and is not migrated
	old := filesOf(t, w.cfg.Book.Path)
	would, err := w.takeIn(backup, false)
	must(t, err)
	if len(would.Became) != len(first) {
		t.Errorf("beside a book that is not migrated it says %q, and alone %q", became(would), first)
	}
	if !maps.EqualFunc(old, filesOf(t, w.cfg.Book.Path), bytes.Equal) || !maps.EqualFunc(was, filesOf(t, backup), bytes.Equal) {
		t.Error("a look has changed a file")
	}
	_, err = w.rebuild(preview, force)
	must(t, err)

	w.editOf(edited, `UPDATE leases SET sandbox = 'impostor' WHERE sandbox <> ''`)
	_, err = w.takeIn(edited, true)
	w.refuses("an edited backup", err, netdb.RowsAreAsRecorded)
}
