package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/rebuild"
)

// G15: check and rebuild, run by root on a book beside which another user has planted
// links and pipes, write to nothing outside, and do not wait.
func TestG15NothingIsWrittenThroughALink(t *testing.T) {
	t.Parallel()
	path := book(t)
	victim := filepath.Join(t.TempDir(), "shadow")
	must(t, os.WriteFile(victim, []byte("root:*"), 0o600))
	spared := func(what string) {
		t.Helper()
		if is, err := os.ReadFile(victim); err != nil || string(is) != "root:*" {
			t.Errorf("%s wrote to it: %q, %v", what, is, err)
		}
	}
	for _, part := range []string{".lock", "-shm", "-journal", ".rebuilding-wal"} {
		must(t, os.Symlink(victim, path+part))
	}
	code, out, stderr := ipamd(t, "check", path)
	if code != exitOK || !strings.Contains(out, "whole") {
		t.Errorf("exit %d: %s%s", code, out, stderr)
	}
	spared("check")

	w := newWorld(t, slow)
	w.allocate("a")
	w.stopDaemon()
	s := rebuild.Swap{Path: w.cfg.Book.Path}
	for _, part := range []string{"", "-wal", "-shm", "-mark"} {
		must(t, os.Symlink(victim, s.Rebuilding()+part))
	}
	must(t, os.Symlink(victim, s.Path+".lock"))
	if _, err := w.rebuild(preview, force); err == nil || !strings.Contains(err.Error(), "no regular file") {
		must(t, err)
	}
	if _, err := w.rebuild(force); err != nil {
		t.Fatal(err)
	}
	spared("rebuild")

	// One that another seems to have cut is not finished with what is no file.
	must(t, os.Rename(s.Path, s.Path+".away"))
	for kind, plant := range map[string]func(string) error{
		"a link": func(at string) error { return os.Symlink(victim, at) },
		"a pipe": func(at string) error { return unix.Mkfifo(at, 0o600) },
	} {
		for _, at := range []string{s.Sealed(), s.Rebuilding()} {
			must(t, plant(at))
			if at == s.Rebuilding() {
				must(t, os.WriteFile(s.Sealed(), nil, 0o600))
			}
			_, err := w.rebuild()
			w.refuses(fmt.Sprintf("%s at %s", kind, at), err, "no regular file")
			w.refuses("the daemon", w.newProgram().open(ctx), "")
			must(t, errors.Join(os.RemoveAll(s.Rebuilding()), os.RemoveAll(s.Sealed())))
		}
	}
	spared("what finishes a rebuild")
	must(t, os.Rename(s.Path+".away", s.Path))
}

// G17: a configuration that any user may write to or replace is refused by every verb
// and by a reload; config says the same of the book that it names. Others that may
// are named at the start, and a link to a file in a good folder is fine.
func TestG17TheConfiguration(t *testing.T) {
	doc := "[book]\npath = 'BOOK'\n[socket]\ngroup = ''\n"
	for name, tt := range map[string]struct {
		do      func(conf, book string) error
		want    string // of every verb; "" when it is taken
		exposed string
	}{
		"as it should be":                     {func(string, string) error { return nil }, "", ""},
		"a file that any user may write to":   {func(conf, _ string) error { return os.Chmod(conf, 0o646) }, "CONF: any user may write to it (mode 0646)", ""},
		"a folder that any user may write to": {func(conf, _ string) error { return os.Chmod(filepath.Dir(conf), 0o777) }, "any user may write to it: its folder", ""},
		"a folder like /tmp":                  {func(conf, _ string) error { return os.Chmod(filepath.Dir(conf), 0o777|os.ModeSticky) }, "", ""},
		"a device": {func(conf, _ string) error {
			return errors.Join(os.Remove(conf), unix.Mknod(conf, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))))
		}, "no regular file", ""},
		"a file of a group's":                        {func(conf, _ string) error { return errors.Join(os.Chmod(conf, 0o664), os.Chown(conf, 0, 1234)) }, "", "group 1234"},
		"a file of another user's":                   {func(conf, _ string) error { return os.Chown(conf, 1234, 0) }, "", "user 1234"},
		"a book that any user may write to":          {func(_, book string) error { return os.Chmod(book, 0o666) }, "CONF:2:1: book.path: any user may write to it: BOOK (mode 0666)", ""},
		"a book's folder that any user may write to": {func(_, book string) error { return os.Chmod(filepath.Dir(book), 0o777) }, "CONF:2:1: book.path: any user may write to it", ""},
		"a link": {func(conf, _ string) error {
			return errors.Join(os.Rename(conf, conf+".real"), os.Symlink(conf+".real", conf))
		}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			at := book(t)
			conf := filepath.Join(t.TempDir(), "ipamd.toml")
			must(t, os.WriteFile(conf, []byte(strings.ReplaceAll(doc, "BOOK", at)), 0o600))
			must(t, tt.do(conf, at))
			code, _, stderr := ipamd(t, "config", "--config", conf)
			want := strings.NewReplacer("CONF", conf, "BOOK", at).Replace(tt.want)
			if (code == exitOK) != (tt.want == "") || !strings.Contains(stderr, want) {
				t.Errorf("exit %d: %s", code, stderr)
			}
			if tt.want != "" {
				if code, _, stderr := ipamd(t, "run", "--config", conf); code == exitOK || !strings.Contains(stderr, want) {
					t.Errorf("run: exit %d: %s", code, stderr)
				}
			} else if who := config.OtherWriters(conf); !strings.Contains(who, tt.exposed) || (who == "") != (tt.exposed == "") {
				t.Errorf("it is reported: %q", who)
			}
		})
	}
	// a check reports its book
	at := book(t)
	must(t, os.Chmod(filepath.Dir(at), 0o777))
	code, out, stderr := ipamd(t, "check", at)
	if code != exitOK || !strings.Contains(out, "whole") || !strings.Contains(stderr, "any user may write to it") {
		t.Errorf("exit %d: %s%s", code, out, stderr)
	}
}

// G16: what a hostile book says about itself steers no terminal: names in its schema,
// its epoch and that of its mark, states and ids in its history.
func TestG16NoWordOfABookSteersTheTerminal(t *testing.T) {
	const esc = `char(27) || '[2J' || char(155) || char(0x202e) || char(10) || char(10)`
	hostile := map[string]string{
		"a name in the schema":  "CREATE TABLE \"\x1b[2J\u202e\" (x)",
		"a schema that is none": "PRAGMA writable_schema = 1; INSERT INTO sqlite_master VALUES ('table', " + esc + ", 't', 3, 'CREATE TABLE t (')",
		"its epoch":             `UPDATE book SET epoch = ` + esc,
		"a state":               `PRAGMA ignore_check_constraints = 1; INSERT INTO changes SELECT rev + 1, wall, boottime, boot_id, 'lease', '10.8.64.2', ` + esc + `, pool_uid, pool, sandbox, uid, interface, attempt, from_state, ` + esc + `, actor, peer, reason, note, evidence, uptime, row_sum FROM changes`,
	}
	for name, sql := range hostile {
		t.Run(name, func(t *testing.T) {
			path := book(t)
			execute(t, path, sql)
			conf := confFile(t, "[book]\npath = '"+path+"'\n[socket]\ngroup = ''\n[runtime]\nkind = 'none'\n[bridge]\nname = 'none0'\n")
			for _, args := range [][]string{{"check", path}, {"rebuild", "--preview", "--force", "--config", conf}} {
				_, out, stderr := ipamd(t, args...)
				if i := strings.IndexFunc(out+stderr, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }); i >= 0 || out+stderr == "" {
					t.Errorf("%v says %q", args, out+stderr)
				}
				if args[0] == "check" && strings.Contains(out, "\n\n") {
					t.Errorf("a finding is two lines: %q", out)
				}
			}
		})
	}
}

// G16: rebuild ends, and finds what can be trusted, where another user has put a view
// without an end in the place of a table, or a trigger that takes leases away.
func TestG16ARebuildOfAHostileBook(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"a view": `PRAGMA foreign_keys = 0; DROP TABLE changes; CREATE VIEW changes AS
			WITH RECURSIVE e(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM e) SELECT n AS rev, n AS subject FROM e WHERE n < 0`,
		"a trigger": `CREATE TRIGGER t AFTER INSERT ON changes BEGIN DELETE FROM leases; END`,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, slow)
			l := w.allocate("asleep").Leases[0]
			w.stopDaemon()
			execute(t, w.cfg.Book.Path, sql)
			before := w.folder()
			w.refuses("the daemon", w.newProgram().open(ctx), "its schema is not ipamd's", "ipamd rebuild")
			w.unchanged(before)
			report, err := w.rebuild()
			must(t, err)
			if len(report.SetAside) != 1 || report.SetAside[0].Address != l.Address {
				t.Errorf("kept back: %+v", report.SetAside)
			}
			w.start()
			w.give("new", addr(3))
			if got := w.state(l.Address); got != api.Quarantined {
				t.Errorf("it is %s", got)
			}
		})
	}
}
