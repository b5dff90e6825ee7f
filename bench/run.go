package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"testing"
	"time"
)

// patience is how long anything is waited for that is no measurement.
const patience = time.Minute

// child is a command that ends with this process, however that ends: a daemon that is left
// takes its part of every later measurement.
func child(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// A plan is how much is measured.
type plan struct {
	rounds    int           // of each goal
	calls     int           // of each kind, a round
	leases    int           // in a full book
	callers   int           // that are many
	crowd     time.Duration // how long they call, a round
	load      time.Duration // how long the book is written to without a rest
	ports     int           // of a bridge
	sandboxes int           // on a full runner, and ports of its bridge
	settle    time.Duration // before a full runner is at rest
	rest      time.Duration // how long one is looked at, a round; 30 s is between two whole readings of its bridge
	boxes     int           // sandboxes whose removal is confirmed, a way and round
	watchers  int           // of the stream, at once
	ahead     int           // addresses of a /64 that are given before its memory is measured
	limit     time.Duration // of a goal
}

var (
	fullPlan = plan{rounds: 7, calls: 400, leases: 60_000, callers: 64, crowd: time.Second, load: time.Minute,
		ports: 32, sandboxes: 1000, settle: 8 * time.Second, rest: 30 * time.Second, boxes: 12, watchers: 1000, ahead: 70_000, limit: 10 * time.Minute}
	shortPlan = plan{rounds: 5, calls: 150, leases: 60_000, callers: 64, crowd: time.Second / 2, load: 20 * time.Second,
		ports: 8, sandboxes: 250, settle: 3 * time.Second, rest: 30 * time.Second, boxes: 4, watchers: 1000, ahead: 70_000, limit: 10 * time.Minute}
)

// A bench is what the goals share: the yardsticks, and worlds that take long to make.
type bench struct {
	plan
	dir     string // of this run; it goes away
	program string
	plugin  string // CNI's host-local
	cni     string // ipamd's plugin
	own     *run
	file    *overwriter
	echo    *echo
	filled  string  // the folder of a full book; "" before it is needed
	crowded *runner // nil before it is needed
	shared  *run    // what ends those
}

func newBench(p plan, parent string) (b *bench, err error) {
	b = &bench{plan: p, program: "bin/ipamd", plugin: ".cache/peers/host-local", cni: "bin/ipamd-cni"}
	b.own, b.shared = &run{bench: b, ctx: context.Background()}, &run{bench: b, ctx: context.Background()}
	err = b.own.do(func() {
		b.dir = must(os.MkdirTemp(parent, "ipamd-bench-"))
		b.own.Cleanup(func() { check(os.RemoveAll(b.dir)) })
		b.program = must(filepath.Abs(b.program))
		b.plugin = must(filepath.Abs(b.plugin))
		b.cni = must(filepath.Abs(b.cni))
		b.file = b.own.overwriter("yardstick")
		b.echo = b.own.startEcho()
	})
	if err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

func (b *bench) close() error { return errors.Join(b.closeShared(), b.own.close()) }

// closeShared ends the worlds that goals share: one that broke may have left them
// in any state.
func (b *bench) closeShared() error {
	b.filled, b.crowded = "", nil
	return b.shared.close()
}

// A run is what one goal is measured in: the [testing.TB] of all that it starts,
// so that it is made with what the tests are made with. Whatever fails ends
// the goal and not the program: it panics with a refusal, which [run.do] returns. So
// must, check and all that fails a test belong on the goal's own goroutine.
type run struct {
	testing.TB // nil: nothing else of it is used
	*bench
	ctx  context.Context
	ends []func()
	errs []error
}

// A refusal is what ended a goal.
type refusal struct{ error }

func (r *run) Helper()                        {}
func (r *run) Cleanup(end func())             { r.ends = append(r.ends, end) }
func (r *run) Failed() bool                   { return len(r.errs) > 0 }
func (r *run) Fatal(args ...any)              { panic(refusal{errors.New(fmt.Sprint(args...))}) }
func (r *run) Fatalf(format string, a ...any) { panic(refusal{fmt.Errorf(format, a...)}) }
func (r *run) Skip(args ...any)               { r.Fatal(args...) }
func (r *run) Errorf(format string, a ...any) { r.errs = append(r.errs, fmt.Errorf(format, a...)) }
func (r *run) Logf(format string, a ...any)   { fmt.Fprintf(os.Stderr, format+"\n", a...) }

// do calls fn and returns what ended it.
func (r *run) do(fn func()) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case refusal:
			err = p.error
		default:
			err = fmt.Errorf("panic: %v at %s", p, debug.Stack())
		}
	}()
	fn()
	return nil
}

// close ends what was started, the last first.
func (r *run) close() error {
	errs := r.errs
	for n := len(r.ends) - 1; n >= 0; n-- {
		errs = append(errs, r.do(r.ends[n]))
	}
	r.ends, r.errs = nil, nil
	return errors.Join(errs...)
}

// check ends the goal with the first error.
func check(errs ...error) {
	for _, err := range errs {
		if err != nil {
			panic(refusal{err})
		}
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

// measureAll measures one goal after the other.
func (b *bench) measureAll(ctx context.Context, chosen []goal) (rows []row, broken error) {
	for _, g := range chosen {
		began := time.Now()
		fmt.Fprintf(os.Stderr, "goal %s: %s ...", g.name, g.about)
		measured, err := b.measure(ctx, g)
		fmt.Fprintf(os.Stderr, " %v\n", time.Since(began).Round(time.Second))
		rows, broken = append(rows, measured...), errors.Join(broken, err)
	}
	return rows, broken
}

// measure takes a goal's rounds. One that breaks has those that it got to, and a row
// more that says why.
func (b *bench) measure(ctx context.Context, g goal) ([]row, error) {
	rows := make([]row, len(g.rows))
	for i, wanted := range g.rows {
		rows[i] = row{goal: cmp.Or(wanted.of, g.name), wanted: wanted}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, b.limit, fmt.Errorf("it took longer than %v", b.limit))
	defer cancel()
	r := &run{bench: b, ctx: ctx}
	err := r.do(func() {
		for round := g.open(r); len(rows[0].ratios) < b.rounds && (!g.once || len(rows[0].ratios) == 0); {
			check(context.Cause(ctx))
			for i, ratio := range round() {
				rows[i].ratios = append(rows[i].ratios, ratio)
			}
		}
	})
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	if err = errors.Join(err, r.close()); err != nil {
		err = fmt.Errorf("goal %s: %w", g.name, errors.Join(err, b.closeShared()))
		rows = append(rows, row{goal: g.name, broken: err})
	}
	return rows, err
}
