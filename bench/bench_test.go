package main

import (
	"context"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/realtest"
)

// The test binary is the echo too. Its folder is the checkout's top, as the bench's is.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == echoVerb {
		exit(serveEcho(os.Args[2]))
	}
	if err := os.Chdir(".."); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// tiny is a plan of which nothing is expected but that it is carried out.
var tiny = plan{rounds: 1, calls: 16, leases: 24, callers: 4, crowd: 50 * time.Millisecond, load: 2 * time.Second,
	ports: 2, sandboxes: 5, rest: time.Second, boxes: 1, watchers: 5, ahead: 20, limit: 5 * time.Minute}

// newTiny is a bench of freshly built programs, the ones that all tests share.
func newTiny(t *testing.T) *bench {
	t.Helper()
	realtest.Root(t)
	bin := t.TempDir()
	cmd := exec.Command("go", "-C", "bench", "build", "-o", bin+"/", "tool")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build of the peers: %v\n%s", err, out)
	}
	b, err := newBench(tiny, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b.program, b.cni = realtest.Program(t, "cmd/ipamd"), realtest.Program(t, "cmd/ipamd-cni")
	b.plugin = filepath.Join(bin, "host-local")
	t.Cleanup(func() {
		if err := b.close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// Each goal is measured with tiny samples, each row has its rounds, and the curves are
// drawn. Nothing is left behind.
func TestEveryGoalRuns(t *testing.T) {
	b := newTiny(t)
	rows, err := b.measureAll(t.Context(), goals)
	if err != nil {
		t.Error(err)
	}
	for _, r := range rows {
		if len(r.ratios) == 0 {
			t.Errorf("goal %s: %s has no round", r.goal, r.what)
		}
	}
	curves := filepath.Join(t.TempDir(), "growth")
	if err := b.grow(t.Context(), curves, []int{0, 20}, []int{2, 4}); err != nil {
		t.Fatal(err)
	}
	for name, wants := range map[string][]string{".csv": {"\nwhat,of,", "\nallocate,leases,20,", "\n\"a pass, processor time\",ports,4,"}, ".svg": {"</svg>", "allocate", "ports", "ipamd "}} {
		text, err := os.ReadFile(curves + name)
		for _, want := range wants {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s lacks %q: %v", name, want, err)
			}
		}
	}
	dir := b.dir
	if err := b.close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left behind: %v", dir, err)
	}
}

// A goal that is not reached is red, by the median or by the worst round; a limit that
// is turned round makes of one that is held one that is missed.
func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		name    string
		wanted  wanted
		ratios  []float64
		verdict string
	}{
		{"the median counts, not the worst round", wanted{most: 1.5}, []float64{9, 1.4, 1.5}, "held"},
		{"just above", wanted{most: 1.5}, []float64{1.51, 1.51, 0}, "MISSED"},
		{"two in the middle", wanted{most: 1.5}, []float64{1, 1.6, 1.4, 2}, "held"},
		{"at least", wanted{least: 4}, []float64{4, 3, 5}, "held"},
		{"turned round", wanted{most: 4}, []float64{4.1, 3, 5}, "MISSED"},
		{"just below", wanted{least: 4}, []float64{3.99, 3, 5}, "MISSED"},
		{"the worst round counts", wanted{most: 1, worst: true}, []float64{1, 1, 2}, "MISSED"},
		{"less than nothing", wanted{most: 1}, []float64{-1}, "held"},
		{"no number", wanted{most: 1}, []float64{math.NaN()}, "MISSED"},
		{"nothing measured", wanted{most: 1.5}, nil, "MISSED"},
		{"for scale", wanted{}, []float64{7}, ""},
	} {
		r := row{wanted: c.wanted}
		for _, v := range c.ratios {
			r.ratios = append(r.ratios, rates(v, 1))
		}
		if got := r.verdict(); got != c.verdict {
			t.Errorf("%s: %q, want %q", c.name, got, c.verdict)
		}
	}
	for _, g := range goals {
		for _, w := range g.rows {
			held := row{wanted: w, ratios: []ratio{rates(w.most+w.least, 1)}}
			turned := row{wanted: wanted{most: w.least / 2, least: 2 * w.most}, ratios: held.ratios}
			if limited := w.most+w.least > 0; limited && (held.verdict() != "held" || turned.verdict() != "MISSED") {
				t.Errorf("goal %s: %s is %s at its limit, and %s when that is turned round", g.name, w.what, held.verdict(), turned.verdict())
			}
		}
	}
}

// A goal that breaks or takes too long takes no other along, and no panic leaves it: it
// has the rounds that it got to, and a row that says why.
func TestABrokenGoalIsARow(t *testing.T) {
	b := &bench{plan: tiny, shared: new(run)}
	b.rounds, b.limit = 2, 20*time.Millisecond
	rows := []wanted{{what: "half of it", most: 2}}
	round := 0
	second := func(fn func(*run)) func(*run) func() []ratio {
		return func(r *run) func() []ratio {
			round = 0
			return func() []ratio {
				if round++; round == 2 {
					fn(r)
				}
				return []ratio{rates(1, 1)}
			}
		}
	}
	measured, err := b.measureAll(t.Context(), []goal{
		{name: "breaks", open: second(func(*run) { check(errors.New("one\ncall | of many")) }), rows: rows},
		{name: "slow", open: second(func(r *run) {
			crowd(0, func() error { <-r.ctx.Done(); return context.Cause(r.ctx) })
		}), rows: rows},
		{name: "panics", open: second(func(r *run) { r.echo.client = nil }), rows: rows},
		{name: "unclean", open: func(r *run) func() []ratio {
			r.Cleanup(func() { r.Fatal("it does not end") })
			return func() []ratio { return []ratio{rates(1, 1)} }
		}, rows: rows},
		{name: "whole", open: second(func(*run) {}), rows: rows},
	})
	if err == nil {
		t.Error("a goal broke and the run did not")
	}
	docs := filepath.Join(t.TempDir(), "b.md")
	if err := os.WriteFile(docs, []byte("before "+measuredBegin+"old"+measuredEnd+" after"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := rewrite(docs, "fast", table(measured, true)); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(docs)
	for _, want := range []string{
		"before " + measuredBegin + "\n\n```\nfast\n```\n",
		"| breaks | half of it | &lt;= 2 | 1.00 | 1.00 - 1.00 | 1 | held | 1.00 / 1.00 /s |",
		"| breaks | goal breaks: one call &#124; of many |  |  |  |  | broken |  |",
		"| slow | goal slow: it took longer than 20ms: it took longer than 20ms |",
		"| panics | goal panics: panic: runtime error: invalid memory address",
		"| unclean | goal unclean: it does not end |",
		"| whole | half of it | &lt;= 2 | 1.00 | 1.00 - 1.00 | 2 | held |",
		measuredEnd + " after",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in\n%s\n%v", want, text, err)
		}
	}
	if err := os.WriteFile(docs, []byte(measuredBegin), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := rewrite(docs, "", ""); err == nil {
		t.Error("a document without an end was written")
	}
}

func TestGoalsByName(t *testing.T) {
	if got, err := choose("3,peers"); err != nil || len(got) != 2 || got[0].name != "3" {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := choose("14,13"); err != nil || len(got) != 1 || got[0].name != "14" {
		t.Errorf("%v, %v", got, err)
	}
	for _, list := range []string{"60", "1,,2", "one"} {
		if _, err := choose(list); err == nil {
			t.Errorf("goals %q were taken", list)
		}
	}
}
