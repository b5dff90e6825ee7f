package main

import (
	"context"
	"database/sql"
	"debug/elf"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// restart is goal 7: how long after it was run ipamd gives addresses, with a full book.
// There is no port on its bridge, so that the inventory is next to nothing; all else is
// in it, from the loading of the program on. The yardstick reads each row and column of
// the stopped ipamd's book once, through the same SQLite.
func restart(r *run) func() []ratio {
	d := r.start(setup{book: r.full()})
	return func() []ratio {
		d.stop()
		var scan, start sample
		check(scan.time(func() error { return scanBook(r.ctx, filepath.Join(d.folder, "book.db")) }))
		check(start.time(func() error { d.launch(); return nil }))
		return []ratio{took(start[0], scan[0])}
	}
}

// scanBook reads all tables of a book that is not open.
func scanBook(ctx context.Context, path string) error {
	book, err := sql.Open("sqlite", "file:"+path+"?immutable=1") // netdb brings the driver
	if err != nil {
		return err
	}
	defer book.Close()
	var tables string
	if err := book.QueryRowContext(ctx, `SELECT group_concat(name) FROM sqlite_schema WHERE type = 'table'`).Scan(&tables); err != nil {
		return err
	}
	for table := range strings.SplitSeq(tables, ",") {
		rows, err := book.QueryContext(ctx, `SELECT * FROM `+table)
		if err != nil {
			return err
		}
		for rows.Next() { // the driver fetches each column
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return err
		}
	}
	return nil
}

// atRest is goal 8: what the daemon of a full runner takes while nothing happens. A round
// lasts as long as it is from one whole reading of the bridge to the next, or as the plan says. A pass, each
// five minutes, is too rare to be waited for: one is made, and its tenth is added, with
// what follows it, which a round of rest must not begin with.
func atRest(r *run) func() []ratio {
	n := r.fullRunner()
	rest := func(long time.Duration) {
		select {
		case <-r.ctx.Done():
		case <-time.After(long):
		}
	}
	rest(r.settle) // for seconds there is news of many new ports
	return func() []ratio {
		const passes = 10
		round, after := r.plan.rest, min(r.plan.rest, 3*time.Second)
		busy := onProcessor(n.pid(), func() { rest(round) })
		size := resident(n.pid())
		pass := onProcessor(n.pid(), func() { check(n.pass(0)); rest(after) }) - busy*after/round
		busy = (busy + pass/passes) * time.Second / round
		return []ratio{sizes(size, 60e6), took(busy, 5*time.Millisecond), sizes(r.programSize(), 30e6)}
	}
}

// programSize is how many bytes the program has, which needs no library and has no
// symbols.
func (r *run) programSize() float64 {
	program := must(elf.Open(r.program))
	defer program.Close()
	if program.Section(".interp") != nil || program.Section(".symtab") != nil {
		r.Fatalf("%s is not static and stripped", r.program)
	}
	return float64(must(os.Stat(r.program)).Size())
}

// poolSizes is what a /8 and a /64 cost beside a /24 with as many leases, each in a daemon
// of its own.
func poolSizes(r *run) func() []ratio {
	const leases = 200
	of := func(prefix string) float64 {
		d := r.start(setup{pool: prefix})
		defer d.stop()
		d.fill(leases)
		return resident(d.pid())
	}
	return func() []ratio {
		small := of("10.8.64.0/24")
		return []ratio{sizes(of("10.0.0.0/8"), small), sizes(of("fd00:10:8::/64"), small)}
	}
}

// largeMemory is the last part of goal 8: ever new addresses of a /64 leave nothing,
// once as many were freed as ipamd remembers.
func largeMemory(r *run) func() []ratio {
	d := r.start(setup{pool: "fd00:10:8::/64"})
	all := d.callers(r.callers)
	give := func(pairs int) {
		for made := 0; made < 2*pairs; {
			calls, _ := crowd(r.crowd, all...)
			made += len(calls)
		}
	}
	give(r.ahead)
	before := resident(d.pid())
	return func() []ratio {
		give(r.ahead / 10)
		return []ratio{sizes(resident(d.pid()), before)}
	}
}
