package main

import (
	"strings"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/realtest"
)

// A runner without its bridge has one cause and says so once, in the log, the
// status and doctor: the silent witnesses follow from it, and the commands that
// doctor names make the daemon ready.
func TestAMissingBridgeIsOneCause(t *testing.T) {
	w := prepare(t)
	w.start()
	realtest.Eventually(t, wait, "the log to say so", func() bool { return strings.Contains(w.log.String(), "started, and cannot allocate yet") })
	if strings.Contains(w.log.String(), "ready to allocate") {
		t.Error("the log says that it is ready")
	}
	for _, line := range strings.Split(w.log.String(), "\n") {
		if strings.Contains(line, "level=WARN") && !strings.Contains(line, `msg="bridge is not ready"`) && !strings.Contains(line, "cannot allocate yet") {
			t.Errorf("a warning beside the cause: %s", line)
		}
	}
	silent := w.status().Silent
	for _, s := range silent {
		if s.Reason != silent[0].Reason { // ipamctl has a line for each
			t.Errorf("one cause has two reasons: %q, %q", silent[0].Reason, s.Reason)
		}
	}
	if len(silent) != 4 {
		t.Errorf("silent are %+v", silent)
	}
	if why := w.status().NotReady; len(why) != 1 || !strings.Contains(why[0], "rt0 is missing") {
		t.Errorf("not ready because of %q", why)
	}
	d, err := w.client.Doctor(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var cause api.Finding
	for _, f := range d.Findings {
		switch {
		case f.Because == "" && cause.Kind == "":
			cause = f
		case f.Because == "" || f.Because != "bridge_not_ready":
			t.Errorf("a finding beside the cause: %+v", f)
		}
	}
	if cause.Kind != "bridge_not_ready" || len(d.Findings) < 4 {
		t.Fatalf("the cause is %+v of %d findings", cause, len(d.Findings))
	}
	for _, command := range strings.Split(cause.Repair, " && ") {
		w.ns.Exec(strings.Fields(command)...)
	}
	realtest.Eventually(t, wait, "the daemon to be ready", func() bool {
		_, err := w.client.Ready(ctx)
		return err == nil && len(w.findings()) == 0
	})
	if _, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "first"}); err != nil {
		t.Error(err)
	}
}
