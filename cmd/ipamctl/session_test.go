package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ipamd/ipamd/api"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares what an operator saw with testdata/name.golden. Escape
// characters are shown as ␛.
func golden(t *testing.T, name, got string) {
	t.Helper()
	got = strings.ReplaceAll(got, "\x1b", "␛")
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got), -update writes it anew:\n%s", path, diff)
	}
}

// session plays command lines as an operator would type them and returns
// what they would see.
func (w *world) session(t *testing.T, lines ...string) string {
	t.Helper()
	var b strings.Builder
	for _, line := range lines {
		s := &screen{}
		code := w.ctl(t, s, words(line)...)
		fmt.Fprintf(&b, "$ ipamctl %s\n%s", line, s.out.String())
		if s.err.Len() > 0 {
			for output := range strings.Lines(s.err.String()) {
				b.WriteString("stderr: " + output)
			}
		}
		if code != 0 {
			fmt.Fprintf(&b, "exit %d\n", code)
		}
		b.WriteString("\n")
	}
	return strings.ReplaceAll(b.String(), w.socket, "SOCKET")
}

// words splits a line as a shell does with single quotes.
func words(line string) []string {
	var out []string
	for i, piece := range strings.Split(line, "'") {
		if i%2 == 1 {
			out = append(out, piece)
		} else {
			out = append(out, strings.Fields(piece)...)
		}
	}
	return out
}

// Each verb as a table, as JSON, as YAML and with -q, with what it says when
// there is nothing, or something wrong.
func TestSessions(t *testing.T) {
	early := runner()
	early.allocate.EarlyReuse, early.allocate.Existing = true, true
	early.allocate.Unprobed = []string{"10.8.64.8"}
	early.allocate.Skipped = []api.Skipped{{Address: "10.8.64.7", Evidence: early.leases[5].Evidence}}
	dual := lease(21, "fd00:8:64::8", api.Reserved, "web-3", 0)
	dual.PrefixLen = 64
	early.allocate.Leases = append(early.allocate.Leases, dual)
	early.allocate.Networks = append(early.allocate.Networks, api.Network{Bridge: "rt0", Gateway: "fd00:8:64::1", MTU: 1500})

	held := runner()
	held.blockers = []api.Blocker{
		{Kind: "container", Detail: "sandbox/web-1-log still exists"},
		{Kind: "sighting", Detail: "netns saw it on veth1"},
	}

	differs := runner()
	differs.warnings = []api.BindWarning{
		{Field: "mac", Given: "fe:42:0a:08:40:02", Seen: "02:42:0a:08:40:02", Message: "fe:42:0a:08:40:02 is the MAC of port veth1 itself, the host's end, not of the sandbox's interface, which has 02:42:0a:08:40:02"},
		{Field: "mac", Given: "fe:42:0a:08:40:02", Message: "fe:42:0a:08:40:02 is the MAC of port veth1 itself, the host's end, not of the sandbox's interface"},
	}

	sick := runner()
	sick.status.Ready = false
	sick.status.NotReady = []string{"the bridge rt0 is down", "the first census is not complete"}
	sick.status.Bridge = api.BridgeStatus{Name: "rt0", Reason: "link is down"}
	sick.status.Book.ReadOnly = "disk full"
	sick.status.UnreadableRows = 2
	sick.status.Silent = []api.Silence{{Witness: "runtime", Reason: "dial /run/containerd/containerd.sock: connection refused", Since: before(90 * time.Second)}}
	for i, witness := range []string{"netns", "host", "neighbour", "probe"} {
		sick.status.Silent = append(sick.status.Silent, api.Silence{Witness: witness, Reason: "rt0 is missing, so nothing is known of what was on it", Since: before(time.Duration(i+1) * time.Minute)})
	}
	sick.status.LastConflict, sick.status.LastConflictStands = &sick.changes[0], true
	sick.findings = []api.Finding{
		{Kind: "foreign", Address: "10.8.64.7", LeaseID: id(7), Detail: "seen by netns on veth9, no lease explains it", Since: before(3 * time.Hour), Repair: "ipamctl whois 10.8.64.7"},
		{Kind: "unreadable_row", Detail: `ip "10.8.64.999" is no address`, Repair: "ipamctl book check # then, with socket and service stopped: ipamd rebuild --preview"},
		{Kind: "foreign", Address: "10.8.64.8", Detail: "seen by netns on veth9, no lease explains it", Since: before(time.Minute), Repair: "ipamctl whois 10.8.64.8"},
		{Kind: "stray", LeaseID: id(5), Detail: "seen, but its runtime is gone", Since: before(4 * time.Minute), Repair: "ipamctl show " + id(5)},
	}

	held.pass = api.Report{
		Started: noon, Took: 31 * time.Millisecond, Complete: true, Leases: 40, Seen: 28, Absent: 12, Preview: true,
		Actions: []api.Action{
			{Kind: "adopt", Address: "10.8.64.2", Sandbox: "web-1", Reason: "one live container claims it", Result: "planned"},
			{Kind: "reap", Address: "10.8.64.5", LeaseID: id(5), Sandbox: "job-17", Reason: "absent for 3 passes and 16m", Result: "held"},
			{Kind: "reap", Address: "10.8.64.9", LeaseID: id(9), Sandbox: "job-18", Reason: "absent for 3 passes and 16m", Result: "held"},
		},
		Held:    &api.Held{Releases: 12, Most: 5, Reason: "12 of 40 open leases would be released at once, and a pass may release 5"},
		Reports: []api.Finding{{Kind: "two_claimants", Address: "10.8.64.6", Detail: "sandbox/a and sandbox/b claim it", Since: before(time.Minute), Repair: "ipamctl whois 10.8.64.6"}},
	}
	keeping := runner()
	keeping.pools = slices.Clone(keeping.pools)
	keeping.pools[0].Kept, keeping.pools[0].Reservation = 1, []api.PoolReservation{{Sandbox: "db", Address: "10.8.64.9"}}
	keeping.status.Pools = keeping.pools
	someHeld := runner()
	someHeld.pass = held.pass
	someHeld.pass.Preview, someHeld.pass.Reports = false, nil
	someHeld.pass.Actions = held.pass.Actions[1:]
	someHeld.status.LastPass = &someHeld.pass

	sick.pass = api.Report{
		Started: before(time.Minute), Took: 5 * time.Second, Leases: 8, Seen: 5, Silent: sick.status.Silent,
		Actions: []api.Action{
			{Kind: "quarantine", Address: "10.8.64.8", Reason: "the netns witness sees it on veth9", Result: "skipped", Error: "the book cannot be written: disk full"},
		},
	}
	silentPass := runner()
	silentPass.pass = api.Report{Started: noon, Took: time.Second, Leases: 1, Seen: 1, Silent: sick.status.Silent, Actions: []api.Action{}}
	well := runner()
	well.pass = api.Report{Started: noon, Took: 900 * time.Microsecond, Complete: true, Leases: 8, Seen: 7, Actions: []api.Action{}}
	unready := runner()
	unready.refuse = &api.Error{Code: api.NotReady, Message: "reconcile: not ready: the first pass is not done", Retryable: true}

	spoilt := runner()
	spoilt.broken = []api.BookFinding{{Invariant: "rows-are-readable", Detail: `"10.8.64.999": no address`}, {Invariant: "rows-have-their-last", Detail: "10.8.64.2 has no row, revision 7 made it bound"}}

	empty := &world{status: runner().status}

	for _, play := range []struct {
		name  string
		world *world
		lines []string
	}{
		{"status", runner(), []string{"status", "status -o json", "status -o yaml", "status -q"}},
		{"status-sick", sick, []string{"status", "status -q"}},
		{"leases", runner(), []string{
			"leases", "leases -o json --sandbox web-2", "leases -o yaml --state cooling", "leases -q",
			"leases --state bound", "ls --pool nowhere",
		}},
		{"show", runner(), []string{
			"show " + id(2), "show web-1", "show " + id(3), "show " + id(7), "show " + id(2) + " -o json", "show " + id(6) + " -o yaml", "show web-1 -q",
			"show nobody", "show " + id(99),
		}},
		{"whois", runner(), []string{
			"whois 10.8.64.2", "whois 10.8.64.7", "whois 10.8.64.6", "whois 10.8.64.99", "whois 10.8.64.98", "whois 10.8.64.97", "whois 10.8.64.96", "whois 10.8.64.1", "whois 192.0.2.1",
			"whois 10.8.64.6 -o json", "whois 10.8.64.99 -o yaml", "whois 10.8.64.2 -q", "whois 10.8.64.6 -q", "whois web-1",
		}},
		{"history", runner(), []string{
			"history", "history 10.8.64.2", "history web-1 --since 48h --limit 2", "history --lease " + id(7) + " -o json",
			"history web-1 -o yaml", "history -q", "history nobody",
		}},
		{"allocate", runner(), []string{"allocate web-3", "allocate web-3 -o json", "allocate web-3 -o yaml", "allocate web-3 -q"}},
		{"allocate-early", early, []string{"allocate web-3 --family dual"}},
		{"bind-differs", differs, []string{"bind " + id(2) + " --mac fe:42:0a:08:40:02"}},
		{"bind", runner(), []string{
			"bind " + id(2) + " --container sandbox/web-1 --netns /run/netns/web-1 --host-interface veth1 --mac 02:42:0a:08:40:02",
			"bind " + id(2) + " -o json", "bind " + id(2) + " -o yaml", "bind " + id(2) + " -q", "bind " + id(99), "bind 10.8.64.2",
		}},
		{"release", runner(), []string{"release " + id(2), "release " + id(2) + " -o json", "release " + id(2) + " -o yaml", "release " + id(2) + " -q", "release 10.8.64.2", "release " + id(99)}},
		{"show-releasing", held, []string{"show job-17", "show " + id(5), "show job-17 -o json", "show job-17 -o yaml", "show job-17 -q"}},
		{"release-held", held, []string{"release " + id(2), "release " + id(2) + " --wait 2s", "release " + id(2) + " --wait 2s -o json"}},
		{"quarantine", runner(), []string{
			"quarantine ls", "quarantine ls -o json", "quarantine ls -o yaml", "quarantine ls -q",
			"quarantine add 10.8.64.9 --reason 'the printer'", "quarantine add 10.8.64.9 --reason x -o json", "quarantine add 10.8.64.9 --reason x -o yaml",
			"quarantine add 10.8.64.9 --reason x -q", "quarantine add 10.8.64.9",
			"quarantine clear 10.8.64.7", "quarantine clear 10.8.64.7 -o json", "quarantine clear 10.8.64.7 -o yaml", "quarantine clear 10.8.64.7 -q", "quarantine free 10.8.64.7",
		}},
		{"pools-kept", keeping, []string{"pools", "status", "map --within 10.8.64.0/28"}},
		{"pools", runner(), []string{"pools", "pools -o json", "pools -o yaml", "pools -q"}},
		{"reconcile", runner(), []string{"reconcile", "reconcile -o json", "reconcile -o yaml", "reconcile -q", "reconcile --preview --confirm"}},
		{"reconcile-held", held, []string{"reconcile --preview", "reconcile -q"}},
		{"reconcile-kept", someHeld, []string{"reconcile", "status"}},
		{"reconcile-sick", sick, []string{"reconcile", "reconcile -q"}},
		{"reconcile-blind", silentPass, []string{"reconcile", "reconcile -o json"}},
		{"reconcile-well", well, []string{"reconcile --preview", "reconcile", "reconcile -q", "status"}},
		{"reconcile-unready", unready, []string{"reconcile"}},
		{"doctor", sick, []string{"doctor", "doctor -o json", "doctor -o yaml", "doctor -q"}},
		{"doctor-well", runner(), []string{"doctor", "doctor -q", "doctor -o json"}},
		{"book-check", spoilt, []string{"book check", "book check -o json", "book check -q"}},
		{"book-whole", runner(), []string{"book check", "book check -q", "book check -o yaml", "book --help", "book restore /root/book.db", "book import /root/netdb.db"}},
		{"version", runner(), []string{"version", "version -o json", "version -o yaml", "version -q"}},
		{"map", runner(), []string{"map", "map default -o json --within fd00:8:64::/120", "map -o yaml --within 10.8.64.7", "map -q", "map nowhere", "map --within 192.0.2.0/24"}},
		{"empty", empty, []string{"leases", "leases -o json", "leases -q", "history", "pools", "map", "quarantine ls", "doctor"}},
		{"help", runner(), []string{"--help", "help exit-codes", "history --help", "reconcile --help", "quarantine", "statsu"}},
	} {
		t.Run(play.name, func(t *testing.T) {
			golden(t, play.name, play.world.serve(t).session(t, play.lines...))
		})
	}
}

// A terminal gets colour and trimmed names; a pipe, NO_COLOR, --no-color and
// a dumb terminal get neither escape codes nor cuts.
func TestTerminal(t *testing.T) {
	long := runner()
	long.leases[0].Sandbox = strings.Repeat("a-very-long-name-", 14)
	long.serve(t)
	var b strings.Builder
	for _, line := range []string{"leases", "whois 10.8.64.2", "status", "reconcile", "history 10.8.64.2", "version"} {
		s := &screen{terminal: true, columns: 120}
		long.ctl(t, s, words(line)...)
		fmt.Fprintf(&b, "$ ipamctl %s\n%s\n", line, s.out.String())
	}
	golden(t, "terminal", b.String())

	for name, s := range map[string]*screen{
		"a pipe":     {columns: 120},
		"NO_COLOR":   {terminal: true, columns: 120, env: map[string]string{"NO_COLOR": "1"}},
		"dumb":       {terminal: true, columns: 120, env: map[string]string{"TERM": "dumb"}},
		"--no-color": {terminal: true, columns: 120},
	} {
		args := []string{"leases"}
		if name == "--no-color" {
			args = append(args, name)
		}
		if code := long.ctl(t, s, args...); code != 0 {
			t.Fatalf("%s: exit %d: %s", name, code, s.err.String())
		}
		if strings.Contains(s.out.String(), "\x1b") {
			t.Errorf("%s got colour:\n%q", name, s.out.String())
		}
		if whole := strings.Contains(s.out.String(), long.leases[0].Sandbox); whole == s.terminal {
			t.Errorf("%s: the long name whole: %v", name, whole)
		}
	}
}
