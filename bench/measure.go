package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// measure measures goals, prints the table and writes it into the document, if
// there is one. A goal that broke is in the table and, once that is written, in
// the error. A run that was called off writes no document: what it has not
// measured stays there as it was.
func measure(ctx context.Context, p plan, goals []goal, dir, program, peers, docs string) (err error) {
	if os.Geteuid() != 0 {
		return fmt.Errorf("a network namespace and a bridge need root")
	}
	b, err := newBench(p, dir, program, peers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	var machine strings.Builder
	if err := describe(&machine, dir, b.program); err != nil {
		return err
	}
	fmt.Println(&machine)
	rows, broken := measureEach(ctx, b, goals)
	if err := load(&machine, "after"); err != nil {
		return errors.Join(broken, err)
	}
	tables := []table{goalTable(rows)}
	if len(b.others) > 0 {
		tables = append(tables, b.others)
	}
	for _, t := range tables {
		if err := t.write(os.Stdout); err != nil {
			return errors.Join(broken, err)
		}
		fmt.Println()
	}
	if docs == "" || errors.Is(ctx.Err(), context.Canceled) {
		return broken
	}
	return errors.Join(broken, rewrite(docs, machine.String(), tables))
}

// measureEach measures one goal after the other. One that breaks has the rounds
// in its rows that it got to, and one row more that says why; it costs no other
// goal anything, but for the time. broken is all that broke.
func measureEach(ctx context.Context, b *bench, goals []goal) (rows []row, broken error) {
	for _, g := range goals {
		if ctx.Err() != nil {
			rows = append(rows, brokenRow(g.number, fmt.Errorf("not begun: %w", context.Cause(ctx))))
			continue
		}
		began := time.Now()
		fmt.Fprintf(os.Stderr, "goal %s: %s ...", goalName(g.number), g.about)
		measured, err := g.measure(ctx, b)
		fmt.Fprintf(os.Stderr, " %v\n", time.Since(began).Round(time.Second))
		measured = append(measured, b.tally.take(g.number)...)
		if err != nil {
			err = fmt.Errorf("goal %s: %w", goalName(g.number), errors.Join(err, b.disperse()))
			fmt.Fprintln(os.Stderr, "bench:", err)
			for i := range measured {
				measured[i].broken = true
			}
			measured = append(measured, brokenRow(g.number, err))
			broken = errors.Join(broken, err)
		}
		rows = append(rows, measured...)
	}
	if ctx.Err() != nil {
		broken = errors.Join(broken, context.Cause(ctx))
	}
	return rows, broken
}

// whyMost is how many bytes of a reason fit into the table. All of it is in the
// log.
const whyMost = 300

// brokenRow tells in the table why a goal broke, in one line.
func brokenRow(number int, err error) row {
	why := strings.Join(strings.Fields(err.Error()), " ")
	if len(why) > whyMost {
		why = strings.ToValidUTF8(why[:whyMost], "") + " ..."
	}
	return row{goal: number, what: "broken: " + why, broken: true}
}
