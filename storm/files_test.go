package storm_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// takeAway takes files of the book away from under ipamd, some of them or all, or
// their folder, and returns what puts them back. Without the book or its log nothing
// may be acknowledged; without the index alone it may.
func (w *world) takeAway(r *rand.Rand) (putBack func(), indexOnly bool) {
	w.t.Helper()
	w.hasItsBook()
	book := w.daemon.book
	log, index := book+"-wal", book+"-shm"
	all := [][]string{{book, log, index}, {book}, {log}, {index}, {book, log}, {filepath.Dir(book)}}
	moved := all[r.IntN(len(all))]
	move := func(from, to string) {
		for _, name := range moved {
			if err := os.Rename(name+from, name+to); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	move("", ".away")
	return func() { move(".away", "") }, moved[0] == index
}

// hasItsBook waits for ipamd to answer: one that opens a book that is not there makes
// another, and that is no fault.
func (w *world) hasItsBook() {
	w.t.Helper()
	w.eventually("ipamd has its book", func() bool {
		_, err := w.client.Status(w.ctx)
		return err == nil
	})
}

// filesAway takes files away and puts them back, and at times kills ipamd in
// between. What is answered meanwhile is judged as everything is.
func (b *faults) filesAway() {
	b.t.Helper()
	putBack, _ := b.takeAway(b.r)
	b.rest(b.r, time.Millisecond, 2*time.Second)
	kill := b.r.IntN(3) == 0
	if kill {
		b.killIpamd()
	}
	putBack()
	if kill {
		b.startIpamd()
	}
	b.rec.counted(filesAway)
}

// mounted makes a file another name of the book, as a volume does.
func mounted(book, name string) error {
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		return err
	}
	return unix.Mount(book, name, "", unix.MS_BIND, "")
}

// secondDaemon starts another ipamd on the book of the one that runs, by another
// name. It has to be refused because of that.
func (w *world) secondDaemon(r *rand.Rand) {
	w.t.Helper()
	w.hasItsBook()
	dir, err := os.MkdirTemp(w.dir, "second-")
	if err != nil {
		w.t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	way := []struct {
		name string
		make func(book, name string) error
	}{{"symlink", os.Symlink}, {"hard link", os.Link}, {"bind mount", mounted}}[r.IntN(3)]
	other := &daemon{program: w.daemon.program, dir: dir, book: filepath.Join(dir, "state", "book.db"), netns: w.daemon.netns,
		offset: w.daemon.offset, boot: w.daemon.boot}
	config, err := os.ReadFile(w.daemon.path("ipamd.toml"))
	if err == nil {
		config = []byte(strings.NewReplacer("'"+w.daemon.book+"'", "'"+other.book+"'", "'"+w.daemon.dir+"/", "'"+dir+"/").Replace(string(config)))
		err = errors.Join(os.WriteFile(other.path("ipamd.toml"), config, 0o600), os.Mkdir(filepath.Dir(other.book), 0o700),
			way.make(w.daemon.book, other.book))
	}
	if err == nil {
		defer unix.Unmount(other.book, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		err = other.start()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	select {
	case <-other.ended:
	case <-time.After(patience):
		w.rec.strange("a second ipamd on the book runs: %v", other.kill())
	}
	message, err := os.ReadFile(other.path("log"))
	want := fmt.Sprintf("the book is in use by process %d", w.daemon.cmd.Process.Pid)
	if err != nil || other.cmd.ProcessState.Success() || !strings.Contains(string(message), want) {
		w.rec.strange("a second ipamd by a %s: %v, %v: %s", way.name, other.cmd.ProcessState, err, message)
	}
	w.rec.counted(second + way.name)
}

// second is how a second ipamd is counted, by the way in which it came.
const second = "second ipamd by a "
