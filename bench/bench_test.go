package main

import (
	"context"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/realtest"
)

// The test binary is the echo's other side too.
func TestMain(m *testing.M) {
	if asked, err := otherSide(os.Args); asked {
		exit(err)
	}
	os.Exit(m.Run())
}

func TestQuantiles(t *testing.T) {
	var s sample
	if s.p50() != 0 || s.p99() != 0 {
		t.Error("an empty sample took time")
	}
	for i := range 100 {
		s = append(s, time.Duration(100-i))
	}
	if s.p50() != 51 || s.p99() != 100 || s.at(0) != 1 || s.at(1) != 100 {
		t.Errorf("p50 %d, p99 %d, least %d, most %d", s.p50(), s.p99(), s.at(0), s.at(1))
	}
}

func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		name        string
		most, least float64
		ratios      []float64
		verdict     string
	}{
		{"the median counts, not the worst round", 1.5, 0, []float64{9, 1.4, 1.5}, "met"},
		{"just above", 1.5, 0, []float64{1.51, 1.51, 0}, "MISSED"},
		{"two in the middle", 1.5, 0, []float64{1, 1.6, 1.4, 2}, "met"},
		{"at least", 0, 4, []float64{4, 3, 5}, "met"},
		{"just below", 0, 4, []float64{3.99, 3, 5}, "MISSED"},
		{"nothing measured", 1.5, 0, nil, "MISSED"},
		{"for scale", 0, 0, []float64{7}, "-"},
	} {
		r := row{most: c.most, least: c.least}
		for _, ratio := range c.ratios {
			r.addRates(ratio, 1)
		}
		if r.verdict() != c.verdict {
			t.Errorf("%s: %s of %v", c.name, r.verdict(), c.ratios)
		}
		want := c.verdict
		if r.broken = true; want != "-" {
			want = "broken" // is neither met nor missed
		}
		if r.verdict() != want {
			t.Errorf("%s, of a goal that broke: %s of %v", c.name, r.verdict(), c.ratios)
		}
	}
}

// TestEveryGoalRuns takes tiny samples, of which nothing is expected but that
// they are taken and that nothing stays behind.
func TestEveryGoalRuns(t *testing.T) {
	realtest.Root(t)
	program, peers, dir := build(t), t.TempDir(), t.TempDir()
	made := exec.Command("go", "build", "-C", "peers", "-o", peers+"/", ".", "tool")
	made.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := made.CombinedOutput(); err != nil {
		t.Fatalf("build the peers: %v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	b, err := newBench(tinyPlan(), dir, program, peers)
	if err != nil {
		t.Fatal(err)
	}
	var rows []row
	for _, g := range allGoals() {
		measured, err := g.measure(ctx, b)
		if err != nil {
			t.Errorf("goal %s: %v", goalName(g.number), err)
		}
		rows = append(rows, measured...)
	}
	if err := b.close(); err != nil {
		t.Error(err)
	}
	var table strings.Builder
	if err := goalTable(rows).write(&table); err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if len(r.ratios) == 0 || !strings.Contains(table.String(), r.what) {
			t.Errorf("%s: %d rounds, table:\n%s", r.what, len(r.ratios), &table)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestGoalsByNumber(t *testing.T) {
	if got, err := choose("3, peers"); err != nil || got[0].number != 3 || got[1].number != peersGoal {
		t.Errorf("%v, %v", got, err)
	}
	for _, list := range []string{"", "60", "1,,2", "one", "0"} {
		if _, err := choose(list); err == nil {
			t.Errorf("goals %q were taken", list)
		}
	}
}

// A silence begins with the first question since an address was given last, in
// whatever round that was; an answer that nobody asked for had none.
func TestASilenceBeginsWithAQuestion(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(0, 0).Add(time.Duration(ms) * time.Millisecond) }
	one, two := netip.MustParseAddr("10.8.0.2"), netip.MustParseAddr("10.8.0.3")
	last := make(map[netip.Addr]time.Time)
	asked := map[netip.Addr][]time.Time{one: {at(10), at(20), at(130)}, two: {at(90)}}
	for _, round := range []struct {
		given    []gift
		least    time.Duration
		unprobed int
	}{
		{[]gift{{one, at(100), false}}, 90 * time.Millisecond, 0},
		{[]gift{{two, at(120), true}, {one, at(200), false}}, 70 * time.Millisecond, 1},
		{[]gift{{one, at(300), false}}, 0, 0},
		{[]gift{{one, at(400), true}}, 0, 1},
	} {
		if least, unprobed := silences(round.given, asked, last); least != round.least || unprobed != round.unprobed {
			t.Errorf("%v: %v, %d unprobed", round.given, least, unprobed)
		}
	}
}
