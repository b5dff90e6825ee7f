package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// A plan is how much is measured.
type plan struct {
	rounds    int           // of each goal; at least 5 for a figure worth telling
	calls     int           // a round, of each kind
	leases    int           // in the full book of goal 3
	callers   int           // of goal 4, and of the peers
	crowd     time.Duration // how long they call, a round
	load      time.Duration // how long the book is written to without a rest, of goal 6
	loads     int           // shorter ones beside it
	brief     time.Duration // how long each of them is
	settle    time.Duration // before that: for seconds there is news of many new ports
	rest      time.Duration // how long nothing happens, a round, of goal 8
	ports     int           // of the bridge
	boxes     int           // sandboxes that end, a round and way, of goal 12
	sandboxes int           // at once, of goals 13 and 14
	restarts  int           // of containerd, and of ipamd with a full book
	steps     int           // of a pass, of goal 14
	contests  int           // rounds with the peers; some of them take seconds for a call
	most      time.Duration // the whole run, on a machine that has as much else to do
}

func fullPlan() plan {
	return plan{rounds: 7, calls: 400, leases: 60_000, callers: 64, crowd: time.Second, load: time.Minute, loads: 5, brief: 12 * time.Second, settle: 8 * time.Second, rest: time.Second, ports: 32, boxes: 15, sandboxes: 1000, restarts: 5, steps: 32, contests: 5, most: 30 * time.Minute}
}

func shortPlan() plan {
	return plan{rounds: 5, calls: 150, leases: 60_000, callers: 64, crowd: 800 * time.Millisecond, load: 10 * time.Second, loads: 5, brief: 3 * time.Second, settle: 3 * time.Second, rest: 500 * time.Millisecond, ports: 8, boxes: 4, sandboxes: 250, restarts: 3, steps: 32, contests: 5, most: 15 * time.Minute}
}

// A goal is one line, or more, of the table.
type goal struct {
	number  int
	about   string
	measure func(context.Context, *bench) ([]row, error)
}

func allGoals() []goal {
	return []goal{
		{1, "one caller", oneCaller},
		{2, "the book in process", bookAlone},
		{3, "flat", flat},
		{4, "many callers", manyCallers},
		{5, "the live check", liveCheck},
		{6, "a full load", fullLoad},
		{7, "the start", start},
		{8, "at rest", atRest},
		{9, "an inventory of the bridge", inventory},
		{10, "an address behind a port", newAddress},
		{11, "probes ahead of demand", vetted},
		{12, "the confirmation of a removal", removal},
		{13, "a pass, and the way back to containerd", passes},
		{14, "an allocation beside a pass", beside},
		{peersGoal, "what others take", besidePeers},
	}
}

// peersGoal is the number of what is not numbered: the goals beside peers.
const peersGoal = 0

func goalName(number int) string {
	if number == peersGoal {
		return "peers"
	}
	return strconv.Itoa(number)
}

// bench is what the goals share.
type bench struct {
	plan
	dir     string // of this run; it goes away
	program string
	peers   string // the folder of the peers' programs
	others  table  // what the peers took; empty before their goal
	file    *overwriter
	echo    *echo
	durable *echo   // its server does what file does before it answers
	crowded *runner // nil before the first goal that needs it
	crowds  int     // how many of those there were
	tally   tally   // of the callers of a goal
}

func newBench(p plan, parent, program, peers string) (b *bench, err error) {
	b = &bench{plan: p}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if b.program, err = filepath.Abs(program); err != nil {
		return b, err
	}
	if b.peers, err = filepath.Abs(peers); err != nil {
		return b, err
	}
	if _, err := os.Stat(b.program); err != nil {
		return b, errors.Join(err, errors.New("build it first: make build"))
	}
	if b.dir, err = os.MkdirTemp(parent, "ipamd-bench-"); err != nil {
		return b, err
	}
	if b.file, err = newOverwriter(b.dir, "yardstick"); err != nil {
		return b, err
	}
	if b.echo, err = newEcho(b.dir, echoVerb); err != nil {
		return b, err
	}
	b.durable, err = newEcho(b.dir, durableVerb)
	return b, err
}

func (b *bench) close() error {
	var errs []error
	errs = append(errs, b.disperse())
	for _, e := range []*echo{b.echo, b.durable} {
		if e != nil {
			errs = append(errs, e.close())
		}
	}
	if b.file != nil {
		errs = append(errs, b.file.close())
	}
	if b.dir != "" {
		errs = append(errs, os.RemoveAll(b.dir))
	}
	return errors.Join(errs...)
}

// each runs fn once a round.
func (b *bench) each(ctx context.Context, fn func() error) error {
	for range b.rounds {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if err := fn(); err != nil {
			return err
		}
	}
	return nil
}
