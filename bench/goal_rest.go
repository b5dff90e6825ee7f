package main

import (
	"bufio"
	"context"
	"debug/elf"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/ipamd/ipamd/api"
)

const (
	residentLimit = 60e6 // bytes
	programLimit  = 30e6
	restLimit     = 0.01 // of one core
	megabyte      = 1e6
)

// What the clock brings at rest, by default: bridge.refresh and reconcile.every.
const (
	refreshEvery = 30 * time.Second
	passEvery    = 5 * time.Minute
)

// atRest is goal 8: what the daemon of a full runner takes while nothing
// happens. What the clock brings is too rare to be waited for and is added in
// a row of its own: a refresh of the bridge is taken for as much as a whole
// pass, which has one in it and lists containerd beside.
func atRest(ctx context.Context, b *bench) (rows []row, err error) {
	size, err := programSize(b.program)
	if err != nil {
		return nil, err
	}
	program := row{goal: 8, what: "the program, static and stripped / 30 MB", most: 1}
	program.bytes(size, programLimit)
	r, err := b.crowdedRunner(ctx)
	if err != nil {
		return []row{program}, err
	}
	of := fmt.Sprintf("at rest with %d leases and ports, ", b.sandboxes)
	resident := row{goal: 8, what: of + "resident / 60 MB", most: 1}
	quiet := row{goal: 8, what: of + "processor time / 1 %", most: 1}
	clock := row{goal: 8, what: of + "with what the clock brings / 1 %", most: 1}
	pid := r.cmd.Process.Pid
	if err := rest(ctx, b.settle); err != nil {
		return nil, err
	}
	var busy []time.Duration
	err = b.each(ctx, func() error {
		took, err := onProcessor(pid, func() error { return rest(ctx, b.rest) })
		if err != nil {
			return err
		}
		busy = append(busy, took)
		quiet.add(took, time.Duration(restLimit*float64(b.rest)))
		size, err := residentSet(pid)
		resident.bytes(size, residentLimit)
		return err
	})
	if err != nil {
		return []row{resident, quiet, clock, program}, err
	}
	passes := float64(b.rest)/float64(refreshEvery) + float64(b.rest)/float64(passEvery)
	for _, took := range busy { // after all rests: a pass leaves garbage to collect
		pass, err := onProcessor(pid, func() error {
			_, err := r.pass(ctx, api.ReconcileRequest{})
			return err
		})
		if err != nil {
			return []row{resident, quiet, clock, program}, err
		}
		clock.add(took+time.Duration(passes*float64(pass)), time.Duration(restLimit*float64(b.rest)))
	}
	return []row{resident, quiet, clock, program}, nil
}

// rest does nothing for a while.
func rest(ctx context.Context, long time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(long):
		return nil
	}
}

// bytes notes one round of a size.
func (r *row) bytes(size, limit float64) {
	r.unit = "MB"
	r.round(size/megabyte, limit/megabyte)
}

// residentSet is how many bytes a process has in memory (proc_pid_status(5)).
func residentSet(pid int) (float64, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var kilobytes float64
		if _, err := fmt.Sscanf(strings.TrimPrefix(lines.Text(), "VmRSS:"), "%f kB", &kilobytes); err == nil && strings.HasPrefix(lines.Text(), "VmRSS:") {
			return kilobytes * 1024, nil
		}
	}
	return 0, fmt.Errorf("read the memory of process %d: no VmRSS: %w", pid, lines.Err())
}

// programSize is how many bytes the program has, if it needs no library and
// has no symbols.
func programSize(path string) (float64, error) {
	program, err := elf.Open(path)
	if err != nil {
		return 0, err
	}
	defer program.Close()
	for _, p := range program.Progs {
		if p.Type == elf.PT_INTERP {
			return 0, fmt.Errorf("measure %s: it is not static", path)
		}
	}
	if program.Section(".symtab") != nil {
		return 0, fmt.Errorf("measure %s: it is not stripped", path)
	}
	st, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return float64(st.Size()), nil
}
