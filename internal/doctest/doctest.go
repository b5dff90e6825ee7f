// Package doctest holds documents and deployed files against the code, in tests: a table
// of a page is compared with what the program has, and promtool judges what Prometheus
// reads. It never writes a file.
package doctest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/internal/realtest"
)

// Path returns where a file of the module is, by its path from the module's folder.
func Path(t testing.TB, file string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, file)
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above the test")
		}
		dir = filepath.Dir(dir)
	}
}

// Rows returns the rows of the table of a page that begins with a header.
func Rows(t testing.TB, page, header string) []string {
	t.Helper()
	text, err := os.ReadFile(Path(t, page))
	if err != nil {
		t.Fatal(err)
	}
	_, after, ok := strings.Cut(string(text), header+"\n")
	if !ok {
		t.Fatalf("%s has no table %s", page, header)
	}
	var rows []string
	for line := range strings.Lines(after) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			break
		}
		rows = append(rows, line)
	}
	return rows[1:] // without the rule below the header
}

// Commands returns what a page tells a reader to type that begins with one of the programs: the
// lines of its blocks, those that go on with a backslash joined, without the prompt.
func Commands(t testing.TB, page string, programs ...string) (out [][]string) {
	t.Helper()
	text, err := os.ReadFile(Path(t, page))
	if err != nil {
		t.Fatal(err)
	}
	joined := strings.ReplaceAll(string(text), "\\\n", " ")
	for line := range strings.Lines(joined) {
		block, is := strings.CutPrefix(line, "    ")
		if words := strings.Fields(strings.TrimPrefix(block, "$ ")); is && len(words) > 1 && slices.Contains(programs, words[0]) {
			out = append(out, words)
		}
	}
	return out
}

// Blocks returns the fenced blocks of a page in a language.
func Blocks(t testing.TB, page, language string) (out []string) {
	t.Helper()
	text, err := os.ReadFile(Path(t, page))
	if err != nil {
		t.Fatal(err)
	}
	for _, after := range strings.Split(string(text), "\n```"+language+"\n")[1:] {
		block, _, ended := strings.Cut(after, "\n```")
		if !ended {
			t.Fatalf("%s has a block that does not end", page)
		}
		out = append(out, block+"\n")
	}
	return out
}

// SameRows fails the test when a table is not, in any order, what the code has, and
// prints the rows that differ.
func SameRows(t testing.TB, page string, got, want []string) {
	t.Helper()
	for _, row := range want {
		if !slices.Contains(got, row) {
			t.Errorf("%s lacks this row, or has another one:\n%s", page, row)
		}
	}
	for i, row := range got {
		if !slices.Contains(want, row) {
			t.Errorf("%s has a row for what is not there:\n%s", page, row)
		}
		if slices.Contains(got[:i], row) {
			t.Errorf("%s has a row twice:\n%s", page, row)
		}
	}
}

// Promtool runs the promtool of .cache, and returns its output and whether it
// succeeded.
func Promtool(t testing.TB, stdin []byte, args ...string) (output string, ok bool) {
	t.Helper()
	program := Path(t, ".cache/promtool/promtool")
	if _, err := os.Stat(program); err != nil {
		realtest.Lack(t, "needs promtool, which scripts/promtool fetches")
	}
	cmd := exec.Command(program, args...)
	cmd.Stdin = bytes.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}
