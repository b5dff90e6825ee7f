package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/build"
	"github.com/ipamd/ipamd/internal/realtest"
)

// Every code of the daemon has its exit code, one line and a hint.
func TestExitCodes(t *testing.T) {
	want := map[api.Code]int{
		api.InvalidArgument: 2, api.NotInPool: 2,
		api.NotFound: 3, api.LeaseGone: 3, api.Compacted: 3,
		api.StaleRevision: 4, api.AttemptCancelled: 4, api.AddressTaken: 4, api.AddressQuarantined: 4, api.NameTaken: 4,
		api.PoolOverlap: 4, api.PoolNotEmpty: 4, api.StaleGeneration: 4, api.StateNotAllowed: 4, api.IdentityMismatch: 4, api.WakeRefused: 4, api.WakeTimeout: 5, api.NoWarmSlot: 5,
		api.PoolExhausted: 5, api.ConflictLimit: 5, api.EvidenceUnavailable: 5, api.BridgeNotReady: 5,
		api.NotReady: 5, api.BookReadonly: 5, api.BookBusy: 5, api.TooManyRequests: 5, api.DeadlineExceeded: 5,
		api.PermissionDenied: 6,
		api.Internal:         1,
	}
	for _, code := range api.Codes() {
		t.Run(string(code), func(t *testing.T) {
			w := runner()
			w.refuse = &api.Error{
				Code: code, Message: "because\x1b[31m of this", Retryable: code.Retryable(), Revision: 9, Epoch: epoch,
				Details: map[string]any{"field": "family", "address": "10.8.64.7"},
			}
			w.serve(t)
			s := &screen{}
			exit, ok := want[code]
			if got := w.ctl(t, s, "allocate", "web-3"); !ok || got != exit {
				t.Errorf("exit %d, want %d (%v)", got, exit, ok)
			}
			lines := strings.Split(s.err.String(), "\n")
			if len(lines) != 3 || !strings.HasPrefix(lines[0], "ipamctl: ") || !strings.HasPrefix(lines[1], "hint: ") {
				t.Errorf("not one line and a hint:\n%s", s.err.String())
			}
			if !strings.Contains(lines[0], string(code)) || !strings.Contains(lines[0], `because\x1b[31m of this`) || strings.Contains(lines[0], "\x1b") {
				t.Errorf("the message is not the daemon's, escaped: %q", lines[0])
			}
			if s.out.Len() > 0 {
				t.Errorf("an error left something on stdout: %q", s.out.String())
			}

			s = &screen{}
			w.ctl(t, s, "allocate", "web-3", "-o", "json")
			var body api.Error
			if err := json.Unmarshal(s.err.Bytes(), &body); err != nil {
				t.Fatalf("stderr is no error object: %v: %s", err, s.err.String())
			}
			if body.Code != code || body.Message != w.refuse.Message || body.Epoch != epoch || body.Details["field"] != "family" {
				t.Errorf("the error object is not the daemon's: %+v", body)
			}
		})
	}
}

// The field that the daemon refused is named in the hint.
func TestHintNamesTheField(t *testing.T) {
	w := runner()
	w.refuse = &api.Error{Code: api.InvalidArgument, Message: "too long", Details: map[string]any{"field": "sandbox"}}
	w.serve(t)
	s := &screen{}
	if code := w.ctl(t, s, "allocate", "web-3"); code != exitUsage || !strings.Contains(s.err.String(), "sandbox") {
		t.Errorf("exit %d: %s", code, s.err.String())
	}
}

// A code of a newer daemon is classed by what the daemon says of a retry.
func TestUnknownCode(t *testing.T) {
	for retryable, want := range map[bool]int{true: exitUnavailable, false: exitOther} {
		w := runner()
		w.refuse = &api.Error{Code: "too_hot", Message: "x", Retryable: retryable}
		w.serve(t)
		if code := w.ctl(t, &screen{}, "pools"); code != want {
			t.Errorf("retryable %v: exit %d, want %d", retryable, code, want)
		}
	}
}

// Every verb says that no daemon is there, where, and what to do.
func TestNoDaemon(t *testing.T) {
	dir, err := os.MkdirTemp("", "ctl")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	missing := filepath.Join(dir, "none")
	stale := filepath.Join(dir, "stale") // a socket that its daemon left behind
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: stale}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Close(fd); err != nil {
		t.Fatal(err)
	}
	for _, socket := range []string{missing, stale} {
		for _, line := range everyVerb() {
			w := &world{}
			s := &screen{}
			code := w.ctl(t, s, append(words(line), "--socket", socket)...)
			if code != exitNotRunning {
				t.Errorf("%s: exit %d: %s", line, code, s.err.String())
			}
			for _, want := range []string{socket, "is ipamd running?", "hint: ", "systemctl status ipamd"} {
				if !strings.Contains(s.err.String(), want) {
					t.Errorf("%s: %q is not in %q", line, want, s.err.String())
				}
			}
		}
	}
	s := &screen{env: map[string]string{"IPAMD_SOCKET": missing}}
	if code := (&world{}).ctl(t, s, "pools", "-o", "json"); code != exitNotRunning || !strings.Contains(s.err.String(), `"code": "not_running"`) {
		t.Errorf("exit %d: %s", code, s.err.String())
	}
	// version still prints its own.
	s = &screen{}
	if (&world{}).ctl(t, s, "version", "--socket", missing); !strings.Contains(s.out.String(), "v0.1.0") {
		t.Errorf("version alone: %q", s.out.String())
	}
}

// everyVerb is one good command line for each verb that asks the daemon.
func everyVerb() []string {
	return []string{
		"status", "leases", "show web-1", "show " + id(2), "whois 10.8.64.2", "history web-1", "map", "allocate web-3",
		"bind " + id(2), "release " + id(2), "release --sandbox web-1", "pause 00000002", "resume " + id(2), "wake " + id(2), "cancel web-1 --attempt 1", "quarantine ls", "quarantine add 10.8.64.9 --reason x",
		"quarantine clear 10.8.64.7", "quarantine adopt 10.8.64.7 --reason x", "pool ls", "pool show default", "pool withheld", "pool drain default", "pool rm default",
		"attach " + id(2) + " --tap", "detach " + id(2), "rules", "warm", "book check", "book adopt", "book backup /var/lib/ipamd/backup.db", "doctor", "reconcile", "reconcile --preview", "version",
	}
}

// A new verb is tried without a daemon, without an answer, and with names that would steer a terminal, as are
// all others.
func TestEveryVerbIsThere(t *testing.T) {
	elsewhere := map[string]string{
		"explain": "it asks no daemon", "exit-codes": "it is a page", "book restore": "it only says how", "book import": "it only says how",
		"watch": "it goes on without end: watch_test.go", "routes": "it goes on without end: watch_test.go", "top": "it goes on without end: top_test.go",
		"pool apply": "it reads a file: pool_test.go",
	}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		name := strings.TrimPrefix(cmd.CommandPath(), "ipamctl ")
		if cmd.HasSubCommands() || cmd.Hidden || cmd.Name() == "help" || elsewhere[name] != "" {
			return
		}
		if !slices.ContainsFunc(everyVerb(), func(line string) bool { return strings.HasPrefix(line+" ", name+" ") }) {
			t.Errorf("everyVerb has no %s", name)
		}
	}
	walk(newCtl(streams{getenv: func(string) string { return "" }, now: time.Now}, nil, build.Info{}).root)
}

// A daemon that does not answer ends the call at --timeout; --wait of a
// release comes on top.
func TestTimeout(t *testing.T) {
	w := runner()
	w.stall = make(chan struct{})
	w.serve(t)
	for _, line := range everyVerb() {
		s := &screen{}
		if code := w.ctl(t, s, append(words(line), "--timeout", "20ms")...); code != exitUnavailable {
			t.Errorf("%s: exit %d: %s", line, code, s.err.String())
		}
		if !strings.Contains(s.err.String(), "systemctl status ipamd, journalctl -u ipamd") {
			t.Errorf("%s: it does not say where to look: %q", line, s.err.String())
		}
	}
	start := time.Now()
	s := &screen{}
	code := w.ctl(t, s, "release", id(2), "--timeout", "20ms", "--wait", "200ms")
	if took := time.Since(start); code != exitUnavailable || took < 200*time.Millisecond {
		t.Errorf("release --wait: exit %d after %s", code, took)
	}
}

// Each lease has its --wait, also where a sandbox stands for several: the call lasts for all of them.
func TestEachReleaseHasItsWait(t *testing.T) {
	realtest.Long(t)
	const timeout, wait, leases = 2 * time.Second, 300 * time.Millisecond, 4
	w := runner()
	w.stall, w.stalls, w.leases = make(chan struct{}), api.VerbRelease, nil
	for n := range leases {
		w.leases = append(w.leases, lease(n, fmt.Sprintf("10.8.64.%d", 2+n), api.Bound, "web-1", time.Hour))
	}
	w.serve(t)
	start := time.Now()
	s := &screen{}
	code := w.ctl(t, s, "release", "--sandbox", "web-1", "--timeout", timeout.String(), "--wait", wait.String())
	if took := time.Since(start); code != exitUnavailable || took < timeout+leases*wait {
		t.Errorf("exit %d after %s: %s", code, took, s.err.String())
	}
}

// ^C ends a call at once, with the shell's code for it.
func TestInterrupt(t *testing.T) {
	w := runner()
	w.stall = make(chan struct{})
	w.serve(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan int)
	s := &screen{}
	go func() { done <- w.ctlContext(ctx, s, "release", id(2), "--timeout", "10m") }()
	realtest.Eventually(t, soon, "the daemon was asked", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.asked) > 0
	})
	cancel()
	if code := <-done; code != exitInterrupted {
		t.Errorf("exit %d: %s", code, s.err.String())
	}
}

// A socket that one may not open is a matter of permission, not of a daemon
// that is down.
func TestSocketWithoutPermission(t *testing.T) {
	w := runner().serve(t)
	if err := os.Chmod(w.socket, 0); err != nil {
		t.Fatal(err)
	}
	s := &screen{}
	if code := asNobody(t, func() int { return w.ctl(t, s, "pools") }); code != exitPermission {
		t.Errorf("exit %d: %s", code, s.err.String())
	}
}

// A socket from which no process takes calls, as systemd's while ipamd cannot start:
// each verb says so after the first patience, and was not sent, so that a daemon
// that starts later does not carry out what its caller gave up.
func TestF31NoSignOfLife(t *testing.T) {
	dir := t.TempDir()
	w := runner()
	w.socket = filepath.Join(dir, "s")
	queue, err := net.ListenUnix("unix", &net.UnixAddr{Name: w.socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer queue.Close()
	for _, line := range everyVerb() {
		realtest.Eventually(t, soon, line+" to ask for a sign of life", func() bool {
			s := &screen{first: 20 * time.Millisecond}
			patient, cancel := context.WithTimeout(t.Context(), soon)
			code := w.ctlContext(patient, s, words(line)...)
			if cancel(); code != exitUnavailable {
				t.Fatalf("%s: exit %d: %s", line, code, s.err.String()) // the next one waits as long
			}
			output := s.err.String()
			if !strings.Contains(output, "ipamd does not answer: its socket "+w.socket+" is there") || !strings.Contains(output, "systemctl status ipamd, journalctl -u ipamd") {
				t.Fatalf("%s: it says %q", line, output)
			}
			asked := false
			for _, sent := range received(t, queue) {
				if !strings.HasPrefix(sent, "GET /healthz ") || strings.Count(sent, "HTTP/1.1") != 1 {
					t.Fatalf("%s: sent %q", line, sent)
				}
				asked = true
			}
			return asked // on a machine that stands still the patience may be over before anything is sent
		})
	}
	s := &screen{first: 20 * time.Millisecond}
	if code := w.ctl(t, s, "status", "--timeout", "60ms"); code != exitUnavailable || !strings.Contains(s.err.String(), "for 60ms no daemon answered") {
		t.Errorf("a timeout that was given: exit %d, %q", code, s.err.String())
	}
}

// received is what came by each connection that waits in a queue, but for those that say
// nothing.
func received(t *testing.T, queue *net.UnixListener) (sent []string) {
	t.Helper()
	for {
		if err := queue.SetDeadline(time.Now().Add(time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		conn, err := queue.Accept()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return sent
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.SetDeadline(time.Now().Add(3 * time.Second)); err != nil {
			t.Fatal(err)
		}
		output, err := io.ReadAll(conn)
		conn.Close()
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) { // it stays open
			t.Fatal(err)
		}
		if len(output) > 0 {
			sent = append(sent, string(output))
		}
	}
}
