package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/faultfs"
	"github.com/ipamd/ipamd/internal/realtest"
)

// onADiskThatTakesTheLogOnly starts a daemon on one that takes no write of the
// book's own file. change gives the next lease, which has to be answered: its labels
// are as large as they can be, so that fewer than two hundred fill a log.
func onADiskThatTakesTheLogOnly(t *testing.T) (w *world, disk *faultfs.Disk, change func()) {
	disk = faultfs.Mount(t, "book.db-shm")
	w = newWorld(t, slow, func(c *config.Config) { c.Book.Path = filepath.Join(disk.Dir(), "book.db") })
	t.Cleanup(func() { disk.Inject(nil) }) // before the daemon stops
	labels, n := make(map[string]string), 0
	for i := range 4 {
		labels[fmt.Sprint(i)] = strings.Repeat("\x01", 4090) // six bytes each in the book
	}
	disk.Inject(func(op faultfs.Op) (f faultfs.Fault) {
		if op.Kind == faultfs.Write && op.Name == "book.db" {
			f.Err = syscall.EIO
		}
		return f
	})
	return w, disk, func() {
		t.Helper()
		n++
		if _, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: fmt.Sprint("s", n), Labels: labels}); err != nil {
			t.Fatalf("change %d: %v", n, err)
		}
	}
}

// aLogThatGrows is what the metrics show of one.
func aLogThatGrows(t *testing.T, moved map[string]bool) {
	w, _, change := onADiskThatTakesTheLogOnly(t)
	for w.program.book.Info().Growing == nil {
		change()
	}
	got := w.scrapeOf()
	got.note(moved)
	if got["book_growing"] != 1 || got["book_readonly"] != 0 || got["ready"] != 1 {
		t.Errorf("the log grows: %v, read-only %v, ready %v", got["book_growing"], got["book_readonly"], got["ready"])
	}
}

// L12: the disk of a running daemon takes the log, and no write of the book's
// own file. Calls are answered as if nothing were; status, doctor, the metric
// and the log say what is wrong. When the power goes nothing that was answered
// is missing. Once the disk is well the daemon says so by itself, and its log
// is short again.
func TestL12ADiskThatTakesTheLogOnly(t *testing.T) {
	const limit = 16 << 20
	w, disk, change := onADiskThatTakesTheLogOnly(t)
	status := func() *api.Status {
		s, err := w.client.Status(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for status().Book.WALBytes <= limit {
		change()
	}
	if s := status(); !s.Ready || s.Book.ReadOnly != "" || !strings.Contains(s.Book.Growing, "fold the log") {
		t.Errorf("the status is %+v", s)
	}
	if found := w.findings(); !slices.Contains(found, "book_grows") || slices.Contains(found, "book_readonly") || w.metric("book_growing") != "1" {
		t.Errorf("doctor says %v, the metric %s", found, w.metric("book_growing"))
	}
	realtest.Eventually(t, wait, "the log to report it", func() bool { return strings.Contains(w.log.String(), "the book grows: ") })
	acknowledged, err := w.client.Leases(ctx, client.LeaseFilter{})
	if err != nil {
		t.Fatal(err)
	}
	replay := disk.Replay()
	for more := true; more; {
		_, more = replay.Step()
	}

	disk.Inject(nil)
	realtest.Eventually(t, wait, "the log to report the end", func() bool { return strings.Contains(w.log.String(), "the book grows no more") })
	if s := status(); s.Book.Growing != "" || slices.Contains(w.findings(), "book_grows") || w.metric("book_growing") != "0" {
		t.Errorf("on a disk that is well the status is %+v, doctor says %v", s, w.findings())
	}
	change()
	if s := status(); s.Book.WALBytes > limit {
		t.Errorf("the log has %d bytes", s.Book.WALBytes)
	}
	if n := strings.Count(w.log.String(), "the book grows"); n != 2 {
		t.Errorf("%d lines about it", n)
	}

	w.stopDaemon()
	left := disk.Dir() // elsewhere it would be a copy
	if err := replay.Cut(nil).Write(left); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(filepath.Join(left, "book.db-wal")); err != nil || st.Size() <= limit {
		t.Fatalf("the power loss left no long log: %v, %v", st, err)
	}
	w.cfg.Book.Path = filepath.Join(left, "book.db")
	w.start()
	now, err := w.client.Leases(ctx, client.LeaseFilter{})
	if err != nil || fmt.Sprint(now.Leases) != fmt.Sprint(acknowledged.Leases) || now.Epoch != acknowledged.Epoch {
		t.Errorf("after a power loss: %+v, %v, and before it: %+v", now, err, acknowledged)
	}
}
