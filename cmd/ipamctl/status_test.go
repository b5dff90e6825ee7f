package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/build"
	"github.com/ipamd/ipamd/internal/term"
)

// troubled is the runner on a bad night: leases that are stuck, quarantines,
// and a nearly full pool.
func troubled() *world {
	w := runner()
	bindBy := before(4 * time.Minute)
	late := lease(3, "10.8.64.3", api.Reserved, "web-2", 14*time.Minute)
	late.BindBy = &bindBy
	let := lease(5, "10.8.64.5", api.Releasing, "job-17", 2*time.Hour)
	w.status.Stuck = []api.Stuck{
		{Lease: let, Blockers: []api.Blocker{
			{Kind: "container", Detail: "container sandbox/job-17 still exists, and its shim does not answer since the disk of its root filesystem went away"},
			{Kind: "sighting", Detail: "the netns witness sees it on veth5"},
		}},
		{Lease: late},
	}
	for i := range 9 {
		w.status.Stuck = append(w.status.Stuck, api.Stuck{Lease: lease(30+i, fmt.Sprintf("10.8.64.%d", 30+i), api.Releasing, "batch-\x1b[2J", time.Minute),
			Blockers: []api.Blocker{{Kind: "port", Detail: fmt.Sprintf("veth%d is a port of rt0", i)}}})
	}
	w.status.StuckTotal = 40
	w.status.Quarantined = []api.Lease{w.leases[5]}
	w.status.LastConflict, w.status.LastConflictStands = &w.changes[0], true
	w.status.Pools[0].Free, w.status.Pools[0].Available = 0, 0
	w.status.Pools[0].ByState = map[string]int{"bound": 150, "reserved": 1, "releasing": 40, "cooling": 10, "quarantined": 1}
	w.status.Ready, w.status.NotReady = false, []string{"every pool is exhausted"}
	return w
}

// A status at 3 a.m. fits every terminal: no line is wider, whatever a daemon
// says, and nothing that it says reaches the terminal raw.
func TestStatusFits(t *testing.T) {
	w := troubled().serve(t)
	var b strings.Builder
	for _, width := range []int{60, 80, 132} {
		s := &screen{terminal: true, columns: width, env: map[string]string{"NO_COLOR": "1", "LANG": "de_DE.UTF-8"}}
		if code := w.ctl(t, s, "status"); code != exitUnavailable {
			t.Errorf("exit %d, want %d", code, exitUnavailable)
		}
		for line := range strings.Lines(s.out.String()) {
			if n := term.Width(strings.TrimRight(line, "\n")); n > width {
				t.Errorf("%d columns have a line of %d: %q", width, n, line)
			}
		}
		if strings.Contains(s.out.String(), "\x1b") {
			t.Errorf("a name reached the terminal raw: %q", s.out.String())
		}
		fmt.Fprintf(&b, "$ ipamctl status   # %d columns\n%s\n", width, s.out.String())
	}
	golden(t, "status-fits", b.String())
}

// The bar speaks the locale's alphabet, and colours it only on a terminal.
func TestStatusAlphabet(t *testing.T) {
	w := troubled().serve(t)
	for _, c := range []struct {
		env     map[string]string
		unicode bool
	}{
		{map[string]string{}, false},
		{map[string]string{"LANG": "C"}, false},
		{map[string]string{"LANG": "en_US.UTF-8"}, true},
		{map[string]string{"LANG": "en_US.utf8"}, true},
		{map[string]string{"LANG": "en_US.UTF-8", "LC_ALL": "POSIX"}, false},
		{map[string]string{"LANG": "C", "LC_CTYPE": "C.UTF-8"}, true},
	} {
		s := &screen{env: c.env}
		w.ctl(t, s, "status")
		if got := strings.Contains(s.out.String(), "█"); got != c.unicode || strings.Contains(s.out.String(), "[##") == c.unicode {
			t.Errorf("%v: Unicode %v, want %v:\n%s", c.env, got, c.unicode, s.out.String())
		}
	}
}

// A program gets all of the daemon's status, and what only ipamctl knows.
func TestStatusForPrograms(t *testing.T) {
	w := troubled().serve(t)
	s := &screen{}
	if code := w.ctl(t, s, "status", "-o", "json"); code != exitUnavailable {
		t.Errorf("exit %d", code)
	}
	var got struct {
		api.Status
		Client build.Info
		Skew   bool
	}
	if err := json.Unmarshal(s.out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Stuck) != 11 || got.StuckTotal != 40 || len(got.Stuck[0].Blockers) != 2 || got.Client.Version != "v0.1.0" || !got.Skew {
		t.Errorf("%+v", got)
	}
	w.status.Version, w.status.Commit = "v0.1.0", "cafe"
	s = &screen{}
	w.ctl(t, s, "status")
	if strings.Contains(s.out.String(), "another build") {
		t.Errorf("one build is reported as two:\n%s", s.out.String())
	}
}
