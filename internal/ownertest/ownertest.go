// Package ownertest runs a real owner oracle for tests: the program of
// examples/owner in a process of its own, on a socket of its own, and counts
// what it is asked.
package ownertest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/realtest"
)

// patience is longer than anything here takes on a loaded machine.
const patience = 3 * time.Minute

// An Owner is a running oracle. It ends with the test. Its methods fail the
// test on error and belong on the test's own goroutine.
type Owner struct {
	Socket string

	t    testing.TB
	dir  string
	rows []string // ids, in the order in which they were first set
	is   map[string]string
}

// Start builds the program and runs it. flags are further ones of its own
// ("--lag", "1h"). At first there is no sandbox.
func Start(t testing.TB, flags ...string) *Owner {
	t.Helper()
	// Not t.TempDir: its names grow with the test's, and a unix socket's path
	// ends at 107 bytes.
	dir, err := os.MkdirTemp("", "ownertest-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	o := &Owner{Socket: filepath.Join(dir, "o.sock"), t: t, dir: dir, is: make(map[string]string)}
	o.write()
	o.run(realtest.Program(t, "examples/owner"), flags)
	return o
}

func (o *Owner) run(program string, flags []string) {
	o.t.Helper()
	log, err := os.Create(o.log())
	if err != nil {
		o.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(program, append([]string{"--file", o.file(), "--socket", o.Socket}, flags...)...)
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			o.t.Errorf("the owner did not end in order: %v", err)
		}
	})
	realtest.Eventually(o.t, patience, "the owner listens", func() bool {
		c, err := net.Dial("unix", o.Socket)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

func (o *Owner) file() string { return filepath.Join(o.dir, "sandboxes") }
func (o *Owner) log() string  { return filepath.Join(o.dir, "log") }

// Set makes the state of sandboxes "valid", "gone", or any other word.
func (o *Owner) Set(state string, sandboxes ...string) {
	o.t.Helper()
	for _, s := range sandboxes {
		if o.is[s] == "" {
			o.rows = append(o.rows, s)
		}
		o.is[s] = state
	}
	o.write()
}

// Forget makes sandboxes unknown: they are not in the list, and a look-up
// answers that each is gone.
func (o *Owner) Forget(sandboxes ...string) {
	o.t.Helper()
	for _, s := range sandboxes {
		delete(o.is, s)
	}
	o.rows = slices.DeleteFunc(o.rows, func(s string) bool { return o.is[s] == "" })
	o.write()
}

// write replaces the file in one step: the owner reads it at any moment.
func (o *Owner) write() {
	o.t.Helper()
	var text bytes.Buffer
	for _, s := range o.rows {
		fmt.Fprintf(&text, "%s %s\n", s, o.is[s])
	}
	next := o.file() + ".next"
	err := os.WriteFile(next, text.Bytes(), 0o600)
	if err == nil {
		err = os.Rename(next, o.file())
	}
	if err != nil {
		o.t.Fatal(err)
	}
}

// Break makes the owner answer every question with an error, until the next
// Set or Forget.
func (o *Owner) Break() {
	o.t.Helper()
	if err := os.Remove(o.file()); err != nil {
		o.t.Fatal(err)
	}
}

// Lists returns how often the list was asked for.
func (o *Owner) Lists() int { return o.answered("GET /sandboxes") }

// Looks returns how often single sandboxes were asked for.
func (o *Owner) Looks() int { return o.answered("GET /sandboxes/{id...}") }

func (o *Owner) answered(route string) int {
	o.t.Helper()
	log, err := os.ReadFile(o.log())
	if err != nil {
		o.t.Fatal(err)
	}
	return bytes.Count(log, fmt.Appendf(nil, " route=%q ", route))
}
