// Command bench measures ipamd against what the machine itself can do, in the
// same run and the same directory: calls of each kind by turns, and the median of
// the rounds' ratios. Machines drift by a third within an hour; a ratio of two
// figures taken a moment apart does not. docs/BENCHMARKS.md has the method.
//
// It is run in its own folder, needs root, and leaves nothing behind. Paths are
// those of the checkout's top.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == echoVerb {
		exit(serveEcho(os.Args[2]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	exit(command(ctx, os.Args[1:]))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// command measures the goals that the arguments name and prints the table. A goal
// that is missed is no error: a busy machine misses goals. One that could not be
// measured to its end is, once all the others are.
func command(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	only := flags.String("only", "", "which goals, like 1,4,peers; empty: all")
	short := flags.Bool("short", false, "fewer calls and rounds")
	dir := flags.String("dir", "/var/tmp", "where books are written; on the disk that is to be measured")
	docs := flags.String("docs", "", "a Markdown file whose measured part is written anew")
	growth := flags.String("growth", "", "measure how ipamd grows instead, into this path with .csv and .svg")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("a network namespace and a bridge need root")
	}
	p := fullPlan
	if *short {
		p = shortPlan
	}
	chosen, err := choose(*only)
	if err != nil {
		return err
	}
	if err := os.Chdir(".."); err != nil { // the checkout's top
		return err
	}
	b, err := newBench(p, *dir)
	if err != nil {
		return err
	}
	defer b.close()
	if *growth != "" {
		return b.grow(ctx, *growth, leasesAt, portsAt)
	}
	about, err := b.about()
	if err != nil {
		return err
	}
	fmt.Println(about)
	rows, broken := b.measureAll(ctx, chosen)
	fmt.Print(table(rows, false))
	if *docs == "" || ctx.Err() != nil {
		return broken
	}
	return errors.Join(broken, rewrite(*docs, about, table(rows, true)))
}

// choose returns the goals that a list names, in the table's order.
func choose(list string) (chosen []goal, err error) {
	if list == "" {
		return goals, nil
	}
	names := strings.Split(list, ",")
	for _, name := range names {
		if !slices.ContainsFunc(goals, func(g goal) bool { return g.has(name) }) {
			return nil, fmt.Errorf("goal %q is not measured here", name)
		}
	}
	for _, g := range goals {
		if slices.ContainsFunc(names, g.has) {
			chosen = append(chosen, g)
		}
	}
	return chosen, nil
}

// has says whether a goal is called so, or has a row of the goal that is.
func (g goal) has(name string) bool {
	return name != "" && (g.name == name || slices.ContainsFunc(g.rows, func(w wanted) bool { return w.of == name }))
}
