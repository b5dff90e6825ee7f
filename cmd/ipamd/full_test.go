package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/realtest"
)

// smallDisk makes a disk of 4 MiB for a book. fill leaves no block of it free,
// and empty undoes that.
func smallDisk(t *testing.T) (dir string, fill, empty func()) {
	t.Helper()
	realtest.Root(t)
	dir = t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m,mode=700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	ballast := filepath.Join(dir, "ballast")
	fill = func() {
		t.Helper()
		f, err := os.OpenFile(ballast, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		block := make([]byte, 4096)
		for err == nil {
			_, err = f.Write(block)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
	empty = func() {
		t.Helper()
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
	}
	return dir, fill, empty
}

// L12: the disk of the book is full. What would change it is refused at once,
// with a code of its own; a release, too, so that its caller knows to ask
// again. Reads go on, readiness and doctor say why. With room again the
// daemon goes on by itself, and nothing of what was refused comes back.
func TestL12DiskFull(t *testing.T) {
	dir, fill, empty := smallDisk(t)
	w := newWorld(t, slow, func(c *config.Config) { c.Book.Path = filepath.Join(dir, "book.db") })
	holder, let := w.allocate("holder").Leases[0], w.allocate("let").Leases[0]
	if _, err := w.client.Bind(ctx, let.ID, api.BindRequest{MAC: "02:00:00:00:00:01"}); err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		fill()
		// The log may have room left from before for a few changes.
		var refused string
		realtest.Eventually(t, wait, "a refusal", func() bool {
			refused = fmt.Sprintf("new-%d-%d", round, w.whois(holder.Address).Revision)
			_, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: refused})
			if err != nil && !errors.Is(err, client.ErrBookReadonly) {
				t.Fatalf("allocate: %v", err)
			}
			return err != nil
		})
		revision := w.whois(holder.Address).Revision
		began := time.Now()
		const many = 50
		for range many {
			_, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: refused})
			wantReadonly(t, "allocate", err)
			_, err = w.client.Release(ctx, let.ID, api.ReleaseRequest{})
			wantReadonly(t, "release", err)
			_, err = w.client.Bind(ctx, holder.ID, api.BindRequest{MAC: "02:00:00:00:00:02"})
			wantReadonly(t, "bind", err)
			_, err = w.client.Cancel(ctx, api.CancelRequest{UID: "cancelled", Attempt: 1})
			wantReadonly(t, "cancel", err)
		}
		t.Logf("a refusal took %v", (time.Since(began) / (4 * many)).Round(time.Microsecond))

		if now, err := w.client.Lease(ctx, let.ID); err != nil || now.Lease.State != api.Bound {
			t.Errorf("a lease whose release was refused: %+v, %v", now, err)
		}
		if list, err := w.client.Leases(ctx, client.LeaseFilter{Sandbox: refused}); err != nil || len(list.Leases) != 0 || list.Revision != revision {
			t.Errorf("a sandbox that was refused has %+v, %v", list, err)
		}
		if past, err := w.client.History(ctx, client.HistoryFilter{LeaseID: holder.ID}); err != nil || len(past.Changes) == 0 {
			t.Errorf("the history: %+v, %v", past, err)
		}
		if _, err := w.client.Healthy(ctx); err != nil {
			t.Errorf("health: %v", err)
		}
		if _, err := w.client.Ready(ctx); err == nil || !strings.Contains(err.Error(), "cannot be written") {
			t.Errorf("readiness: %v", err)
		}
		if status, err := w.client.Status(ctx); err != nil || status.Ready || status.Book.ReadOnly == "" {
			t.Errorf("status: %+v, %v", status, err)
		}
		if !slices.Contains(w.findings(), "book_readonly") {
			t.Errorf("doctor says %v", w.findings())
		}
		if got := w.metric("book_readonly"); got != "1" {
			t.Errorf("the metric is %s", got)
		}

		empty()
		realtest.Eventually(t, wait, "the daemon to notice by itself", func() bool {
			_, err := w.client.Ready(ctx)
			return err == nil
		})
		if now := w.whois(holder.Address).Revision; now != revision || w.metric("book_readonly") != "0" || slices.Contains(w.findings(), "book_readonly") {
			t.Errorf("with room again it is at revision %d, and was at %d; doctor says %v", now, revision, w.findings())
		}
		next := w.allocate(fmt.Sprint("next-", round)).Leases[0]
		if next.Revision != revision+1 {
			t.Errorf("the next change is %d, after %d", next.Revision, revision)
		}
		list, err := w.client.Leases(ctx, client.LeaseFilter{})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range list.Leases {
			switch {
			case l.Sandbox == refused, l.ID == holder.ID && l.State != api.Reserved, l.ID == let.ID && l.State != api.Bound:
				t.Errorf("what was refused came back: %+v", l)
			}
		}
		// And the file says the same.
		w.stopDaemon()
		w.start()
		if now, err := w.client.Leases(ctx, client.LeaseFilter{}); err != nil || fmt.Sprint(now.Leases) != fmt.Sprint(list.Leases) {
			t.Errorf("after a restart: %+v, %v, before: %+v", now, err, list)
		}
	}
	if _, err := w.client.Release(ctx, let.ID, api.ReleaseRequest{}); err != nil {
		t.Errorf("a release with room: %v", err)
	}
}

func wantReadonly(t *testing.T, doing string, err error) {
	t.Helper()
	output := new(api.Error)
	if !errors.Is(err, client.ErrBookReadonly) || !errors.As(err, &output) || !output.Retryable {
		t.Fatalf("%s: %v", doing, err)
	}
}
