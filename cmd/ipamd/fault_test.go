package main

import (
	"errors"
	"fmt"
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

// L12, L13: the disk of a running daemon fails, in each way. Whatever cannot
// be stored is refused with a code of its own; reads and health answer, and
// readiness, status, doctor and the metric say why. The history is all that it
// was or is refused, in the middle of it, too. Once the disk is well the
// daemon goes on by itself, and what was refused is not there. At last the
// power goes: every acknowledged lease is on what is left of the disk.
func TestL12ADiskThatFails(t *testing.T) {
	t.Parallel()
	fails := func(err syscall.Errno, kinds ...faultfs.Kind) func(faultfs.Op) faultfs.Fault {
		return func(op faultfs.Op) (f faultfs.Fault) {
			if slices.Contains(kinds, op.Kind) {
				f.Err = err
			}
			return f
		}
	}
	disk := faultfs.Mount(t, "book.db-shm")
	w := newWorld(t, slow, func(c *config.Config) { c.Book.Path = filepath.Join(disk.Dir(), "book.db") })
	t.Cleanup(func() { disk.Inject(nil) }) // before the daemon stops
	let := w.allocate("let").Leases[0]
	bound, err := w.client.Bind(ctx, let.ID, api.BindRequest{MAC: "02:00:00:00:00:01"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		w.allocate(fmt.Sprint("more", i)) // for a history of several pages
	}
	for _, tt := range []struct {
		name  string
		fault func(faultfs.Op) faultfs.Fault
	}{
		{"no write", fails(syscall.EIO, faultfs.Write, faultfs.Truncate, faultfs.Sync)},
		{"no sync", fails(syscall.EIO, faultfs.Sync)},
		{"no room", fails(syscall.ENOSPC, faultfs.Write, faultfs.Create, faultfs.Room)},
		{"no write, and every other read", func() func(faultfs.Op) faultfs.Fault {
			reads := 0
			return func(op faultfs.Op) (f faultfs.Fault) {
				if op.Kind == faultfs.Read {
					reads++
				}
				if op.Kind == faultfs.Read && reads%2 == 0 || slices.Contains([]faultfs.Kind{faultfs.Write, faultfs.Truncate, faultfs.Sync}, op.Kind) {
					f.Err = syscall.EIO
				}
				return f
			}
		}()},
		{"read-only", fails(syscall.EROFS, faultfs.Write, faultfs.Truncate, faultfs.Create, faultfs.Unlink)},
		{"nothing", fails(syscall.EIO, faultfs.Stat, faultfs.Open, faultfs.Read, faultfs.Create, faultfs.Write,
			faultfs.Truncate, faultfs.Sync, faultfs.SyncDir, faultfs.Unlink, faultfs.Rename)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before, err := w.client.Leases(ctx, client.LeaseFilter{})
			if err != nil {
				t.Fatal(err)
			}
			disk.Inject(tt.fault)
			var histories []*api.ChangeList
			for range 5 {
				past, err := w.client.History(ctx, client.HistoryFilter{})
				if err == nil {
					histories = append(histories, past)
				} else {
					wantReadonly(t, "history", err)
				}
				_, err = w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "refused"})
				wantReadonly(t, "allocate", err)
				_, err = w.client.Release(ctx, let.ID, api.ReleaseRequest{})
				wantReadonly(t, "release", err)
			}
			if now, err := w.client.Leases(ctx, client.LeaseFilter{}); err != nil || now.Revision != before.Revision || fmt.Sprint(now.Leases) != fmt.Sprint(before.Leases) {
				t.Errorf("the leases are %+v, %v, and were %+v", now, err, before)
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
			if !slices.Contains(w.findings(), "book_readonly") || w.metric("book_readonly") != "1" {
				t.Errorf("doctor says %v, the metric %s", w.findings(), w.metric("book_readonly"))
			}
			disk.Inject(nil)
			realtest.Eventually(t, wait, "the daemon to notice by itself", func() bool {
				_, err := w.client.Ready(ctx)
				return err == nil
			})
			whole, err := w.client.History(ctx, client.HistoryFilter{})
			if err != nil {
				t.Fatal(err)
			}
			for _, past := range histories {
				if fmt.Sprint(past.Changes) != fmt.Sprint(whole.Changes) {
					t.Errorf("while the disk failed the history had %d changes, and has %d", len(past.Changes), len(whole.Changes))
				}
			}
			t.Logf("the history was answered %d times of 5", len(histories))
			if next := w.allocate(tt.name).Leases[0]; next.Revision != before.Revision+1 {
				t.Errorf("the next change is %d, after %d", next.Revision, before.Revision)
			}
			if now, err := w.client.Leases(ctx, client.LeaseFilter{}); err != nil || len(now.Leases) != len(before.Leases)+1 {
				t.Errorf("the leases are %+v, %v, and were %+v", now, err, before)
			}
		})
	}
	acknowledged, err := w.client.Leases(ctx, client.LeaseFilter{})
	if err != nil {
		t.Fatal(err)
	}
	replay := disk.Replay()
	for more := true; more; {
		_, more = replay.Step()
	}
	w.stopDaemon()
	left := disk.Dir() // elsewhere it would be a copy
	if err := replay.Cut(nil).Write(left); err != nil {
		t.Fatal(err)
	}
	w.cfg.Book.Path = filepath.Join(left, "book.db")
	w.start()
	now, err := w.client.Leases(ctx, client.LeaseFilter{})
	if err != nil || fmt.Sprint(now.Leases) != fmt.Sprint(acknowledged.Leases) || now.Epoch != acknowledged.Epoch {
		t.Errorf("after a power loss: %+v, %v, and before it: %+v", now, err, acknowledged)
	}
	if lease, err := w.client.Lease(ctx, let.ID); err != nil || lease.Lease.State != bound.Lease.State {
		t.Errorf("the lease that could not be released: %+v, %v", lease, err)
	}
}

// L13: a book that the disk cannot read at the start is refused for the disk,
// and no message says to rebuild it. With a disk that is well it opens.
func TestL13ADiskThatCannotReadTheBook(t *testing.T) {
	t.Parallel()
	disk := faultfs.Mount(t, "book.db-shm")
	w := newWorld(t, slow, func(c *config.Config) { c.Book.Path = filepath.Join(disk.Dir(), "book.db") })
	holder := w.allocate("holder").Leases[0]
	w.stopDaemon()
	for name, from := range map[string]int64{"its header": 0, "a page behind": 4096} {
		disk.Inject(func(op faultfs.Op) (f faultfs.Fault) {
			if op.Kind == faultfs.Read && op.Name == "book.db" && op.Off >= from {
				f.Err = syscall.EIO
			}
			return f
		})
		p := w.newProgram()
		err := p.open(ctx)
		disk.Inject(nil)
		if !errors.Is(err, syscall.EIO) || strings.Contains(err.Error(), "rebuild") {
			t.Errorf("%s: %v", name, err)
		}
		if err := p.close(); err != nil {
			t.Errorf("%s: close: %v", name, err)
		}
	}
	w.start()
	if now, err := w.client.Lease(ctx, holder.ID); err != nil || now.Lease.State != holder.State {
		t.Errorf("the lease is %+v, %v", now, err)
	}
}
