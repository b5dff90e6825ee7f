package main

import (
	"database/sql"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/realtest"
)

// A writer that another process keeps from the book is reported wherever readiness
// is asked for, with systemd and without: readyz, the status, the metric and
// systemd's status line. Once the book can be written again, so is that.
func TestStalledWriterIsReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stopDaemon()
	w.proofEvery = 100 * time.Millisecond
	w.start()
	stalled := func() (reasons []string, everywhere bool) {
		t.Helper()
		status, err := w.client.Status(ctx)
		if err != nil {
			t.Fatal(err)
		}
		reasons = status.NotReady
		_, unready := w.client.Ready(ctx)
		metric := w.metric("ready")
		line := w.program.statusLine()
		return reasons, !status.Ready && unready != nil && strings.Contains(unready.Error(), "the book's writer") &&
			metric == "0" && strings.Contains(line, "the book's writer has not answered for ")
	}
	ready := func() bool {
		status, err := w.client.Status(ctx)
		return err == nil && status.Ready && w.metric("ready") == "1"
	}
	realtest.Eventually(t, wait, "the daemon to be ready", ready)

	db, err := sql.Open("sqlite", "file:"+w.cfg.Book.Path+"?_pragma=busy_timeout(60000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	other, err := db.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.ExecContext(ctx, "BEGIN EXCLUSIVE"); err != nil {
		t.Fatal(err)
	}
	var reasons []string
	realtest.Eventually(t, wait, "the stalled writer to be reported, and why", func() (everywhere bool) {
		reasons, everywhere = stalled()
		return everywhere && slices.ContainsFunc(reasons, func(r string) bool {
			return strings.HasPrefix(r, "the book's writer has not answered for ") && strings.HasSuffix(r, "s: another process holds the book's lock")
		})
	})
	if _, err := other.ExecContext(ctx, "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	realtest.Eventually(t, wait, "the writer to be back", ready)
}
