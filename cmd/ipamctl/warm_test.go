package main

import (
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
)

// A slot that no sandbox has shows a dash for it, as every table does.
func TestASlotWithoutASandbox(t *testing.T) {
	w := runner()
	w.slots = []api.Slot{
		{Address: "10.8.64.20", Pool: "default", State: api.SlotReady, Since: before(time.Minute)},
		{Address: "10.8.64.21", Pool: "default", State: api.SlotClaimed, Since: before(time.Minute), Sandbox: "web-1"},
	}
	w.serve(t)
	s := &screen{}
	if code := w.ctl(t, s, "warm"); code != 0 {
		t.Fatalf("exit %d: %s", code, s.err.String())
	}
	rows := strings.Split(s.out.String(), "\n")
	for i, want := range []string{"SANDBOX", " -  ", " web-1 "} {
		if !strings.Contains(rows[i], want) {
			t.Errorf("row %d is %q, want %q", i, rows[i], want)
		}
	}
}
