package main

import (
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// bookFiles are what SQLite may keep of a book, by what is added to its path.
var bookFiles = [...]string{"", "-wal", "-shm"}

// loseBook removes the book of a stopped daemon.
func (w *world) loseBook() {
	w.t.Helper()
	for _, end := range bookFiles {
		if err := os.Remove(w.cfg.Book.Path + end); err != nil && (end == "" || !errors.Is(err, fs.ErrNotExist)) {
			w.t.Fatal(err)
		}
	}
}

// copyBook copies the book of a stopped daemon, and returns what puts the copy
// in the place of a later one.
func (w *world) copyBook() (putBack func()) {
	w.t.Helper()
	copies := make(map[string][]byte)
	for _, end := range bookFiles {
		b, err := os.ReadFile(w.cfg.Book.Path + end)
		if err == nil {
			copies[end] = b
		} else if end == "" || !errors.Is(err, fs.ErrNotExist) {
			w.t.Fatal(err)
		}
	}
	return func() {
		w.t.Helper()
		w.loseBook()
		for end, b := range copies {
			if err := os.WriteFile(w.cfg.Book.Path+end, b, 0o600); err != nil {
				w.t.Fatal(err)
			}
		}
	}
}

// R2: an earlier copy of the book is put back. A sandbox that came after it has its lease
// back before the first request is answered. What the copy has and no workload lives
// with is no other's while it is seen, and ends as any other.
func TestR2OlderBook(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), hasty, pool("10.8.64.0/29"))
		stayed, left := w.box(d, "stayed"), w.box(d, "left")
		w.stopDaemon()
		putBack := w.copyBook()
		w.start()
		later := w.box(d, "later")
		d.Delete(t, "default", "left") // its port stays
		w.stopDaemon()
		putBack()
		w.start()

		live := func(when string, boxes ...*box) {
			t.Helper()
			for _, b := range boxes {
				if who := w.whois(b.held.Address); who.State != api.Bound || who.Lease.Sandbox != b.name || who.Lease.ID != b.held.ID {
					t.Errorf("%s: %s is %s's, and went to %+v", when, b.held.Address, b.name, who.Lease)
				}
			}
		}
		live("at once", stayed, later, left)
		pass := func() {
			t.Helper()
			if _, err := w.client.Reconcile(ctx, api.ReconcileRequest{}); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			pass()
		}
		for _, addr := range []string{addr(5), addr(6)} {
			w.give("new on "+addr, addr)
		}
		if r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "one too many"}); !errors.Is(err, client.ErrPoolExhausted) {
			t.Errorf("beside all that is held it was given %+v, %v", r, err)
		}
		live("while its port is there", left)
		left.port.Close()
		realtest.Eventually(t, wait, "its lease to end", func() bool {
			pass()
			return w.is(left.held.Address, api.Cooling)
		})
		if got := ends(w, left); got != "reaped, removal_confirmed" {
			t.Errorf("it ended by: %s", got)
		}
		live("in the end", stayed, later)
	})
}
