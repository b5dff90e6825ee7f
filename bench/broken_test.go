package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/realtest"
)

// build makes the program that is measured.
func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "ipamd")
	cmd := exec.Command("go", "build", "-ldflags", "-s -w", "-o", program, "../cmd/ipamd")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build ipamd: %v\n%s", err, out)
	}
	return program
}

func tinyPlan() plan {
	return plan{rounds: 2, calls: turn, leases: 50, callers: 4, crowd: 50 * time.Millisecond, load: 1200 * time.Millisecond, loads: 1, brief: 1200 * time.Millisecond,
		rest: 50 * time.Millisecond, ports: 2, boxes: 1, sandboxes: 5, restarts: 1, steps: 2, contests: 1}
}

// A goal that breaks takes no other along: what it had is told with the reason,
// those behind it are measured, the document is written, and the run ends with
// an error.
func TestABrokenGoalEndsNothing(t *testing.T) {
	realtest.Root(t)
	program := build(t)
	dir, docs := t.TempDir(), filepath.Join(t.TempDir(), "b.md")
	if err := os.WriteFile(docs, []byte(measuredBegin+"\n"+measuredEnd+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	breaks := func(ctx context.Context, b *bench) ([]row, error) {
		half := row{goal: 98, what: "half of a goal", most: 2}
		half.addRates(1, 1)
		return []row{half, {goal: 98, what: "the other half", most: 2}}, errors.New("one slow\ncall | of many")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	err := measure(ctx, tinyPlan(), []goal{{98, "breaks", breaks}, {2, "the book in process", bookAlone}}, dir, program, "", docs)
	if err == nil || !strings.Contains(err.Error(), "goal 98") {
		t.Errorf("the run ended with %v", err)
	}
	written, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| 98 | half of a goal | &lt;= 2.00 | 1.00 | 1.00-1.00 | 1 | broken |",
		"| 98 | the other half | &lt;= 2.00 | - | - | 0 | broken | - |",
		"| 98 | broken: goal 98: one slow call &#124; of many | - | - | - | 0 | broken | - |",
		"| 2 | reserve in process, p50 / F |",
		"\nipamd ",
	} {
		if !strings.Contains(string(written), want) {
			t.Errorf("no %q in\n%s", want, written)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A run that is called off says what it has not measured, and leaves the
// document as it was.
func TestACalledOffRunWritesNothing(t *testing.T) {
	realtest.Root(t)
	program := build(t)
	docs := filepath.Join(t.TempDir(), "b.md")
	if err := os.WriteFile(docs, []byte(measuredBegin+measuredEnd), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if err := measure(ctx, tinyPlan(), []goal{{2, "", bookAlone}}, t.TempDir(), program, "", docs); err == nil || !strings.Contains(err.Error(), "enough") {
		t.Errorf("the run ended with %v", err)
	}
	if written, err := os.ReadFile(docs); err != nil || string(written) != measuredBegin+measuredEnd {
		t.Errorf("%v: %s", err, written)
	}
	rows, _ := measureEach(ctx, new(bench), []goal{{2, "", nil}})
	if len(rows) != 1 || rows[0].what != "broken: not begun: enough" {
		t.Errorf("rows of a goal that was not begun: %+v", rows)
	}
}

// What is begun and does not get ready is ended: an ipamd that is too slow, and
// a bridge that could not be made.
func TestWhatDoesNotGetReadyIsEnded(t *testing.T) {
	realtest.Root(t)
	b, err := newBench(tinyPlan(), t.TempDir(), build(t), "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.close(); err != nil {
			t.Error(err)
		}
	}()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if d, err := b.startDaemon(over, "slow"); err == nil || d != nil {
		t.Errorf("a daemon that nobody waits for: %v, %v", d, err)
	}
	if pids := running(t, filepath.Join(b.dir, "slow")); len(pids) > 0 {
		t.Errorf("ipamd runs as %v", pids)
	}
	if g, err := openGuests(over, 1); err == nil || g != nil {
		t.Errorf("guests of a bridge that nobody waits for: %v, %v", g, err)
	}
	b.program = "/dev/null"
	if d, err := b.launch("slow"); err == nil || d != nil {
		t.Errorf("a program that cannot be run: %v, %v", d, err)
	}
}

// running lists the processes that have a path in their arguments.
func running(t *testing.T, path string) (pids []int) {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		args, err := os.ReadFile(line)
		if err != nil || !strings.Contains(string(args), path) {
			continue // it may have ended meanwhile
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(line))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// An address that is not free at once is an answer, and is counted.
func TestAnAddressThatRestsIsCounted(t *testing.T) {
	realtest.Root(t)
	b, err := newBench(tinyPlan(), t.TempDir(), build(t), "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.close(); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	d, err := b.startDaemon(ctx, "rests")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.stop(); err != nil {
			t.Error(err)
		}
	}()
	c := d.caller()
	if err := c.churn(ctx, 3, new(sample), new(sample)); err != nil {
		t.Fatal(err)
	}
	b.tally.take(1) // on a machine that stands still one of those may have rested
	for range 6 {   // once bound, an address cools
		if err := c.allocate(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := d.client.Bind(ctx, c.held.ID, api.BindRequest{HostInterface: "gone0"}); err != nil {
			t.Fatal(err)
		}
		if err := c.release(ctx); err != nil {
			t.Fatal(err)
		}
	}
	rows := b.tally.take(1)
	if len(rows) != 1 || rows[0].figures() != "6 releases / 6 releases" {
		t.Errorf("%+v", rows)
	}
	if rows := b.tally.take(1); rows != nil {
		t.Errorf("counted twice: %+v", rows)
	}
	if err := b.tally.note(&api.LeaseReply{Lease: api.Lease{State: api.Bound}}); err == nil {
		t.Error("a lease that is bound after its release was no error")
	}
}
