package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/netdb"
)

// F16: the book's log is moved away under a daemon that is asked for nothing. It
// notices by itself: readiness, status, doctor and the metric are red and say what to
// do, changes are refused, reads go on. Once the log is back so is the daemon. Then
// the log is deleted for good: an orderly restart has all that was acknowledged.
func TestF16FilesTakenAwayUnderADaemon(t *testing.T) {
	t.Parallel()
	w := newWorld(t, slow, func(c *config.Config) { c.Book.Path = filepath.Join(filepath.Dir(c.Book.Path), "state", "book.db") })
	holder := w.allocate("holder").Leases[0]
	log := w.cfg.Book.Path + "-wal"
	notices := func() {
		t.Helper()
		realtest.Eventually(t, wait, "the daemon to notice by itself", func() bool {
			_, err := w.client.Ready(ctx)
			return err != nil && strings.Contains(err.Error(), log+" is gone")
		})
		if status, err := w.client.Status(ctx); err != nil || status.Ready || !strings.Contains(status.Book.ReadOnly, log) {
			t.Errorf("status: %+v, %v", status, err)
		}
		if !slices.Contains(w.findings(), "book_readonly") || w.metric("book_readonly") != "1" {
			t.Errorf("doctor says %v, the metric %s", w.findings(), w.metric("book_readonly"))
		}
		_, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "refused"})
		wantReadonly(t, "allocate", err)
		if now, err := w.client.Lease(ctx, holder.ID); err != nil || now.Lease.Address != holder.Address {
			t.Errorf("the lease is %+v, %v", now, err)
		}
		if past, err := w.client.History(ctx, client.HistoryFilter{LeaseID: holder.ID}); err != nil || len(past.Changes) == 0 {
			t.Errorf("the history: %+v, %v", past, err)
		}
	}
	must(t, os.Rename(log, log+".away"))
	notices()
	must(t, os.Rename(log+".away", log))
	realtest.Eventually(t, wait, "the daemon to go on by itself", func() bool {
		_, err := w.client.Ready(ctx)
		return err == nil
	})
	next := w.allocate("next").Leases[0]
	must(t, os.Remove(log))
	notices()
	w.stopDaemon()
	w.start()
	for sandbox, address := range map[string]string{"holder": holder.Address, "next": next.Address} {
		if who := w.whois(address); who.Lease == nil || who.Lease.Sandbox != sandbox {
			t.Errorf("%s's %s is %+v", sandbox, address, who.Lease)
		}
	}
}

// F15: a second daemon by a symlink is refused by the book, before it touches the
// bridge; with a hard link none starts, and it is said why.
func TestF15ASecondDaemonByAnotherName(t *testing.T) {
	t.Parallel()
	w := newWorld(t, slow)
	w.allocate("holder")
	real := w.cfg.Book.Path
	other := filepath.Join(t.TempDir(), "book.db")
	must(t, os.Symlink(real, other))
	w.cfg.Book.Path = other
	if err := w.newProgram().open(ctx); !errors.Is(err, netdb.ErrLocked) {
		t.Errorf("by a symlink: %v", err)
	}
	w.stopDaemon()
	w.start() // by its link
	if _, err := os.Stat(real + "-wal"); err != nil {
		t.Errorf("the log is not beside the book: %v", err)
	}
	w.stopDaemon()
	w.cfg.Book.Path = real
	must(t, errors.Join(os.Remove(other), os.Link(real, other)))
	if err := w.newProgram().open(ctx); err == nil || !strings.Contains(err.Error(), "hard link") {
		t.Errorf("with a hard link: %v", err)
	}
}

// F14, F23: `ipamd check` says of a damaged log, and of an older copy, what is wrong,
// and changes neither; the daemon refuses the one and begins another epoch with the
// other, and says why.
func TestF14F23CheckSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, slow)
	w.allocate("a")
	w.stopDaemon()
	older, err := os.ReadFile(w.cfg.Book.Path)
	must(t, err)
	w.start()
	for _, sandbox := range []string{"b", "c", "d"} {
		w.allocate(sandbox)
	}
	killed := filepath.Join(t.TempDir(), "book.db")
	for name, data := range w.folder() {
		must(t, os.WriteFile(filepath.Join(filepath.Dir(killed), name), data, 0o600))
	}
	epoch := w.program.book.Epoch()
	w.stopDaemon()
	log, err := os.ReadFile(killed + "-wal")
	must(t, err)
	log[32+24+100] ^= 1
	must(t, os.WriteFile(killed+"-wal", log, 0o600))
	if code, out, _ := ipamd(t, "check", killed); code != exitError || !strings.Contains(out, netdb.FileIsWhole) || !strings.Contains(out, "frame 1 of it") {
		t.Errorf("a damaged log: exit code %d: %s", code, out)
	}
	must(t, os.WriteFile(w.cfg.Book.Path, older, 0o600)) // in the same file, as cp does
	if code, out, _ := ipamd(t, "check", w.cfg.Book.Path); code != exitError || !strings.Contains(out, netdb.NothingIsMissing) {
		t.Errorf("an older copy: exit code %d: %s", code, out)
	}
	w.start()
	if now := w.program.book.Epoch(); now == epoch || !strings.Contains(w.log.String(), "it goes on in another epoch") {
		t.Errorf("the epoch is %s, and was %s: %s", now, epoch, w.log.String())
	}
	w.stopDaemon()
	now := w.cfg.Book.Path
	w.cfg.Book.Path = killed
	if err := w.newProgram().open(ctx); !errors.Is(err, netdb.ErrDamaged) {
		t.Errorf("a damaged log: %v", err)
	}
	w.cfg.Book.Path = now
}
