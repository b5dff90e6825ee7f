// Command bench measures ipamd against what the machine itself can do, in the
// same run and the same directory: rounds that take turns, and the median of
// each round's ratio. Machines drift by a third within an hour; a ratio of
// two numbers taken a moment apart does not.
//
// The yardsticks: F is the p50 of overwriting 4 KiB in place and fdatasync, in
// the book's directory. R is the p50 of a JSON echo over HTTP/1.1 on a kept
// connection of a unix socket, by net/http on both sides, in another process,
// with bodies as long as those of an allocation. E64 is that echo's rate with
// 64 callers. F + R is taken hot, and adds up to less than the two in one
// call: an echo whose server does F before it answers lets both processors
// and the disk fall asleep in turns. That one is in the table too, for scale.
//
// ipamd is the built program as users get it: a process in a network
// namespace of its own, with a real bridge and real ports, synchronous full,
// asked through package client. It needs root. Nothing is left behind.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	if asked, err := otherSide(os.Args); asked {
		exit(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	exit(run(ctx, os.Args[1:]))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// run measures the goals that the arguments name and prints the table. A goal
// that is missed is no error: a busy machine misses goals.
func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	short := flags.Bool("short", false, "fewer calls, rounds and sandboxes")
	goals := flags.String("goals", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,peers", "which goals, by number; and the peers")
	dir := flags.String("dir", "/var/tmp", "where books are written; on the disk that is to be measured")
	program := flags.String("ipamd", "bin/ipamd", "the program to measure")
	peers := flags.String("peers", ".cache/peers", "the folder of the peers' programs")
	docs := flags.String("docs", "", "a Markdown file whose measured part is written anew")
	curves := flags.String("growth", "", "measure how it grows instead, into a CSV file")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen, err := choose(*goals)
	if err != nil {
		return err
	}
	p := fullPlan()
	if *short {
		p = shortPlan()
	}
	ctx, cancel := context.WithTimeout(ctx, p.most)
	defer cancel()
	if *curves != "" {
		return measureGrowth(ctx, p, *dir, *program, *curves)
	}
	return measure(ctx, p, chosen, *dir, *program, *peers, *docs)
}

// choose parses a list of goals.
func choose(list string) ([]goal, error) {
	var out []goal
	for _, word := range strings.Split(list, ",") {
		at := slices.IndexFunc(allGoals(), func(g goal) bool { return goalName(g.number) == strings.TrimSpace(word) })
		if at < 0 {
			return nil, fmt.Errorf("goal %q is not measured here", word)
		}
		out = append(out, allGoals()[at])
	}
	return out, nil
}

func measure(ctx context.Context, p plan, goals []goal, dir, program, peers, docs string) (err error) {
	if os.Geteuid() != 0 {
		return fmt.Errorf("a network namespace and a bridge need root")
	}
	var machine strings.Builder
	if err := describe(&machine, dir); err != nil {
		return err
	}
	fmt.Println(&machine)
	b, err := newBench(p, dir, program, peers)
	if err != nil {
		return err
	}
	defer func() {
		if closing := b.close(); err == nil {
			err = closing
		}
	}()
	rows, broken := measureEach(ctx, b, goals)
	if err := load(&machine, "after"); err != nil {
		return err
	}
	tables := []table{goalTable(rows)}
	if len(b.others) > 0 {
		tables = append(tables, b.others)
	}
	for _, t := range tables {
		if err := t.write(os.Stdout); err != nil {
			return err
		}
		fmt.Println()
	}
	if docs == "" || broken != nil {
		return broken
	}
	return rewrite(docs, machine.String(), tables)
}

// measureEach measures one goal after the other. What was measured before one
// that broke is returned with the error.
func measureEach(ctx context.Context, b *bench, goals []goal) (rows []row, err error) {
	for _, g := range goals {
		began := time.Now()
		fmt.Fprintf(os.Stderr, "goal %s: %s ...", goalName(g.number), g.about)
		measured, err := g.measure(ctx, b)
		fmt.Fprintf(os.Stderr, " %v\n", time.Since(began).Round(time.Second))
		if err != nil {
			return rows, fmt.Errorf("goal %s: %w", goalName(g.number), err)
		}
		rows = append(rows, measured...)
	}
	return rows, nil
}
