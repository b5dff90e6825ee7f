package storm_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// filesAway takes files of the book away from under ipamd and puts them back, some
// of them or all, and at times kills ipamd in between. What is answered meanwhile is
// judged as everything is.
func (b *weather) filesAway() {
	b.t.Helper()
	parts := [][]string{{"", "-wal", "-shm"}, {""}, {"-wal"}, {"-shm"}, {"", "-wal"}}[b.r.IntN(5)]
	book := b.daemon.book
	for _, part := range parts {
		if err := os.Rename(book+part, book+".away"+part); err != nil {
			b.t.Fatal(err)
		}
	}
	b.rest(b.r, time.Millisecond, 2*time.Second)
	kill := b.r.IntN(3) == 0
	if kill {
		b.killIpamd()
	}
	for _, part := range parts {
		if err := os.Rename(book+".away"+part, book+part); err != nil {
			b.t.Fatal(err)
		}
	}
	if kill {
		b.startIpamd()
	}
	b.rec.counted("files of the book away and back")
}

// secondDaemon starts another ipamd on the book of the one that runs, by another
// name. It has to be refused because of that.
func (b *weather) secondDaemon() {
	b.t.Helper()
	dir, err := os.MkdirTemp(b.dir, "second-")
	if err != nil {
		b.t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	link, name := os.Symlink, "symlink"
	if b.r.IntN(2) == 0 {
		link, name = os.Link, "hard link"
	}
	other := &daemon{program: b.daemon.program, dir: dir, book: filepath.Join(dir, "book.db"), netns: b.daemon.netns,
		offset: b.daemon.offset, boot: b.daemon.boot}
	config, err := os.ReadFile(b.daemon.path("ipamd.toml"))
	if err == nil {
		config = []byte(strings.ReplaceAll(string(config), "'"+b.daemon.dir+"/", "'"+dir+"/"))
		err = errors.Join(os.WriteFile(other.path("ipamd.toml"), config, 0o600), link(b.daemon.book, other.book), other.start())
	}
	if err != nil {
		b.t.Fatal(err)
	}
	select {
	case <-other.ended:
	case <-time.After(patience):
		b.rec.strange("a second ipamd on the book runs: %v", other.kill())
	}
	said, err := os.ReadFile(other.path("log"))
	want := fmt.Sprintf("the book is in use by process %d", b.daemon.cmd.Process.Pid)
	if err != nil || other.cmd.ProcessState.Success() || !strings.Contains(string(said), want) {
		b.rec.strange("a second ipamd by a %s: %v, %v: %s", name, other.cmd.ProcessState, err, said)
	}
	b.rec.counted("second ipamd by a " + name)
}
