package main

import (
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/realtest"
)

// lockBook takes the write lock of the book from beside the daemon.
func (w *world) lockBook() (unlock func()) {
	w.t.Helper()
	db, err := sql.Open("sqlite", "file:"+w.cfg.Book.Path+"?_pragma=busy_timeout(60000)")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { db.Close() })
	other, err := db.Conn(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { other.Close() })
	if _, err := other.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		w.t.Fatal(err)
	}
	return func() {
		w.t.Helper()
		if _, err := other.ExecContext(ctx, "ROLLBACK"); err != nil {
			w.t.Error(err)
		}
	}
}

// L11: another process holds the write lock of the book. What would change it is
// refused at the call's deadline with a code of its own, to be tried again, and
// nothing of it is done; reads and health answer meanwhile. Without the lock the
// same calls succeed.
func TestL11ALockedBookOverTheSocket(t *testing.T) {
	const deadline = time.Second
	w := newWorld(t, slow, func(c *config.Config) { c.Socket.Deadline = config.Duration(deadline) })
	// A machine that stands still may let any deadline pass before the lock is
	// asked for, also that of the look at the wire; what was not done then is
	// asked again.
	patient := func(call func() error) (err error) {
		realtest.Eventually(t, wait, "a call to have its time", func() bool {
			err = call()
			return !errors.Is(err, client.ErrDeadlineExceeded) && !errors.Is(err, client.ErrEvidenceUnavailable)
		})
		return err
	}
	well := func(doing string, call func() error) {
		t.Helper()
		if err := patient(call); err != nil {
			t.Errorf("%s: %v", doing, err)
		}
	}
	let, holder := w.allocate("let").Leases[0], w.allocate("holder").Leases[0]
	changes := map[string]func() error{
		"allocate": func() error {
			_, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "new"})
			return err
		},
		"bind": func() error {
			_, err := w.client.Bind(ctx, holder.ID, api.BindRequest{MAC: "02:00:00:00:00:01"})
			return err
		},
		"release": func() error {
			_, err := w.client.Release(ctx, let.ID, api.ReleaseRequest{})
			return err
		},
		"cancel": func() error {
			_, err := w.client.Cancel(ctx, api.CancelRequest{UID: "cancelled", Attempt: 1})
			return err
		},
	}
	list := func() *api.LeaseList {
		t.Helper()
		all, err := w.client.Leases(ctx, client.LeaseFilter{})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	if _, err := w.client.Bind(ctx, let.ID, api.BindRequest{MAC: "02:00:00:00:00:03"}); err != nil {
		t.Fatal(err)
	}
	before := list()

	unlock := w.lockBook()
	for name, change := range changes {
		began := time.Now()
		err := patient(change)
		output := new(api.Error)
		if !errors.Is(err, client.ErrBookBusy) || !errors.As(err, &output) || output.Code != api.BookBusy || !output.Retryable {
			t.Errorf("%s while another holds the lock: %v, %+v", name, err, output)
		}
		if took := time.Since(began); took < deadline/2 || took > wait {
			t.Errorf("%s was refused after %v, with a deadline of %v", name, took, deadline)
		}
	}
	enough, refused := make(chan struct{}), make(chan error, 1)
	go func() { // a change waits for the lock while others read
		for {
			_, err := w.client.Bind(ctx, holder.ID, api.BindRequest{MAC: "02:00:00:00:00:02"})
			select {
			case <-enough:
				refused <- err
				return
			default:
			}
		}
	}()
	if now := list(); now.Revision != before.Revision || fmt.Sprint(now.Leases) != fmt.Sprint(before.Leases) {
		t.Errorf("the leases are %+v, and were %+v", now, before)
	}
	well("history", func() error {
		past, err := w.client.History(ctx, client.HistoryFilter{LeaseID: holder.ID})
		if err == nil && len(past.Changes) == 0 {
			err = errors.New("nothing")
		}
		return err
	})
	well("lease", func() error { _, err := w.client.Lease(ctx, let.ID); return err })
	well("whois", func() error { _, err := w.client.Whois(ctx, holder.Address); return err })
	well("status", func() error { _, err := w.client.Status(ctx); return err })
	well("health", func() error { _, err := w.client.Healthy(ctx); return err })
	close(enough)
	if err := <-refused; err == nil {
		t.Error("a lease was bound while another holds the lock")
	}
	unlock()

	if now := list(); now.Revision != before.Revision || fmt.Sprint(now.Leases) != fmt.Sprint(before.Leases) {
		t.Errorf("without the lock the leases are %+v, and were %+v", now, before)
	}
	for name, change := range changes {
		well(name+" without the lock", change)
	}
	after := list()
	states := make(map[string]api.State)
	for _, l := range after.Leases {
		states[l.Sandbox] = l.State
	}
	if states["let"] == api.Cooling {
		states["let"] = api.Releasing // its removal is confirmed soon
	}
	if want := (map[string]api.State{"new": api.Reserved, "let": api.Releasing, "holder": api.Bound}); !maps.Equal(states, want) {
		t.Errorf("without the lock there is %v, not %v: %+v", states, want, after)
	}
}
