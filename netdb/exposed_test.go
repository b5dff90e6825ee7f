package netdb_test

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/netdb/bookfile"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// G17: a book that any user may write to, or beside which any user may make files, is
// refused by a start and left as it is; the one who looks it over reads why. What a group or
// another user may do is reported while the daemon runs; what machines are like that are
// set up well is neither. F15: a second name that is made meanwhile is reported, too.
func TestG17WhoElseMayWrite(t *testing.T) {
	realtest.Root(t)
	chmod := func(part string, mode os.FileMode) func(string) error {
		return func(path string) error { return os.Chmod(filepath.Join(filepath.Dir(path), part), mode) }
	}
	chown := func(uid, gid int, parts ...string) func(string) error {
		return func(path string) (err error) {
			for _, part := range parts {
				err = errors.Join(err, os.Chown(filepath.Join(filepath.Dir(path), part), uid, gid))
			}
			return err
		}
	}
	both := func(fns ...func(string) error) func(string) error {
		return func(path string) (err error) {
			for _, fn := range fns {
				err = errors.Join(err, fn(path))
			}
			return err
		}
	}
	for name, tt := range map[string]struct {
		do       func(path string) error
		refused  bool
		reported string // while it is open; "" when there is nothing to report
	}{
		"a book that any user may write to":   {chmod("book.db", 0o606), true, "any user"},
		"a folder that any user may write to": {chmod("", 0o777), true, "any user"},
		"a folder like /tmp":                  {chmod("", 0o777|os.ModeSticky), true, "any user"},
		"a folder of a group's":               {both(chmod("", 0o770), chown(0, 1234, "")), false, "group 1234"},
		"a book of a group's":                 {both(chmod("book.db", 0o660), chown(0, 1234, "book.db")), false, "group 1234"},
		"a folder of another user's":          {chown(1234, 1234, ""), false, "user 1234"},
		"a restored book of another's":        {chown(1234, 1234, "book.db", "book.db-mark"), false, "user 1234"},
		"a second name":                       {func(path string) error { return os.Link(path, path+".second") }, true, ""},
		"a folder that a group may read":      {both(chmod("", 0o750), chown(0, 1234, "")), false, ""},
		"a folder of root's group":            {chmod("", 0o775), false, "group 0"},
		"a parent that any user may write to": {func(path string) error { return os.Chmod(filepath.Dir(filepath.Dir(path)), 0o777) }, false, "another folder in the place"},
		"a parent like /tmp":                  {func(path string) error { return os.Chmod(filepath.Dir(filepath.Dir(path)), 0o777|os.ModeSticky) }, false, ""},
		"restored by root with cp":            {both(chmod("book.db", 0o644), chmod("", 0o755)), false, ""},
		"systemd's private folder": {func(path string) error {
			dir := filepath.Dir(path)
			private := filepath.Join(filepath.Dir(dir), "private")
			return errors.Join(os.Mkdir(private, 0o700), os.Rename(dir, filepath.Join(private, "state")), os.Symlink("private/state", dir))
		}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state", "book.db")
			b := OpenAt(t, path, Options())
			Pool(t, b, "default", "10.8.64.0/24")
			Close(t, b)
			if err := tt.do(path); err != nil {
				t.Fatal(err)
			}
			before := contents(t, filepath.Dir(path))
			b, err := netdb.Open(path, Options())
			if !tt.refused {
				if err != nil {
					t.Fatal(err)
				}
				if reported := b.Info().Exposed; !strings.Contains(reported, tt.reported) || (reported == "") != (tt.reported == "") {
					t.Errorf("it is reported: %s", reported)
				}
				Reserve(t, b, "a")
				Close(t, b)
				return
			}
			if err == nil {
				b.Close()
				t.Fatal("it is opened")
			}
			if after := contents(t, filepath.Dir(path)); !maps.Equal(after, before) {
				t.Error("the refusal changed something")
			}
			if tt.reported == "" {
				return
			}
			wantErr(t, err, netdb.ErrExposed)
			wantErr(t, bookfile.Exposed(path), netdb.ErrExposed)
			opts := Options()
			opts.ReadOnly = true
			look := OpenAt(t, path, opts)
			if reported := look.Info().Exposed; !strings.Contains(reported, tt.reported) {
				t.Errorf("a check reports: %q", reported)
			}
		})
	}
	t.Run("a second name, and a folder that is opened, meanwhile", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "book.db")
		b := OpenAt(t, path, Options())
		Pool(t, b, "default", "10.8.64.0/24")
		if reported := b.Info().Exposed; reported != "" {
			t.Error(reported)
		}
		if err := errors.Join(os.Link(path, path+".second"), os.Chmod(filepath.Dir(path), 0o777)); err != nil {
			t.Fatal(err)
		}
		if reported := b.Info().Exposed; !strings.Contains(reported, "2 names") || !strings.Contains(reported, "any user") {
			t.Errorf("it is reported: %q", reported)
		}
		Reserve(t, b, "a") // nothing is refused for that
	})
	t.Run("no book in a folder that any user may write to", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "open")
		if err := errors.Join(os.Mkdir(dir, 0), os.Chmod(dir, 0o777)); err != nil {
			t.Fatal(err)
		}
		_, err := netdb.Open(filepath.Join(dir, "book.db"), Options())
		wantErr(t, err, netdb.ErrExposed)
		if there := files(t, dir); len(there) > 0 {
			t.Errorf("it made %v", there)
		}
	})
}

// G17: a daemon with a user of its own opens the book that it made, again and again,
// and root looks it over; and so does a daemon of root's, which reports it.
func TestG17ADaemonWithAUserOfItsOwn(t *testing.T) {
	realtest.Root(t)
	root := t.TempDir()
	dir := filepath.Join(root, "state")
	path := filepath.Join(dir, "book.db")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	for d := root; d != "/tmp" && len(d) > 1; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(asOtherUser, "1")
	for range 2 {
		if reply := elsewhere(t, path); reply != "opened "+path {
			t.Fatal(reply)
		}
	}
	opts := Options()
	opts.ReadOnly = true
	look := OpenAt(t, path, opts)
	if reported := look.Info().Exposed; reported != "" {
		t.Errorf("a check reports: %s", reported)
	}
	Close(t, look)
	b := OpenAt(t, path, Options())
	if reported := b.Info().Exposed; !strings.Contains(reported, "user 65534") {
		t.Errorf("root is shown: %q", reported)
	}
	Close(t, b)
	if out, err := exec.Command("find", dir, "-not", "-user", "nobody").CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("not the daemon's: %s, %v", out, err)
	}
}
