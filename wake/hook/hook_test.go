package hook

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/wake"
)

var (
	sandbox = &ipam.Lease{ID: "0197f2c0-5b7e-7c3a-9d41-2f6f0a1b2c3d", Addr: netip.MustParseAddr("10.8.64.2"), Sandbox: "a", UID: "a-1",
		Containers: []ipam.Container{{Namespace: "default", ID: "c1"}, {Namespace: "default", ID: "c2"}}}
	frozen = &ipam.Sleep{Mode: ipam.Freeze}
)

func script(t *testing.T, text string) Command {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hook")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
		t.Fatal(err)
	}
	return Command{path, "first"}
}

// Z7: the class of an error is the exit code, whatever is printed.
func TestZ7ExitCodesAreClasses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		why, text string
		fails     bool
		refused   bool
	}{
		{"done", "echo gone, terminating >&2", false, false},
		{"the sandbox is gone", "echo still pausing >&2; exit 69", true, true},
		{"not allowed", "exit 77", true, true},
		{"another", "echo gone >&2; exit 1", true, false},
		{"a signal", "kill -9 $$", true, false},
	} {
		err := script(t, c.text).Resume(t.Context(), sandbox, frozen)
		if (err != nil) != c.fails || errors.Is(err, wake.ErrRefused) != c.refused {
			t.Errorf("%s: %v", c.why, err)
		}
		if c.fails && strings.Contains(c.text, "echo") && !strings.Contains(err.Error(), strings.TrimSpace(strings.Split(strings.TrimPrefix(c.text, "echo"), ">&2")[0])) {
			t.Errorf("%s: what it printed is not in %v", c.why, err)
		}
	}
	if err := (Command{"/not/there"}).Check(); err == nil {
		t.Error("a program that is not there")
	}
	if err := (Command{"/not/there"}).Resume(t.Context(), sandbox, frozen); err == nil || errors.Is(err, wake.ErrRefused) {
		t.Errorf("a program that is gone since: %v", err)
	}
}

// It is given the lease, and nothing of the daemon's environment.
func TestWhatItIsGiven(t *testing.T) {
	t.Setenv("SECRET", "of the daemon")
	out := filepath.Join(t.TempDir(), "out")
	if err := script(t, `{ echo "$@"; env; } > `+out).Pause(t.Context(), sandbox, frozen); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"first pause " + sandbox.ID, "IPAMD_VERB=pause", "IPAMD_ADDRESS=10.8.64.2", "IPAMD_SANDBOX=a\n", "IPAMD_UID=a-1", "IPAMD_MODE=freeze", "IPAMD_CONTAINERS=default/c1 default/c2"} {
		if !strings.Contains(string(b), want) {
			t.Errorf("%q is not in\n%s", want, b)
		}
	}
	if strings.Contains(string(b), "SECRET") {
		t.Error("it has the daemon's environment")
	}
}

// One that hangs ends at the deadline, with what it started, and floods no memory.
func TestOneThatHangsEnds(t *testing.T) {
	t.Parallel()
	pid := filepath.Join(t.TempDir(), "pid")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- script(t, "yes & sleep 1000 & echo $! > "+pid+"; wait").Resume(ctx, sandbox, frozen)
	}()
	var child string
	realtest.Eventually(t, time.Minute, "it has started its own", func() bool {
		b, _ := os.ReadFile(pid)
		child = strings.TrimSpace(string(b))
		return child != ""
	})
	cancel()
	if err := <-done; err == nil || errors.Is(err, wake.ErrRefused) {
		t.Errorf("ended by %v", err)
	}
	realtest.Eventually(t, time.Minute, "its child is gone", func() bool {
		b, err := os.ReadFile("/proc/" + child + "/stat")
		return err != nil || strings.Contains(string(b), ") Z")
	})
}
