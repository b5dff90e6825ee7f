package client_test

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/realtest"
)

// TestPythonExample runs examples/python/lease.py against a server: a lease from
// allocate to cooling, and a refusal that no retry changes.
func TestPythonExample(t *testing.T) {
	realtest.Need(t, "python3")
	rig, c := start(t)
	t.Setenv("IPAMD_SOCKET", rig.Socket)
	var out strings.Builder
	run := exec.CommandContext(t.Context(), "python3", "../examples/python/lease.py", "job-17")
	run.Stdout, run.Stderr = &out, &out
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	realtest.Eventually(t, time.Minute, "the example releases its lease", func() bool {
		list, err := c.Leases(t.Context(), client.LeaseFilter{Sandbox: "job-17", State: string(api.Releasing)})
		if err != nil || len(list.Leases) == 0 {
			return false
		}
		rig.Confirm(t, list.Leases[0].ID)
		return true
	})
	if err := run.Wait(); err != nil || out.String() != "10.8.64.2/24 on rt0 via 10.8.64.1\ncooling\n" {
		t.Errorf("%v: %s", err, out.String())
	}
	message, err := exec.CommandContext(t.Context(), "python3", "../examples/python/lease.py", "").CombinedOutput()
	if err == nil || !strings.Contains(string(message), "refused, invalid_argument") {
		t.Errorf("no name: %v: %s", err, message)
	}
}
