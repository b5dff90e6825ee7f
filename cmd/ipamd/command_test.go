package main

import (
	"bytes"
	"database/sql"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
)

func TestBadCommandLines(t *testing.T) {
	bad := confFile(t, "[log]\nlevel = 'loud'\n")
	for _, c := range []struct {
		name, line string
		want       []string
	}{
		{"unknown verb", "chekc", []string{`ipamd has no verb "chekc"; did you mean check?`, "see ipamd --help"}},
		{"unknown flag", "--nope", []string{"unknown flag: --nope", "see ipamd --help"}},
		{"unknown flag of a verb", "run --nope", []string{"unknown flag: --nope", "see ipamd run --help"}},
		{"argument of run", "run x", []string{`unknown command "x"`, "see ipamd run --help"}},
		{"argument of config", "config x", []string{`unknown command "x"`, "see ipamd config --help"}},
		{"argument of version", "version x", []string{`unknown command "x"`}},
		{"two books", "check a b", []string{"accepts at most 1 arg(s), received 2", "see ipamd check --help"}},
		{"a book and a configuration", "check a --config " + bad, []string{"name either a book or a configuration"}},
		{"configuration without a name", "config --config=", []string{"--config names no file", "see ipamd config --help"}},
		{"configuration that is absent", "run --config /nonexistent", []string{"/nonexistent: cannot be read: no such file or directory"}},
		{"configuration that is wrong", "run --config " + bad, []string{"ipamd: the configuration is wrong:\n" + bad + ":2:1: log.level:"}},
		{"the same, without a verb", "--config " + bad, []string{bad + ":2:1: log.level:"}},
		{"the same, to check", "check --config " + bad, []string{bad + ":2:1: log.level:"}},
		{"dev and a configuration", "run --dev --config " + bad, []string{"--dev has a configuration of its own; leave --config out"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, out, stderr := ipamd(t, strings.Fields(c.line)...)
			if code != exitUsage || out != "" {
				t.Errorf("exit code %d, stdout %q", code, out)
			}
			wants(t, "stderr", stderr, c.want...)
		})
	}
}

func TestEveryVerbHasHelpWithExamples(t *testing.T) {
	for _, verb := range []string{"", "run", "config", "check", "rebuild", "restore", "import", "flush", "docker", "plumb", "warm", "version"} {
		code, out, stderr := ipamd(t, append(strings.Fields(verb), "--help")...)
		for line := range strings.Lines(out) {
			if len(line) > 81 {
				t.Errorf("%q: a line of more than 80 columns: %s", verb, line)
			}
		}
		if code != exitOK || stderr != "" {
			t.Errorf("%q: exit code %d, stderr %q", verb, code, stderr)
		}
		wants(t, verb+" --help", out, "Usage:", "Examples:\n  ipamd")
		if strings.Contains(out, "--inside") {
			t.Errorf("%q shows what is not to be used:\n%s", verb, out)
		}
	}
}

func TestConfigVerb(t *testing.T) {
	path := confFile(t, "[allocation]\ncooldown = '1h'\n[socket]\ngroup = ''\n")
	code, out, stderr := ipamd(t, "config", "--config", path)
	if code != exitOK || stderr != "" {
		t.Fatalf("exit code %d, stderr %q", code, stderr)
	}
	want := config.Default()
	want.Allocation.Cooldown, want.Socket.Group = config.Duration(60*60e9), ""
	if out != string(confText(t, want)) {
		t.Errorf("printed\n%s", out)
	}
}

// What this machine lacks for a configuration is said by config as by run, with
// the place, and nothing is made.
func TestF32ConfigSaysWhatTheStartWould(t *testing.T) {
	dir := t.TempDir()
	path := confFile(t, "[socket]\ngroup = 'no-such-group'\npath = '"+filepath.Join(dir, "f/s")+"'\n[book]\npath = '"+dir+"'\n")
	if err := os.MkdirAll(filepath.Join(dir, "f/s"), 0o700); err != nil {
		t.Fatal(err)
	}
	want := "ipamd: the configuration is wrong:\n" +
		path + ":2:1: socket.group: this machine has no group \"no-such-group\": make it (groupadd --system no-such-group), or set group = ''\n" +
		path + ":3:1: socket.path: \"" + dir + "/f/s\" is there, and is no socket\n" +
		path + ":5:1: book.path: \"" + dir + "\" is a folder\n"
	for _, verb := range []string{"config", "run"} {
		code, out, stderr := ipamd(t, verb, "--config", path)
		if code != exitUsage || stderr != want || verb == "config" && !strings.Contains(out, "group = 'no-such-group'") {
			t.Errorf("%s: exit %d, stderr\n%swant\n%s", verb, code, stderr, want)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("it left %v, %v", left, err)
	}
}

// The help of completion shows how, and a shell that it does not know is refused.
func TestCompletionVerb(t *testing.T) {
	code, out, _ := ipamd(t, "completion", "--help")
	if code != exitOK {
		t.Errorf("exit code %d", code)
	}
	wants(t, "help", out, "Examples:", "source <(ipamd completion bash)", "ipamd completion zsh >", "ipamd completion fish >")
	code, out, stderr := ipamd(t, "completion", "fihs")
	if code != exitUsage || out != "" {
		t.Errorf("a shell that is none: exit code %d, %q", code, out)
	}
	wants(t, "stderr", stderr, `ipamd completion has no verb "fihs"; did you mean fish?`)
}

func TestVersionVerb(t *testing.T) {
	code, out, _ := ipamd(t, "version")
	if code != exitOK {
		t.Errorf("exit code %d", code)
	}
	v := thisBuild()
	wants(t, "version", out, "ipamd "+v.Version+"\n", v.Go+"\n", "schema "+strconv.Itoa(v.Schema)+"\n")
	if code, flag, _ := ipamd(t, "--version"); code != 0 || flag != out {
		t.Errorf("--version: exit %d, %q, want %q", code, flag, out)
	}
}

// book makes a book with the default pool and returns its path.
func book(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "book.db")
	b, err := netdb.Open(path, config.Default().BookOptions())
	if err != nil {
		t.Fatal(err)
	}
	specs, err := config.Default().PoolSpecs()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.EnsurePool(t.Context(), ipam.Who{Actor: ipam.ByOperator}, specs[0]); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCheckVerb(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(t *testing.T, path string)
		code   int
		want   []string // on stdout and stderr
	}{
		{"whole", func(*testing.T, string) {}, exitOK, []string{"whole: 0 addresses in use or cooling, revision 1"}},
		{"a pool that no change made", func(t *testing.T, path string) {
			execute(t, path, `DELETE FROM changes`)
		}, exitError, []string{"nothing-is-missing: revision 1 was acknowledged", "1 violations; nothing was changed"}},
		{"pages overwritten", func(t *testing.T, path string) {
			doc, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for i := 4096; i < len(doc); i++ {
				doc[i] = 0xa5
			}
			if err := os.WriteFile(path, doc, 0o600); err != nil {
				t.Fatal(err)
			}
		}, exitError, []string{"file-is-whole: ", "damaged"}},
		{"newer schema", func(t *testing.T, path string) { execute(t, path, `PRAGMA user_version = 1000`) },
			exitUsage, []string{"written by a newer ipamd"}},
		{"another program's", func(t *testing.T, path string) { execute(t, path, `PRAGMA application_id = 7`) },
			exitUsage, []string{"not a lease book of ipamd"}},
		{"no book", func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte("hello"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, exitUsage, []string{"not a lease book of ipamd", `"ipamd rebuild" moves it away`, "with --force where nothing of it can be read"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := book(t)
			c.change(t, path)
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{{"check", path}, {"check", "--config", confFile(t, "[book]\npath = '"+path+"'\n")}} {
				code, out, stderr := ipamd(t, args...)
				if code != c.code {
					t.Errorf("%v: exit code %d, want %d", args, code, c.code)
				}
				wants(t, "output", out+stderr, append(c.want, path)...)
				if strings.Contains(out+stderr, "ipamd check") {
					t.Errorf("check says to run check: %s%s", out, stderr)
				}
			}
			if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
				t.Errorf("the book was changed, or is gone: %v", err)
			}
		})
	}
}

// execute changes a book behind its back. The driver is netdb's.
func execute(t *testing.T, path, script string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(script); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestCheckOfNothingLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	code, _, stderr := ipamd(t, "check", filepath.Join(dir, "book.db"))
	if code != exitUsage {
		t.Errorf("exit code %d", code)
	}
	wants(t, "stderr", stderr, "no such file or directory")
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("it left %v, %v", left, err)
	}
}

func TestCheckOfABookInUse(t *testing.T) {
	path := book(t)
	b, err := netdb.Open(path, config.Default().BookOptions())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	code, out, stderr := ipamd(t, "check", path)
	if code != exitUsage || out != "" {
		t.Errorf("exit code %d, stdout %q", code, out)
	}
	wants(t, "stderr", stderr, "in use by process "+strconv.Itoa(os.Getpid()))
}

func confText(t testing.TB, c config.Config) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := c.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// file writes a configuration and returns its path.
func confFile(t testing.TB, doc string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ipamd.toml")
	if err := os.WriteFile(path, []byte(doc), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
