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
// that is missed is no error: a busy machine misses goals. One that could not be
// measured to its end is, once all the others are.
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
	ctx, cancel := context.WithTimeoutCause(ctx, p.most, fmt.Errorf("the run took longer than %v", p.most))
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
