package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ipamd/ipamd/api"
)

// A curve is how something grows with a count, one point after the other.
type curve struct {
	what, of string // "allocate", "leases"
	unit     string
	points   []point
}

// A point is the median of some rounds, with the least and the largest.
type point struct {
	at                  int
	median, least, most float64
}

func (c *curve) add(at int, rounds []float64) {
	c.points = append(c.points, point{at, median(rounds), slices.Min(rounds), slices.Max(rounds)})
}

// leasesAt and portsAt are where the curves have their points.
func leasesAt() []int { return []int{0, 1000, 5000, 10_000, 20_000, 30_000, 45_000, 60_000} }
func portsAt() []int  { return []int{10, 30, 100, 300, 600, 1000} }

// measureGrowth takes the curves and writes them to a file, which bench/draw
// reads.
func measureGrowth(ctx context.Context, p plan, dir, program, path string) (err error) {
	b, err := newBench(p, dir, program, "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	var machine strings.Builder
	if err := describe(&machine, dir, b.program); err != nil {
		return err
	}
	fmt.Println(&machine)
	leases, err := b.growLeases(ctx, leasesAt())
	if err != nil {
		return fmt.Errorf("grow leases: %w", err)
	}
	ports, err := b.growPorts(ctx, portsAt())
	if err != nil {
		return fmt.Errorf("grow ports: %w", err)
	}
	if err := load(&machine, "after"); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(writeCurves(f, machine.String(), append(leases, ports...)), f.Close())
}

// growLeases asks one daemon with ever more leases. What a call cannot take
// less than, F + R, is taken by turns with it.
func (b *bench) growLeases(ctx context.Context, at []int) (curves []curve, err error) {
	d, err := b.startDaemon(ctx, "growth")
	if err != nil {
		return nil, err
	}
	defer func() { err = first(err, d.stop()) }()
	c := d.caller()
	if err := c.churn(ctx, b.calls, new(sample), new(sample)); err != nil { // warm
		return nil, err
	}
	floor := curve{what: "F + R", of: "leases", unit: "µs"}
	give := curve{what: "allocate", of: "leases", unit: "µs"}
	back := curve{what: "release", of: "leases", unit: "µs"}
	memory := curve{what: "resident", of: "leases", unit: "MB"}
	held := 0
	for _, n := range at {
		if err := d.fill(ctx, n-held, b.callers); err != nil {
			return nil, err
		}
		held = n
		var floors, gives, backs, sizes []float64
		if err := b.each(ctx, func() error {
			var files, echoes, allocates, releases sample
			if err := b.turns(func() error {
				return first(
					files.repeat(turn, b.file.write),
					echoes.repeat(turn, func() error { return b.echo.call(ctx) }),
					c.churn(ctx, turn, &allocates, &releases))
			}); err != nil {
				return err
			}
			size, err := residentSet(d.cmd.Process.Pid)
			floors = append(floors, micros(files.p50()+echoes.p50()))
			gives, backs = append(gives, micros(allocates.p50())), append(backs, micros(releases.p50()))
			sizes = append(sizes, size/megabyte)
			return err
		}); err != nil {
			return nil, err
		}
		floor.add(n, floors)
		give.add(n, gives)
		back.add(n, backs)
		memory.add(n, sizes)
	}
	return []curve{floor, give, back, memory}, nil
}

// growPorts has passes made over ever more ports, each with a container and a
// bound lease, which all agree.
func (b *bench) growPorts(ctx context.Context, at []int) (curves []curve, err error) {
	r, err := b.startRunner(ctx, "growth-ports")
	if err != nil {
		return nil, err
	}
	defer func() { err = first(err, r.stop()) }()
	busy := curve{what: "a pass, processor time", of: "ports", unit: "ms"}
	there := 0
	for _, n := range at {
		if _, err := r.boxes(ctx, n-there, false); err != nil {
			return nil, err
		}
		there = n
		if err := r.agree(ctx, n); err != nil {
			return nil, err
		}
		var passes []float64
		if err := b.each(ctx, func() error {
			took, err := onProcessor(r.cmd.Process.Pid, func() error {
				_, err := r.pass(ctx, api.ReconcileRequest{})
				return err
			})
			passes = append(passes, float64(took)/float64(time.Millisecond))
			return err
		}); err != nil {
			return nil, err
		}
		busy.add(n, passes)
	}
	return []curve{busy}, nil
}

// writeCurves writes what they were taken on, as comments, and a line a point.
func writeCurves(w io.Writer, machine string, curves []curve) error {
	for line := range strings.Lines(machine) {
		if _, err := io.WriteString(w, "# "+line); err != nil {
			return err
		}
	}
	out := csv.NewWriter(w)
	lines := [][]string{{"what", "of", "at", "median", "least", "most", "unit"}}
	for _, c := range curves {
		for _, p := range c.points {
			lines = append(lines, []string{c.what, c.of, strconv.Itoa(p.at), decimal(p.median), decimal(p.least), decimal(p.most), c.unit})
		}
	}
	return out.WriteAll(lines)
}

func decimal(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
