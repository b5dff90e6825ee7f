package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/realtest"
)

// Where the kernel takes no tables from ipamd, which has not the right to make them here, it
// does not start with rules that it could not keep, and says what is missing. Without rules
// it gives, binds and pauses; a pause that traffic shall end is refused.
func TestWithoutNftables(t *testing.T) {
	t.Parallel()
	realtest.Need(t, "setpriv", "nsenter")
	w := prepare(t, quick)
	w.ns.Bridge("rt0", "10.8.64.1/24")
	run := func(mode string) *exec.Cmd {
		w.cfg.Enforce.Mode = mode
		var text bytes.Buffer
		must(t, w.cfg.Write(&text))
		file := filepath.Join(t.TempDir(), "ipamd.toml")
		must(t, os.WriteFile(file, text.Bytes(), 0o600))
		return exec.Command("nsenter", "--net="+w.ns.Path(), "setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin",
			realtest.Program(t, "cmd/ipamd"), "run", "--config", file) // each becomes the next
	}
	for _, mode := range []string{"observe", "enforce"} {
		out, err := run(mode).CombinedOutput()
		if err == nil {
			t.Fatalf("it started with mode %s", mode)
		}
		wants(t, "a start with mode "+mode, string(out), `enforce.mode is \"`+mode+`\"`, "nftables", "operation not permitted", `set it to \"off\"`)
	}
	daemon := run("off")
	daemon.Stderr = w.log
	must(t, daemon.Start())
	defer func() {
		_ = daemon.Process.Signal(syscall.SIGTERM)
		_ = daemon.Wait() // it was asked to end
	}()
	realtest.Eventually(t, wait, "ipamd to be ready", func() bool { _, err := w.client.Ready(ctx); return err == nil })
	l := w.allocate("a").Leases[0]
	if _, err := w.client.Bind(ctx, l.ID, api.BindRequest{MAC: "02:00:00:00:00:01"}); err != nil {
		t.Fatal(err)
	}
	_, err := w.client.Pause(ctx, l.ID, api.PauseRequest{Mode: api.Freeze, Wake: &api.WakePolicy{Ports: []string{"80"}}})
	if err == nil || !strings.Contains(err.Error(), "nftables") {
		t.Errorf("a pause that traffic shall end: %v", err)
	}
	if r, err := w.client.Pause(ctx, l.ID, api.PauseRequest{Mode: api.Freeze}); err != nil || r.Lease.State != api.Paused {
		t.Errorf("a pause: %+v, %v", r, err)
	}
	if r, err := w.client.Rules(ctx, ""); err != nil || r.Mode != "off" {
		t.Errorf("the rules: %+v, %v", r, err)
	}
}
